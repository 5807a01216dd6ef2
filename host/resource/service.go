package resource

import (
	"context"
	"slices"

	"mesh/host/declaration"
	"mesh/host/store"
	"mesh/host/system"
)

// Services is what services ask of the machine.
type Services interface {
	Units(ctx context.Context, names []string) (map[string]system.Unit, error)
	Start(ctx context.Context, unit string) error
	Stop(ctx context.Context, unit string) error
	Restart(ctx context.Context, unit string) error
	Reload(ctx context.Context, unit string) error
	Mask(ctx context.Context, unit string) error
	Unmask(ctx context.Context, unit string) error
	Enable(ctx context.Context, unit string) error
	Disable(ctx context.Context, unit string) error
	Reread(ctx context.Context) error // unit files
}

const (
	typeService = "service"
	active      = "active"
	inactive    = "inactive"
	enabled     = "enabled"
	disabled    = "disabled"
	masked      = "masked"
)

type service struct{}

func (service) target(r declaration.Resource, _ system.Accounts) (store.State, error) {
	s := store.State{Type: typeService, Status: active, Enabled: enabled}
	if r.Service.State == "stopped" {
		s.Status = inactive
	}
	if r.Service.Enabled != nil && !*r.Service.Enabled {
		s.Enabled = disabled
	}
	if r.Service.State == declaration.StateMasked {
		s.Status, s.Enabled = inactive, masked
	}
	return s, nil
}

// Running says whether a service in state s does its work, or is about to.
func Running(s store.State) bool {
	return slices.Contains([]string{active, "reloading", "activating", "refreshing"}, s.Status)
}

// startsAtBoot says whether a unit file state means that.
func startsAtBoot(state string) bool { return state == enabled }

// canEnable says whether a unit in this state has a say in starting at boot:
// static, generated, indirect and transient units have none.
// https://www.freedesktop.org/software/systemd/man/systemctl.html, is-enabled
func canEnable(state string) bool {
	return slices.Contains([]string{enabled, disabled, "enabled-runtime", "linked", "linked-runtime", "masked", "masked-runtime", "bad"}, state)
}

func (service) differs(target, found store.State) string {
	wanted := Running(target)
	switch {
	case target.Enabled == masked && found.Enabled != masked:
		return "it is not masked"
	case target.Enabled == disabled && found.Enabled == masked && wanted:
		return "it is masked"
	case found.Absent() && (wanted || target.Enabled == enabled):
		return "the unit does not exist"
	case found.Absent():
		return ""
	case wanted && !Running(found):
		return "it is " + found.Status
	case !wanted && Running(found):
		return "it is running"
	case target.Enabled == enabled && canEnable(found.Enabled) && !startsAtBoot(found.Enabled):
		return "it is " + found.Enabled
	case target.Enabled == disabled && startsAtBoot(found.Enabled):
		return "it is enabled"
	}
	return ""
}

// fate: a service is taken back as far as the host took it.
func (service) fate(o store.Owned, found store.State) (Fate, string) {
	switch {
	case found.Absent():
		return Gone, ""
	case toUnmask(o, found):
		return Remove, ""
	case !toStop(o, found) && !toDisable(o, found) && (Running(found) || startsAtBoot(found.Enabled)):
		return Leave, "it ran, or was enabled, before it was first declared"
	case !toStop(o, found) && !toDisable(o, found):
		return Gone, ""
	}
	return Remove, ""
}

func toStop(o store.Owned, found store.State) bool {
	return Running(found) && !Running(o.Origin)
}

// toUnmask: only what the host itself masked.
func toUnmask(o store.Owned, found store.State) bool {
	return found.Enabled == masked && o.Made.Enabled == masked && o.Origin.Enabled != masked
}

func toDisable(o store.Owned, found store.State) bool {
	return startsAtBoot(found.Enabled) && !startsAtBoot(o.Origin.Enabled)
}

// resolve: enabling and starting are two steps, and systemd is its own master;
// whatever is there, the host has had its hand in it.
func (k service) resolve(in store.Intent, found store.State) Resolution {
	rebooted := found.Boot != in.Before.Boot
	found.Boot = in.Before.Boot
	switch {
	case in.Act == store.ActRemove:
		if fate, _ := k.fate(store.Owned{Origin: in.Origin, Made: in.Before}, found); fate != Remove {
			return Done
		}
		return Partly
	case in.Act == store.ActReload:
		return Undone // it cannot be told: the debt stands
	case in.Act == store.ActRestart && (rebooted || found.Invocation == in.Before.Invocation):
		return Undone // or it cannot be told: the debt stands
	case k.differs(in.Target, found) == "":
		return Done
	case found == in.Before:
		return Undone
	}
	return Partly
}

func (service) look(ctx context.Context, m Machine, places []string) []Found {
	units, err := m.Units(ctx, places)
	if err != nil {
		return everyone(len(places), err)
	}
	all := make([]Found, len(places))
	for i, name := range places {
		if u, ok := units[name]; ok && u.Load != "not-found" {
			all[i].State = store.State{Type: typeService, Status: u.Active, Enabled: u.Enabled, Invocation: u.Invocation, Boot: u.Boot}
		}
	}
	return all
}

func (k service) apply(ctx context.Context, m Machine, changes []Change) []error {
	errs := make([]error, len(changes))
	for i, c := range changes {
		errs[i] = k.change(ctx, m, c)
	}
	return errs
}

func (service) change(ctx context.Context, m Machine, c Change) error {
	unit := c.Resource.Service.Unit
	wanted := c.Target.Status == active
	if c.Before.Enabled == masked && c.Made.Enabled == masked && c.Target.Enabled != masked {
		if err := m.Unmask(ctx, unit); err != nil {
			return err
		}
		c.Before.Enabled = disabled
	}
	if !wanted && Running(c.Before) {
		c.Note("stopping")
		if err := m.Stop(ctx, unit); err != nil {
			return err
		}
	}
	atBoot := startsAtBoot(c.Before.Enabled)
	switch {
	case c.Target.Enabled == masked:
		return m.Mask(ctx, unit)
	case c.Target.Enabled == enabled && !atBoot && (c.Before.Absent() || canEnable(c.Before.Enabled)):
		if err := m.Enable(ctx, unit); err != nil {
			return err
		}
	case c.Target.Enabled == disabled && atBoot:
		if err := m.Disable(ctx, unit); err != nil {
			return err
		}
	}
	switch {
	case wanted && !Running(c.Before):
		c.Note("starting")
		return m.Start(ctx, unit)
	case wanted && c.Reload:
		c.Note("reloading")
		return m.Reload(ctx, unit)
	case wanted && c.Restart:
		c.Note("restarting")
		return m.Restart(ctx, unit)
	}
	return nil
}

func (service) remove(ctx context.Context, m Machine, owned []store.Owned, note func(string)) []error {
	errs := make([]error, len(owned))
	for i, o := range owned {
		errs[i] = release(ctx, m, o, note)
	}
	return errs
}

// release stops and disables the unit as far as the host started and enabled it.
func release(ctx context.Context, m Machine, o store.Owned, note func(string)) error {
	units, err := m.Units(ctx, []string{o.Where})
	if err != nil {
		return err
	}
	found := store.State{Type: typeService, Status: units[o.Where].Active, Enabled: units[o.Where].Enabled}
	if toStop(o, found) {
		note("stopping")
		if err := m.Stop(ctx, o.Where); err != nil {
			return err
		}
	}
	switch {
	case toUnmask(o, found):
		return m.Unmask(ctx, o.Where)
	case toDisable(o, found):
		return m.Disable(ctx, o.Where)
	}
	return nil
}
