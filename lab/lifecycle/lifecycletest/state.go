package lifecycletest

import (
	"context"
	"encoding/json"
	"errors"

	"mesh/lab/machine"
	"mesh/lab/world"
)

// State gives what SetState gave to a world; "{}" before that.
func (f *Fake) State(_ context.Context, c world.Config) (json.RawMessage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var s outsideState
	if err := f.get("namespace", c.Underlay.Namespace, &s); err != nil {
		return nil, err
	}
	if len(s.State) == 0 {
		return json.RawMessage("{}"), nil
	}
	return s.State, nil
}

// Whole is State: nothing passes a router here.
func (f *Fake) Whole(ctx context.Context, c world.Config) (json.RawMessage, error) {
	return f.State(ctx, c)
}

// SetState makes a world have a state, whatever that is.
func (f *Fake) SetState(ctx context.Context, c world.Config, state json.RawMessage) error {
	return f.change(ctx, "state of world "+c.Underlay.Run, func() error {
		var s outsideState
		if err := f.get("namespace", c.Underlay.Namespace, &s); err != nil {
			return err
		}
		if !json.Valid(state) {
			return errors.New("the state is no JSON")
		}
		was := s
		s.State = state
		if err := f.mayBecome(was, s); err != nil {
			return err
		}
		return f.put("namespace", c.Underlay.Namespace, s)
	})
}

// Remember has the guest of a running machine keep something in its memory and,
// under the same name, on its disk.
func (f *Fake) Remember(name, key, value string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var d domain
	if f.get("domain", name, &d) != nil || d.State != machine.Running {
		return machine.ErrAbsent
	}
	if d.Held == nil {
		d.Held = map[string]string{}
	}
	d.Held[key] = value
	return errors.Join(writeDisk(d, key, []byte(value)), f.put("domain", name, d))
}

// Recall is what the guest of a machine remembers; empty where it is nothing, or
// the machine is absent.
func (f *Fake) Recall(name, key string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var d domain
	if f.get("domain", name, &d) != nil {
		return ""
	}
	return d.Held[key]
}

// Below is what a layer says that it stands on, as written there; empty for none.
func Below(path string) string { return string(readLayer(path)[baseKey]) }
