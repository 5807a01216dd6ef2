package systemtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"mesh/host/system"
)

// Unit is one unit of the fake machine.
type Unit struct {
	Name    string
	Active  string // "active", "activating", "inactive", "failed"
	Enabled string // "enabled", "disabled", "static", "masked", "generated"
	File    string // of a generated one: the file it was made of; empty when that is gone
	Reads   []string
	Fails   string // when not empty, starting it fails for this reason
	Skipped bool   // a condition is not met: starting it does nothing
	Slow    bool   // starting it does not come to its end

	run  int               // names the run it is in
	read map[string]string // what it read of Reads when it started
}

// Services is a service manager. A unit is there because a package brought it, or
// because it was added by hand.
type Services struct {
	m        *Machine
	units    map[string]*Unit
	runs     int
	boots    int
	restarts map[string]int
}

func newServices() *Services { return &Services{units: map[string]*Unit{}, restarts: map[string]int{}} }

// AddUnit adds a unit by hand; inactive and disabled unless it says otherwise.
func (u *Services) AddUnit(unit Unit) {
	if unit.Active == "" {
		unit.Active = "inactive"
	}
	if unit.Enabled == "" {
		unit.Enabled = "disabled"
	}
	added := unit
	u.units[unit.Name] = &added
	if added.Active == "active" {
		u.begin(&added)
	}
}

// Restarts counts how often Restart worked on the unit since the machine came up.
func (u *Services) Restarts(name string) int { return u.restarts[name] }

// Stale lists the units that run, or start, and did before a file they read changed.
func (u *Services) Stale() []string {
	var stale []string
	for _, unit := range u.sorted() {
		if unit.run > 0 && !maps.Equal(unit.read, u.reading(unit)) {
			stale = append(stale, unit.Name)
		}
	}
	return stale
}

func (u *Services) sorted() []*Unit {
	return slices.SortedFunc(maps.Values(u.units), func(a, b *Unit) int { return strings.Compare(a.Name, b.Name) })
}

func (u *Services) reading(unit *Unit) map[string]string {
	read := map[string]string{}
	for _, p := range unit.Reads {
		if content, ok := u.m.Disk.Content(p); ok {
			read[p] = content
		}
	}
	return read
}

func (u *Services) begin(unit *Unit) {
	u.runs++
	unit.Active, unit.run, unit.read = "active", u.runs, u.reading(unit)
}

func (u *Services) end(unit *Unit, state string) {
	unit.Active, unit.run, unit.read = state, 0, nil
	if unit.Enabled == "generated" {
		u.m.ended(unit)
	}
}

// rebooted is the same units with none of them running.
func (u *Services) rebooted() *Services {
	again := newServices()
	again.runs, again.boots = u.runs, u.boots+1
	for name, unit := range u.units {
		if unit.Enabled == "generated" {
			continue // it is made anew of its file
		}
		c := *unit
		c.Active, c.run, c.read = "inactive", 0, nil
		again.units[name] = &c
	}
	return again
}

// String is a line for each unit, in order.
func (u *Services) String() string {
	var b strings.Builder
	for _, unit := range u.sorted() {
		fmt.Fprintf(&b, "unit %s %s %s\n", unit.Name, unit.Active, unit.Enabled)
	}
	return b.String()
}

// Units implements resource.Services.
func (u *Services) Units(_ context.Context, names []string) (map[string]system.Unit, error) {
	if err := u.m.call("read units", strings.Join(names, " "), false); err != nil {
		return nil, err
	}
	found := map[string]system.Unit{}
	for _, name := range names {
		unit := u.units[name]
		if unit == nil {
			found[name] = system.Unit{Load: "not-found", Active: "inactive"}
			continue
		}
		s := system.Unit{Load: "loaded", Active: unit.Active, Enabled: unit.Enabled, Boot: fmt.Sprint(u.boots)}
		if unit.run > 0 {
			s.Invocation = fmt.Sprintf("%032x", unit.run)
		}
		found[name] = s
	}
	return found, nil
}

func (u *Services) act(what, name string, do func(*Unit) error) error {
	if err := u.m.call(what, name, true); err != nil {
		return err
	}
	unit := u.units[name]
	if unit == nil {
		return fmt.Errorf("%s %s: unit %s does not exist", what, name, name)
	}
	return do(unit)
}

func (u *Services) start(unit *Unit) error {
	switch {
	case unit.Enabled == "masked":
		return fmt.Errorf("unit %s is masked", unit.Name)
	case unit.Skipped:
		return fmt.Errorf("start %s: systemd skipped it, because a condition in the unit is not met", unit.Name)
	case unit.Fails != "":
		u.end(unit, "failed")
		return fmt.Errorf("start %s: %s", unit.Name, unit.Fails)
	}
	if unit.Enabled == "generated" {
		if err := u.m.began(unit); err != nil {
			u.end(unit, "failed")
			return fmt.Errorf("start %s: %w", unit.Name, err)
		}
	}
	u.begin(unit)
	if unit.Slow {
		unit.Active = "activating"
		return fmt.Errorf("start %s: %w", unit.Name, system.ErrGoesOn)
	}
	return nil
}

// Reread implements resource.Services.
func (u *Services) Reread(context.Context) error {
	if err := u.m.call("read unit files", "systemd", true); err != nil {
		return err
	}
	u.m.generate()
	return nil
}

// Start implements resource.Services.
func (u *Services) Start(_ context.Context, name string) error {
	return u.act("start", name, func(unit *Unit) error {
		if unit.Active == "active" {
			return nil
		}
		return u.start(unit)
	})
}

// Restart implements resource.Services.
func (u *Services) Restart(_ context.Context, name string) error {
	return u.act("restart", name, func(unit *Unit) error {
		err := u.start(unit)
		if err == nil {
			u.restarts[name]++
		}
		return err
	})
}

// Reload implements resource.Services: the unit reads anew without a new run.
func (u *Services) Reload(_ context.Context, name string) error {
	return u.act("reload", name, func(unit *Unit) error {
		if unit.Active != "active" {
			return u.start(unit)
		}
		unit.read = u.reading(unit)
		return nil
	})
}

// Mask implements resource.Services.
func (u *Services) Mask(_ context.Context, name string) error {
	if err := u.m.call("mask", name, true); err != nil {
		return err
	}
	if u.units[name] == nil {
		u.AddUnit(Unit{Name: name})
	}
	u.units[name].Enabled = "masked"
	return nil
}

// Unmask implements resource.Services.
func (u *Services) Unmask(_ context.Context, name string) error {
	return u.act("unmask", name, func(unit *Unit) error {
		if unit.Enabled == "masked" {
			unit.Enabled = "disabled"
		}
		return nil
	})
}

// Stop implements resource.Services.
func (u *Services) Stop(_ context.Context, name string) error {
	return u.act("stop", name, func(unit *Unit) error {
		u.end(unit, "inactive")
		return nil
	})
}

// Enable implements resource.Services.
func (u *Services) Enable(_ context.Context, name string) error {
	return u.act("enable", name, func(unit *Unit) error {
		switch unit.Enabled {
		case "masked":
			return fmt.Errorf("unit %s is masked", name)
		case "disabled":
			unit.Enabled = "enabled"
		}
		return nil
	})
}

// Disable implements resource.Services.
func (u *Services) Disable(_ context.Context, name string) error {
	return u.act("disable", name, func(unit *Unit) error {
		if unit.Enabled == "enabled" {
			unit.Enabled = "disabled"
		}
		return nil
	})
}
