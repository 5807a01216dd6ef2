package agent

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"connectrpc.com/connect"

	"mesh/host/declaration"
	"mesh/host/inventory"
	"mesh/host/link"
	"mesh/host/store"
)

// session is one connection to the plane.
type session struct {
	*uplink
	conn    *conn
	refused *link.Refused       // what is offered and not followed; not fetched again
	looked  looked              // newest that report has dealt with
	sent    *link.ReportRequest // what the plane acknowledged last
	silence *time.Timer         // runs out when the plane has said nothing for too long
}

// looked is what there is to be reported.
type looked struct {
	outcome *declaration.Outcome
	refused *link.Refused
}

// ready is received from at any time.
var ready = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

var errSilent = fmt.Errorf("the plane has said nothing for %s", link.LinkTimeout)

// connect makes one connection and serves it until it ends. lived tells whether
// the plane said anything on it.
func (u *uplink) connect(ctx context.Context) (lived bool, err error) {
	profile, err := u.agent.cfg.Facts.Profile()
	if err != nil {
		return false, err
	}
	c, err := dialAny(ctx, u.agent.cfg.Dial, u.member.Plane, u.member.Pins, u.member.Key)
	if err != nil {
		return false, err
	}
	defer c.Close()
	s := &session{uplink: u, conn: c}
	return s.serve(ctx, profile)
}

// serve opens the stream of offers and does what they and the passes call for.
func (s *session) serve(ctx context.Context, profile inventory.Profile) (lived bool, err error) {
	request := &link.WatchRequest{Protocol: link.Protocol, Profile: profile}
	if c := s.current; c != nil {
		request.Epoch, request.Generation, request.Digest = c.Epoch, c.Generation, c.Digest
	}
	offers, ended := make(chan link.Offer, 1), make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	var stream sync.WaitGroup
	stream.Go(func() { ended <- s.watch(ctx, request, offers) })
	defer stream.Wait()
	defer cancel()

	s.silence = time.NewTimer(link.LinkTimeout)
	defer s.silence.Stop()
	var more <-chan struct{} // ready while there is content to be fetched at once
	for {
		select {
		case <-ctx.Done():
			return lived, ctx.Err()
		case err := <-ended:
			return lived, err
		case <-s.silence.C:
			return lived, errSilent
		case <-s.agent.cfg.Changed:
			if s.reread() {
				return lived, errNewIdentity
			}
		case p := <-s.agent.passed:
			s.take(p)
		case offer := <-offers:
			if !lived {
				lived = true
				s.agent.board.linkUp(s.conn.address.String())
			}
			if err := s.consider(ctx, offer); err != nil {
				return lived, err
			}
			s.silence.Reset(link.LinkTimeout)
		case <-more:
			if len(offers)+len(s.agent.passed) > 0 {
				continue // they go first
			}
			if err := s.fetchContents(ctx); err != nil {
				return lived, err
			}
		}
		if !lived {
			continue
		}
		if err := s.report(ctx); err != nil {
			return lived, err
		}
		if more = nil; s.due() != nil {
			more = ready
		}
	}
}

// watch leaves the newest offer until the stream ends, and says why it did.
func (s *session) watch(ctx context.Context, request *link.WatchRequest, offers chan link.Offer) error {
	stream, err := newClient[link.WatchRequest, link.Offer](s.conn, link.ProcedureWatch).CallServerStream(ctx, connect.NewRequest(request))
	if err != nil {
		return err
	}
	defer stream.Close()
	for stream.Receive() {
		put(offers, *stream.Msg())
	}
	if err := stream.Err(); err != nil {
		return err
	}
	return errors.New("the plane closed the link")
}

// consider fetches what is offered if it is to be followed. Only the end of the
// connection is an error; a declaration that is refused is noted.
func (s *session) consider(ctx context.Context, offer link.Offer) error {
	switch {
	case offer.Digest == "", s.refused != nil && s.refused.Digest == offer.Digest:
		return nil
	case s.current != nil && s.current.Digest == offer.Digest:
		s.follow()
		return nil
	}
	if err := s.olderThanHeld(offer.Epoch, offer.Generation); err != nil {
		s.refuse(offer, err)
		return nil
	}
	response, err := call[link.FetchRequest, link.FetchResponse](ctx, s.conn, link.ProcedureFetch, &link.FetchRequest{Digest: offer.Digest})
	if connect.IsWireError(err) { // it answered; the next offer says what holds now
		s.agent.cfg.Log.Warn("the plane did not give the declaration it offers", "generation", offer.Generation, "digest", offer.Digest, "err", plain(err))
		return nil
	}
	if connect.CodeOf(err) == connect.CodeResourceExhausted { // by this end
		s.refuse(offer, fmt.Errorf("it is longer than any declaration, which has at most %d bytes", declaration.MaxBytes))
		return nil
	}
	if err != nil {
		return err
	}
	accepted, err := s.open(response.Signed, offer)
	if err != nil {
		s.refuse(offer, err)
		return nil
	}
	s.agent.cfg.Log.Info("a declaration came", "generation", accepted.Generation, "digest", accepted.Digest)
	s.current = bare(&accepted)
	s.follow()
	put(s.agent.accepted, accepted)
	return nil
}

