package lifecycletest

import (
	"encoding/json"
	"fmt"

	"mesh/lab/underlay"
)

// standing is the underlay of a world with everybody where its state has them.
func (s outsideState) standing() (underlay.Underlay, error) {
	var state struct {
		Stands map[string]string `json:"stands"`
	}
	u := s.Config.Underlay
	if len(s.State) == 0 {
		return u, nil
	}
	if err := json.Unmarshal(s.State, &state); err != nil {
		return u, err
	}
	for _, r := range u.Roamers() {
		at, away := state.Stands[r.Name]
		if !away {
			at = r.Segments[0]
		}
		moved, err := u.Roam(r.Name, at)
		if err != nil {
			return u, err
		}
		u = moved
	}
	return u, nil
}

// mayBecome refuses a state in which a machine stands elsewhere whose cable is
// in: its guest would not notice.
func (f *Fake) mayBecome(was, is outsideState) error {
	before, err := was.standing()
	if err != nil {
		return err
	}
	after, err := is.standing()
	if err != nil {
		return err
	}
	for i, m := range after.Machines {
		for j, nic := range m.NICs {
			if before.Machines[i].NICs[j].Segment == nic.Segment {
				continue
			}
			if d, ok := f.withTap(nic.Tap); ok && len(d.Pulled) == 0 {
				return fmt.Errorf("machine %s moves to %s with its cable in", m.Name, nic.Segment)
			}
		}
	}
	return nil
}

// withTap finds the machine that has a tap.
func (f *Fake) withTap(tap string) (domain, bool) {
	for _, name := range f.names("domain") {
		var d domain
		if f.get("domain", name, &d) != nil {
			continue
		}
		for _, nic := range d.Spec.NICs {
			if nic.Tap == tap {
				return d, true
			}
		}
	}
	return domain{}, false
}
