package gateway

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode"

	"connectrpc.com/connect"

	"mesh/host/declaration"
	"mesh/host/inventory"
	"mesh/host/link"
	"mesh/plane/enrolment"
	"mesh/plane/registry"
)

// exporterBytes is the length of the exporter value a proof covers.
const exporterBytes = 32

// enrol answers link.ProcedureEnrol.
func (g *Gateway) enrol(ctx context.Context, req *connect.Request[link.EnrolRequest]) (*connect.Response[link.EnrolResponse], error) {
	c := callerOf(ctx)
	if err := firstError(checkProtocol(req.Msg.Protocol), checkMachine(req.Msg.Profile, req.Msg.Inventory)); err != nil {
		return nil, g.wire(ctx, err, "enrol", "")
	}
	exporter, err := c.tls.ExportKeyingMaterial(link.ExporterLabel, nil, exporterBytes)
	if err != nil {
		return nil, g.wire(ctx, fmt.Errorf("export keying material: %v", err), "enrol", "")
	}
	grant, err := g.Enroller.Enrol(ctx, enrolment.Attempt{
		TokenID: req.Msg.TokenID, Proof: req.Msg.Proof, Exporter: exporter, Key: c.key,
		Profile: req.Msg.Profile, Inventory: req.Msg.Inventory,
	})
	if err != nil {
		return nil, g.wire(ctx, err, "enrol", "")
	}
	answer := &link.EnrolResponse{
		Protocol: link.Protocol, Mesh: g.Mesh.Name, Node: grant.Node,
		DeclarationKey: g.Mesh.DeclarationKey.Public().String(), Epoch: g.Mesh.Epoch, Time: g.Now().UTC(),
	}
	for _, a := range grant.Addresses {
		answer.Addresses = append(answer.Addresses, a.String())
	}
	return connect.NewResponse(answer), nil
}

// watch answers link.ProcedureWatch: the node's declaration is offered at once,
// whenever it changes, and as a sign of life.
func (g *Gateway) watch(ctx context.Context, req *connect.Request[link.WatchRequest], stream *connect.ServerStream[link.Offer]) error {
	c := callerOf(ctx)
	if err := firstError(checkProtocol(req.Msg.Protocol), checkMachine(req.Msg.Profile, inventory.Inventory{})); err != nil {
		return g.wire(ctx, err, "watch", c.node.Name)
	}
	open := g.Links.begin(c.key, g.Now())
	defer func() {
		g.Links.finish(open)
		g.seen(context.WithoutCancel(ctx), c.key)
		g.Log.Info("link down", "node", c.node.Name)
	}()
	g.Log.Info("link up", "node", c.node.Name, "generation", req.Msg.Generation)

	// Read after the link was opened: what is committed from here on wakes it.
	node, err := g.Nodes.Linked(ctx, c.key)
	if isUnknown(err) {
		err = notANode()
	}
	if held := req.Msg; err == nil && held.Epoch == node.Declared.Epoch && held.Generation > node.Declared.Generation {
		g.Log.Error("node holds a newer declaration than this plane ever made, and refuses older ones; was an old store put back?",
			"node", c.node.Name, "generation", held.Generation, "declared", node.Declared.Generation)
	}
	if err == nil && !reflect.DeepEqual(node.Profile, req.Msg.Profile) {
		err = g.Observations.SaveProfile(ctx, c.key, req.Msg.Profile, g.Now())
	}
	if err == nil {
		err = g.offers(ctx, open, node.Declared, stream)
	}
	if err != nil {
		return g.wire(ctx, err, "watch", c.node.Name)
	}
	return nil
}

