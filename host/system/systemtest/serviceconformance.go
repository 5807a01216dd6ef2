package systemtest

import (
	"errors"
	"strings"
	"testing"

	"mesh/host/resource"
	"mesh/host/system"
)

// UnitBehaviour is how a unit behaves that the suite asks for.
type UnitBehaviour string

// The units ServiceConformance needs.
const (
	UnitGood      UnitBehaviour = "good"      // runs until it is stopped, and can be enabled
	UnitFails     UnitBehaviour = "fails"     // cannot be started
	UnitCondition UnitBehaviour = "condition" // is skipped, because a condition is not met
	UnitRude      UnitBehaviour = "rude"      // runs until it is stopped, and says that it failed then
	UnitStatic    UnitBehaviour = "static"    // runs until it is stopped, and has no say in starting at boot
	UnitSlow      UnitBehaviour = "slow"      // does not come to the end of its start
)

// ServiceConformance is what a service manager must do. place makes a unit that
// behaves in one way and returns its name.
func ServiceConformance(t *testing.T, s resource.Services, place func(t *testing.T, b UnitBehaviour) string) {
	look := func(t *testing.T, name string) system.Unit {
		t.Helper()
		units, err := s.Units(t.Context(), []string{name})
		if err != nil {
			t.Fatal(err)
		}
		return units[name]
	}
	do := func(t *testing.T, errs ...error) {
		t.Helper()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Run("a unit that is not there", func(t *testing.T) {
		const name = "mesh-conformance-none.service"
		if u := look(t, name); u.Load != "not-found" || u.Active != "inactive" {
			t.Errorf("%+v", u)
		}
		if err := s.Start(t.Context(), name); err == nil || !strings.Contains(err.Error(), "does not exist") {
			t.Errorf("start: %v", err)
		}
	})
	t.Run("a good unit", func(t *testing.T) {
		name := place(t, UnitGood)
		if u := look(t, name); u.Load != "loaded" || u.Active != "inactive" || u.Enabled != "disabled" || u.Boot == "" {
			t.Errorf("before: %+v", u)
		}
		do(t, s.Enable(t.Context(), name), s.Start(t.Context(), name))
		first := look(t, name)
		if first.Active != "active" || first.Enabled != "enabled" || first.Invocation == "" {
			t.Errorf("started and enabled: %+v", first)
		}
		do(t, s.Enable(t.Context(), name), s.Start(t.Context(), name))
		if again := look(t, name); again != first {
			t.Errorf("started again: %+v, was %+v", again, first)
		}
		do(t, s.Restart(t.Context(), name))
		if u := look(t, name); u.Active != "active" || u.Invocation == first.Invocation || u.Boot != first.Boot {
			t.Errorf("restarted: %+v, was %+v", u, first)
		}
		do(t, s.Reload(t.Context(), name))
		if u := look(t, name); u.Active != "active" {
			t.Errorf("reloaded: %+v", u)
		}
		do(t, s.Stop(t.Context(), name), s.Disable(t.Context(), name), s.Stop(t.Context(), name), s.Disable(t.Context(), name))
		if u := look(t, name); u.Active != "inactive" || u.Enabled != "disabled" {
			t.Errorf("stopped and disabled: %+v", u)
		}
	})
	t.Run("a unit that is masked", func(t *testing.T) {
		const name = "mesh-conformance-masked.service"
		do(t, s.Mask(t.Context(), name), s.Mask(t.Context(), name))
		if u := look(t, name); u.Enabled != "masked" {
			t.Errorf("%+v", u)
		}
		if err := s.Start(t.Context(), name); err == nil || !strings.Contains(err.Error(), "masked") {
			t.Errorf("start: %v", err)
		}
		do(t, s.Unmask(t.Context(), name), s.Unmask(t.Context(), name))
		if u := look(t, name); u.Enabled == "masked" {
			t.Errorf("%+v", u)
		}
	})
	t.Run("a unit that fails", func(t *testing.T) {
		name := place(t, UnitFails)
		for range 8 { // more than systemd's limit on starts: each is tried
			if err := s.Start(t.Context(), name); err == nil || strings.Contains(err.Error(), "start-limit") {
				t.Errorf("start: %v", err)
			}
		}
		if u := look(t, name); u.Active != "failed" {
			t.Errorf("%+v", u)
		}
	})
	t.Run("a unit that fails when it is told to end", func(t *testing.T) {
		name := place(t, UnitRude)
		do(t, s.Start(t.Context(), name), s.Stop(t.Context(), name))
		if u := look(t, name); u.Active != "inactive" {
			t.Errorf("%+v", u)
		}
	})
	t.Run("a unit whose condition is not met", func(t *testing.T) {
		name := place(t, UnitCondition)
		if err := s.Start(t.Context(), name); err == nil || !strings.Contains(err.Error(), "condition") {
			t.Errorf("start: %v", err)
		}
	})
	t.Run("a unit that starts for ever", func(t *testing.T) {
		name := place(t, UnitSlow)
		if err := s.Start(t.Context(), name); !errors.Is(err, system.ErrGoesOn) {
			t.Errorf("start: %v", err)
		}
		first := look(t, name)
		if first.Active != "activating" || first.Invocation == "" {
			t.Errorf("%+v", first)
		}
		if err := s.Restart(t.Context(), name); !errors.Is(err, system.ErrGoesOn) {
			t.Errorf("restart: %v", err)
		}
		if u := look(t, name); u.Active != "activating" || u.Invocation == first.Invocation {
			t.Errorf("%+v, was %+v", u, first)
		}
		do(t, s.Stop(t.Context(), name))
		if u := look(t, name); u.Active != "inactive" {
			t.Errorf("%+v", u)
		}
	})
	t.Run("a unit without a say in starting at boot", func(t *testing.T) {
		name := place(t, UnitStatic)
		do(t, s.Enable(t.Context(), name))
		if u := look(t, name); u.Enabled != "static" {
			t.Errorf("%+v", u)
		}
	})
}
