// Package guest does things inside machines through the QEMU guest agent: wait
// for it, run commands, copy files. It also knows what no machine may ever say
// on its console.
//
// It needs no network and no account in the machine; whatever it runs is root's.
// It decides nothing about machines; lab/lifecycle does. Only that, lab/snapshot,
// lab/evidence, lab/verify, cmd/lab and specs/bench import it.
package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"mesh/lab/machine"
)

// Hypervisor is what Guests needs of a machine.Hypervisor.
type Hypervisor interface {
	Agent(ctx context.Context, name, command string) (string, error)
	Wait(ctx context.Context, name string) (machine.Death, error)
}

// Guests are the insides of a hypervisor's machines, which are named as the
// hypervisor names them. Make it with New. Safe for concurrent use.
type Guests struct {
	hypervisor Hypervisor
}

// New returns the guests of h.
func New(h Hypervisor) *Guests { return &Guests{hypervisor: h} }

const (
	// firstPoll and lastPoll bound how often an agent is asked whether something
	// has happened; it cannot tell by itself. A question takes it tens of
	// milliseconds under emulation.
	firstPoll = 20 * time.Millisecond
	lastPoll  = 500 * time.Millisecond
	// soonPoll is lastPoll for what somebody waits for and is over soon.
	soonPoll = 250 * time.Millisecond
	// pingTime is how long one sign of life may take while others may follow.
	pingTime = 5 * time.Second
	// tidyTime bounds what is undone after a call was given up.
	tidyTime = 5 * time.Second
)

// Wait returns when a machine's agent answers. A machine that ends, or that is
// absent, is an error at once, with what is known of its end.
func (g *Guests) Wait(ctx context.Context, name string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		d, err := g.hypervisor.Wait(ctx, name)
		if err == nil {
			cancel(endError{name, d})
		}
	}()
	defer func() {
		cancel(nil)
		<-watching
	}()
	var last error
	for p := newPoll(lastPoll); ; {
		if last = g.ping(ctx, name); last == nil {
			return nil
		}
		if err := p.wait(ctx); err != nil {
			if !errors.Is(err, machine.ErrAbsent) {
				err = fmt.Errorf("wait for the guest agent of machine %s: %w; its last answer: %v", name, err, last)
			}
			return err
		}
	}
}

func (g *Guests) ping(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	return g.call(ctx, name, "guest-ping", nil, nil)
}

// endError says that a machine ended while something was wanted of it.
type endError struct {
	name  string
	death machine.Death
}

func (e endError) Error() string {
	text := fmt.Sprintf("machine %s ended before its guest agent answered: %s", e.name, e.death.Cause)
	if e.death.Stderr != "" {
		text += "\n" + e.death.Stderr
	}
	return text
}

func (endError) Unwrap() error { return machine.ErrAbsent }

// call sends one command to an agent and reads its answer into result, if that
// is not nil.
func (g *Guests) call(ctx context.Context, name, execute string, arguments, result any) error {
	command, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{execute, arguments})
	if err != nil {
		return fmt.Errorf("write %s: %w", execute, err)
	}
	answer, err := g.hypervisor.Agent(ctx, name, string(command))
	if err != nil {
		return err
	}
	return decode(answer, execute, result)
}

// decode reads an agent's answer. Members that are not known are ignored, as
// the agent's protocol wants (QEMU docs/interop/qemu-ga-ref).
func decode(answer, execute string, result any) error {
	var envelope struct {
		Return json.RawMessage `json:"return"`
		Error  *struct {
			Desc string `json:"desc"`
		} `json:"error"`
	}
	err := json.Unmarshal([]byte(answer), &envelope)
	switch {
	case err != nil:
		return fmt.Errorf("read the answer to %s: %w", execute, err)
	case envelope.Error != nil:
		return fmt.Errorf("%s: %s", execute, envelope.Error.Desc)
	case envelope.Return == nil:
		return fmt.Errorf("the answer to %s returns nothing", execute)
	case result == nil:
		return nil
	}
	if err := json.Unmarshal(envelope.Return, result); err != nil {
		return fmt.Errorf("read the answer to %s: %w", execute, err)
	}
	return nil
}

// poll spaces questions out, up to last.
type poll struct{ next, last time.Duration }

func newPoll(last time.Duration) *poll { return &poll{firstPoll, last} }

// wait returns at the time of the next question, or when ctx ends, with its cause.
func (p *poll) wait(ctx context.Context) error {
	t := time.NewTimer(p.next)
	defer t.Stop()
	p.next = min(p.next*3/2, p.last)
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
