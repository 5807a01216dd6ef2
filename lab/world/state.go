package world

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	mdns "github.com/miekg/dns"

	"mesh/lab/companion"
	"mesh/lab/fault"
	"mesh/lab/underlay"
	"mesh/lab/world/acme"
	"mesh/lab/world/dns"
	"mesh/lab/world/impairment"
	"mesh/lab/world/line"
	"mesh/lab/world/namespace"
	"mesh/lab/world/network"
)

// State is everything that can be changed of a running world. The zero value is
// that of a world that has just begun.
type State struct {
	// Faults are those of networks and services that are in force; their order
	// tells nothing.
	Faults []fault.Fault `json:"faults,omitempty"`
	// Stands tells of who roams and is not where it began in which segment it is.
	Stands map[string]string `json:"stands,omitempty"`
	// Routers is what each router remembers; a state without it leaves that to
	// what passes them, and only Whole tells it.
	Routers map[string]network.Memory `json:"routers,omitempty"`
}

// Bounds of a state.
const (
	stateLimit = companion.AnswerLimit // bytes
	faultLimit = 500
)

// ParseState reads a state that a world of u can have. Unknown and repeated
// members, faults that are not a world's, and targets that u does not have are
// refused, all at once.
func ParseState(text []byte, u underlay.Underlay) (State, error) {
	var s State
	if len(text) > stateLimit {
		return State{}, fmt.Errorf("read state: it has more than %d bytes", stateLimit)
	}
	if err := json.Unmarshal(text, &s, json.RejectUnknownMembers(true)); err != nil {
		return State{}, fmt.Errorf("read state: %v", err)
	}
	if len(s.Faults) > faultLimit {
		return State{}, fmt.Errorf("read state: it has more than %d faults", faultLimit)
	}
	u, err := s.move(u)
	if err != nil {
		return State{}, fmt.Errorf("read state: %w", err)
	}
	s.Stands = u.Away()
	problems := remembered(s.Routers, u)
	names := map[string]bool{}
	for i, f := range s.Faults {
		where := fmt.Sprintf("fault %q", f.Name)
		if err := fault.CheckName(f.Name); err != nil {
			problems = append(problems, err)
		}
		if names[f.Name] {
			problems = append(problems, fmt.Errorf("%s: the name stands twice", where))
		}
		names[f.Name] = true
		resolved, err := fault.Resolve(f, u)
		switch {
		case err != nil:
			problems = append(problems, fmt.Errorf("%s: %w", where, err))
		case !resolved.OfWorld():
			problems = append(problems, fmt.Errorf("%s: %s is done to a machine, not by the world", where, f.Kind))
		}
		s.Faults[i] = resolved
	}
	if len(s.Faults) == 0 {
		s.Faults = nil
	}
	slices.SortFunc(s.Faults, func(a, b fault.Fault) int { return cmp.Compare(a.Name, b.Name) })
	return s, errors.Join(problems...)
}

// text is s as ParseState reads it.
func (s State) text() []byte {
	text, err := json.Marshal(s, json.Deterministic(true))
	if err != nil { // only types of ours are in it
		panic(err)
	}
	return append(text, '\n')
}

// State tells the state that is in force, without what routers remember.
func (w *World) State() State {
	w.stateMu.Lock()
	defer w.stateMu.Unlock()
	return State{Faults: slices.Clone(w.state.Faults), Stands: maps.Clone(w.state.Stands)}
}

// memoryLimit bounds how many connections, and mappings, all routers together
// tell of, so that a snapshot's manifest stays one that can be read.
const memoryLimit = 24 << 10

// Whole is State with what routers remember.
func (w *World) Whole(ctx context.Context) (State, error) {
	w.stateMu.Lock()
	defer w.stateMu.Unlock()
	s := State{Faults: w.state.Faults, Stands: w.state.Stands, Routers: map[string]network.Memory{}}
	for _, r := range w.config.Underlay.Routers {
		m, err := network.Remember(ctx, r, memoryLimit/len(w.config.Underlay.Routers))
		if err != nil {
			return State{}, err
		}
		s.Routers[r.Name] = m
	}
	return s, nil
}

// remembered finds what no router of u can remember.
func remembered(routers map[string]network.Memory, u underlay.Underlay) (problems []error) {
	for _, name := range slices.Sorted(maps.Keys(routers)) {
		if !slices.ContainsFunc(u.Routers, func(r underlay.Router) bool { return r.Name == name }) {
			problems = append(problems, fmt.Errorf("routers: there is no router %q", name))
		} else if err := routers[name].Check(); err != nil {
			problems = append(problems, fmt.Errorf("routers: %s: %w", name, err))
		}
	}
	return problems
}

// recall has each router remember what is said of it, and one of which nothing is
// said nothing.
func recall(ctx context.Context, u underlay.Underlay, routers map[string]network.Memory) error {
	var problems []error
	for _, r := range u.Routers {
		problems = append(problems, network.Recall(ctx, r, routers[r.Name]))
	}
	return errors.Join(problems...)
}