// open verifies everything that makes signed the declaration that was offered
// to this node.
func (s *session) open(signed []byte, offer link.Offer) (store.Accepted, error) {
	d, digest, err := declaration.Open(signed, s.member.DeclarationKey)
	switch {
	case err != nil:
		return store.Accepted{}, err
	case d.Mesh != s.member.Mesh || d.Node != s.member.Node:
		return store.Accepted{}, fmt.Errorf("it is for node %s of mesh %s, and this is node %s of mesh %s", d.Node, d.Mesh, s.member.Node, s.member.Mesh)
	case digest != offer.Digest || d.Epoch != offer.Epoch || d.Generation != offer.Generation:
		return store.Accepted{}, fmt.Errorf("it is not what was offered: epoch %d, generation %d, digest %s", d.Epoch, d.Generation, digest)
	}
	return store.Accepted{
		Source: store.SourcePlane, Mesh: d.Mesh, Epoch: d.Epoch, Generation: d.Generation,
		Digest: digest, Time: s.agent.cfg.Now().UTC(), Final: d.Final, Document: signed,
	}, nil
}

// olderThanHeld says why a declaration numbered so cannot follow the one held.
func (s *session) olderThanHeld(epoch, generation uint64) error {
	c := s.current
	switch {
	case c == nil, epoch > c.Epoch:
		return nil
	case epoch < c.Epoch:
		return fmt.Errorf("its epoch %d is lower than %d, which is held", epoch, c.Epoch)
	case generation < c.Generation:
		return fmt.Errorf("its generation %d is lower than %d, which is held", generation, c.Generation)
	case generation == c.Generation:
		return fmt.Errorf("another declaration of generation %d is held", generation)
	}
	return nil
}

// refuse notes that an offer is not followed. What is held stays in force.
func (s *session) refuse(offer link.Offer, why error) {
	s.refused = &link.Refused{
		Epoch: offer.Epoch, Generation: offer.Generation, Digest: offer.Digest,
		Reason: oneLine(why.Error()), Time: s.agent.cfg.Now().UTC(),
	}
	s.agent.cfg.Log.Error("a declaration is refused as a whole, the one held stays in force",
		"generation", offer.Generation, "digest", offer.Digest, "err", why)
	s.agent.board.refused(*s.refused)
}

// follow notes that what is offered is followed.
func (s *session) follow() {
	s.refused = nil
	s.agent.board.follows()
}

// leave ends the membership when the last declaration is carried out and the
// plane knows; the machine is hosted from then on.
func (u *uplink) leave() error {
	if !u.retired() {
		return nil
	}
	if err := leave(u.agent.cfg.Identity); err != nil {
		u.agent.cfg.Log.Error("the membership of this machine is over and cannot be forgotten; it is tried again", "err", err)
		return nil
	}
	u.agent.cfg.Log.Info("this machine was retired and is a member of no mesh", "mesh", u.member.Mesh, "node", u.member.Node)
	u.reread()
	return errNewIdentity
}

// retired tells whether the last declaration of this mesh left nothing undone.
func (u *uplink) retired() bool {
	return u.current != nil && u.current.Final && u.outcome != nil && u.outcome.Digest == u.current.Digest && Converged(*u.outcome)
}

// report tells the plane what the newest pass came to, and what is refused,
// unless it knows.
func (s *session) report(ctx context.Context) error {
	now := looked{s.outcome, s.refused}
	if now == s.looked {
		return nil
	}
	s.looked = now
	has, err := s.agent.cfg.Facts.Inventory()
	if err != nil {
		return err
	}
	request := &link.ReportRequest{Inventory: has, Refused: s.refused}
	if s.outcome != nil {
		request.Outcome = *s.outcome
	}
	if reflect.DeepEqual(request, s.sent) {
		return nil
	}
	_, err = call[link.ReportRequest, link.ReportResponse](ctx, s.conn, link.ProcedureReport, request)
	switch {
	case connect.IsWireError(err): // it answered; the next pass is reported again
		s.agent.cfg.Log.Warn("the plane did not take a report", "err", plain(err))
		return nil
	case err != nil:
		return err
	}
	s.sent = request
	return s.leave()
}