// offers sends until the link ends.
func (g *Gateway) offers(ctx context.Context, open *openLink, declared registry.Declared, stream *connect.ServerStream[link.Offer]) error {
	tick := time.NewTicker(g.Keepalive)
	defer tick.Stop()
	for {
		err := stream.Send(&link.Offer{
			Epoch: declared.Epoch, Generation: declared.Generation, Digest: declared.Digest, Time: g.Now().UTC(),
		})
		if err != nil {
			return context.Canceled // the host is gone
		}
		select {
		case <-open.wake:
			declared = g.Links.newest(open, declared)
		case <-tick.C:
		case <-open.ended:
			return open.why
		case <-g.stopping:
			return &link.Refusal{Reason: link.ReasonUnavailable, Message: "the plane is stopping; what was declared stays in force"}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// fetch answers link.ProcedureFetch.
func (g *Gateway) fetch(ctx context.Context, req *connect.Request[link.FetchRequest]) (*connect.Response[link.FetchResponse], error) {
	c := callerOf(ctx)
	signed, err := g.Nodes.Signed(ctx, c.key, req.Msg.Digest)
	if isUnknown(err) {
		err = &link.Refusal{Reason: link.ReasonNotFound, Message: "no declaration of this node has that digest; the offer to come names the newest"}
	}
	if err != nil {
		return nil, g.wire(ctx, err, "fetch", c.node.Name)
	}
	return connect.NewResponse(&link.FetchResponse{Signed: signed}), nil
}

// blob answers link.ProcedureBlob.
func (g *Gateway) blob(ctx context.Context, req *connect.Request[link.BlobRequest]) (*connect.Response[link.BlobResponse], error) {
	c := callerOf(ctx)
	if req.Msg.Offset < 0 {
		return nil, g.wire(ctx, &link.Refusal{Reason: link.ReasonMalformed, Message: "a part of a content begins at 0 or behind"}, "blob", c.node.Name)
	}
	part, err := g.Contents.Content(ctx, c.key, req.Msg.Digest, req.Msg.Offset)
	if isUnknown(err) {
		err = &link.Refusal{Reason: link.ReasonNotFound, Message: "the plane has no content of that digest for this node"}
	}
	if err != nil {
		return nil, g.wire(ctx, err, "blob", c.node.Name)
	}
	return connect.NewResponse(&link.BlobResponse{Data: part}), nil
}

// report answers link.ProcedureReport.
func (g *Gateway) report(ctx context.Context, req *connect.Request[link.ReportRequest]) (*connect.Response[link.ReportResponse], error) {
	c := callerOf(ctx)
	if err := g.checkReport(c, req.Msg); err != nil {
		return nil, g.wire(ctx, err, "report", c.node.Name)
	}
	now := g.Now().UTC()
	err := g.Observations.SaveReport(ctx, registry.Report{Node: c.key, At: now, Outcome: req.Msg.Outcome, Inventory: req.Msg.Inventory, Refused: req.Msg.Refused})
	if err != nil {
		return nil, g.wire(ctx, err, "report", c.node.Name)
	}
	if c.node.Retiring { // an answer that is lost is no harm: it asks again and is told that it is none of ours
		if err := g.Enroller.Depart(ctx, c.key, req.Msg.Outcome); err != nil {
			return nil, g.wire(ctx, err, "report", c.node.Name)
		}
	}
	if r := req.Msg.Refused; r != nil {
		g.Log.Error("node refuses what it is offered, and keeps what it holds", "node", c.node.Name, "generation", r.Generation, "digest", r.Digest, "err", r.Reason)
	}
	counts := registry.Count(req.Msg.Outcome.Results)
	g.Log.Info("report", "node", c.node.Name, "generation", req.Msg.Outcome.Generation, "in_sync", counts.InSync, "waiting", counts.Waiting, "failed", counts.Failed)
	return connect.NewResponse(&link.ReportResponse{Time: now}), nil
}

// maxNumber bounds epochs and generations, so that they are whole numbers in
// every store and document.
const maxNumber = 1 << 53

func (g *Gateway) checkReport(c caller, r *link.ReportRequest) error {
	if r.Outcome.Epoch > maxNumber || r.Outcome.Generation > maxNumber {
		return &link.Refusal{Reason: link.ReasonMalformed, Message: "the report names an epoch or a generation that no plane ever gave"}
	}
	if refused := r.Refused; refused != nil {
		if refused.Epoch > maxNumber || refused.Generation > maxNumber {
			return &link.Refusal{Reason: link.ReasonMalformed, Message: "the report refuses an epoch or a generation that no plane ever gave"}
		}
		refused.Digest, refused.Reason = shown(refused.Digest), shown(refused.Reason)
	}
	if r.Inventory.MachineID != c.node.MachineID {
		g.Log.Warn("two machines have the key of one node", "node", c.node.Name, "machine", c.node.MachineID, "other_machine", r.Inventory.MachineID)
		return &link.Refusal{Reason: link.ReasonKeyKnown,
			Message: fmt.Sprintf("the key of this machine is that of node %q, which is the machine %s; this machine was copied from it: remove its state and enrol it anew", c.node.Name, c.node.MachineID)}
	}
	for i, result := range r.Outcome.Results {
		r.Outcome.Results[i] = declaration.Result{
			ID: shown(result.ID), Kind: declaration.Kind(shown(string(result.Kind))), Where: shown(result.Where),
			Status: declaration.Status(shown(string(result.Status))), Reason: shown(result.Reason),
		}
	}
	return checkMachine(inventory.Profile{}, r.Inventory)
}

func checkProtocol(protocol int) error {
	if protocol < link.OldestProtocol {
		return &link.Refusal{Reason: link.ReasonTooOld,
			Message: fmt.Sprintf("mesh-host speaks version %d of the link, and this plane understands %d and later; upgrade mesh-host", protocol, link.OldestProtocol)}
	}
	return nil
}

// checkMachine refuses text that would end up before people, and is not text.
func checkMachine(p inventory.Profile, i inventory.Inventory) error {
	all := append([]string{p.HostVersion, p.OS, p.OSVersion, p.Architecture, p.Kernel, i.MachineID, i.Hostname}, p.Kinds...)
	all = append(all, p.Capabilities...)
	for _, each := range i.Interfaces {
		all = append(all, each.Name, each.MAC)
	}
	if !printable(all...) {
		return &link.Refusal{Reason: link.ReasonMalformed, Message: "the profile or inventory holds text that cannot be shown to people"}
	}
	return nil
}

func printable(all ...string) bool {
	for _, s := range all {
		if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
			return false
		}
	}
	return true
}

// shown makes one line of plain text of s: what a command on the machine wrote
// may be in it.
func shown(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