// putState answers PUT /state.
func (w *World) putState(out http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(http.MaxBytesReader(out, r.Body, stateLimit))
	if err != nil {
		http.Error(out, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	s, err := ParseState(bytes.TrimSpace(text), w.config.Underlay)
	if err != nil {
		http.Error(out, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	select {
	case <-w.ready:
	default:
		http.Error(out, "the world is not ready yet", http.StatusServiceUnavailable)
		return
	}
	// What is begun is done to its end, even if whoever asked for it is gone.
	if err := w.SetState(context.WithoutCancel(r.Context()), s); err != nil {
		http.Error(out, err.Error(), http.StatusInternalServerError)
	}
}

// SetState makes the whole state be s, as ParseState gives it. What is so already
// is left alone. If it fails, the state that was before is put back.
func (w *World) SetState(ctx context.Context, s State) error {
	w.stateMu.Lock()
	defer w.stateMu.Unlock()
	err := w.settleLocked(ctx, s)
	if err != nil {
		return errors.Join(err, w.settleLocked(ctx, w.state))
	}
	w.state = State{Faults: s.Faults, Stands: s.Stands}
	names := []string{}
	for _, f := range s.Faults {
		names = append(names, f.Name)
	}
	w.log.Info("state changed", "faults", names, "stands", s.Stands)
	return nil
}

func (w *World) settleLocked(ctx context.Context, s State) error {
	u, err := s.move(w.config.Underlay)
	if err != nil {
		return err
	}
	plan := impairment.NewPlan(u, s.Faults)
	if err := w.lines.Set(plan.Lines); err != nil {
		return err
	}
	if err := w.moveLocked(ctx, u); err != nil { // after the lines, which put ports back where they were
		return err
	}
	if err := network.Load(ctx, u.Namespace, plan.Ruleset); err != nil {
		return err
	}
	w.names.Set(failures(s.Faults))
	if w.issuer != nil {
		w.issuer.Set(trouble(s.Faults))
	}
	stopped := stoppedBy(s.Faults)
	var problems []error
	for _, p := range w.parts {
		if len(stopped[p.service]) == 0 {
			problems = append(problems, w.start(ctx, p))
		} else if p.end != nil {
			p.end()
		}
	}
	if s.Routers != nil {
		problems = append(problems, recall(ctx, u, s.Routers))
	}
	return errors.Join(problems...)
}

// clear takes away what an earlier process of the world had impaired: no filter
// of faults stands after network.Apply, but ports may be off their bridges.
func (w *World) clear(ctx context.Context) error {
	u := w.config.Underlay
	ports := map[string]string{}
	for _, s := range u.Segments {
		for _, m := range u.Machines {
			for _, nic := range m.NICs {
				if nic.Segment == s.Name {
					ports[nic.Tap] = s.Bridge
				}
			}
		}
	}
	err := namespace.Do(u.Namespace, func() error { return line.Join(ports) })
	return errors.Join(err, network.Load(ctx, u.Namespace, impairment.NewPlan(u, nil).Ruleset))
}

// stopped tells of each service that a fault has stopped by which.
func (w *World) stopped() map[string][]string { return stoppedBy(w.State().Faults) }

func stoppedBy(faults []fault.Fault) map[string][]string {
	by := map[string][]string{}
	for _, f := range faults {
		if f.Kind != fault.ServiceStopped {
			continue
		}
		for _, t := range f.On {
			by[t.Name] = append(by[t.Name], "stopped by fault "+f.Name)
		}
	}
	return by
}

// failures are what faults mean for DNS.
func failures(faults []fault.Fault) (all []dns.Failure) {
	for _, f := range faults {
		if f.Kind != fault.DNSFailing {
			continue
		}
		one := dns.Failure{Zone: f.Zone, Rcode: mdns.RcodeServerFailure, Silent: f.How == fault.Silent}
		if f.How == fault.NXDomain {
			one.Rcode = mdns.RcodeNameError
		}
		all = append(all, one)
	}
	return all
}

// retryIn is when a client may come again where a fault does not say.
const retryIn = time.Hour

// trouble is what faults mean for the issuer. Delays add up, the longest time of
// waiting and the greatest share hold.
func trouble(faults []fault.Fault) (t acme.Trouble) {
	for _, f := range faults {
		switch f.Kind {
		case fault.IssuerSlow:
			t.Delay += time.Duration(f.Delay)
		case fault.IssuerRefusing:
			switch f.How {
			case fault.Reset:
				t.Cut = true
			case fault.Internal:
				t.Status = http.StatusInternalServerError
			default:
				t.Status = http.StatusServiceUnavailable
			}
		case fault.IssuerLimited:
			t.RetryIn = max(t.RetryIn, cmp.Or(time.Duration(f.RetryIn), retryIn))
		case fault.IssuerExpired:
			t.Expired = true
		case fault.IssuerBadNonces:
			t.BadNonces = max(t.BadNonces, f.Share)
		}
	}
	return t
}
