package system

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
)

// ErrNoSystemd is matched when systemd is not this machine's service manager.
var ErrNoSystemd = errors.New("systemd is not running on this machine")

// Unit is what systemd says of one unit, in its own words.
type Unit struct {
	Load       string // LoadState; "not-found" when there is no such unit
	Active     string // ActiveState; "auto-restart" when it failed and systemd is about to try again
	Enabled    string // UnitFileState; empty for a unit without a file
	Invocation string // InvocationID, hex; names one run of the unit
	Boot       string // boot ID of the machine
}

// Services starts, stops and enables units over D-Bus, on systemd's private
// socket, so that no bus has to run. It keeps no connection open.
type Services struct {
	Wait time.Duration // how long a job is waited for, which goes on then; 0 means 5 minutes
}

// jobWait is longer than systemd gives a unit to stop and to start, if that says
// nothing else: one that may take as long as it likes must not keep the others waiting.
// https://www.freedesktop.org/software/systemd/man/systemd-system.conf.html, DefaultTimeoutStartSec
const jobWait = 5 * time.Minute

// Units says what systemd knows of each name.
func (s *Services) Units(ctx context.Context, names []string) (map[string]Unit, error) {
	found := map[string]Unit{}
	if len(names) == 0 {
		return found, nil
	}
	err := with(ctx, asking, func(ctx context.Context, conn *dbus.Conn) (err error) {
		for _, name := range names {
			if found[name], _, err = read(ctx, conn, name); err != nil {
				return err
			}
		}
		return nil
	})
	return found, err
}

// with does something over a connection to systemd, which has so long for it: one
// that froze after a mistake of its own answers nobody, and runs no job to its end.
func with(ctx context.Context, most time.Duration, do func(context.Context, *dbus.Conn) error) error {
	if !systemdRuns() {
		return ErrNoSystemd
	}
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("systemd has not answered for %s: look at the console of this machine", most))
	defer cancel()
	conn, err := dbus.NewSystemdConnectionContext(ctx)
	if err != nil {
		err = fmt.Errorf("connect to systemd: %v", err)
	} else {
		defer conn.Close()
		err = do(ctx, conn)
	}
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return cause
	}
	return err
}

// read returns the unit and everything else systemd says of it.
func read(ctx context.Context, conn *dbus.Conn, name string) (Unit, map[string]any, error) {
	props, err := conn.GetUnitPropertiesContext(ctx, name)
	if err != nil {
		return Unit{}, nil, fmt.Errorf("ask systemd for %s: %v", name, err)
	}
	u := Unit{}
	u.Load, _ = props["LoadState"].(string)
	u.Active, _ = props["ActiveState"].(string)
	u.Enabled, _ = props["UnitFileState"].(string)
	if sub, _ := props["SubState"].(string); sub == "auto-restart" {
		u.Active = sub
	}
	id, _ := props["InvocationID"].([]byte)
	u.Invocation, u.Boot = fmt.Sprintf("%x", id), boot()
	return u, props, nil
}

// boot names this boot of the machine; empty when the kernel does not say.
// https://www.kernel.org/doc/html/latest/admin-guide/sysctl/kernel.html#random
func boot() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}

// Start starts the unit and reads back that it is active.
func (s *Services) Start(ctx context.Context, name string) error {
	return s.job(ctx, "start", name, (*dbus.Conn).StartUnitContext)
}

// Restart stops and starts the unit and reads back that it is active.
func (s *Services) Restart(ctx context.Context, name string) error {
	return s.job(ctx, "restart", name, (*dbus.Conn).RestartUnitContext)
}

// Reload makes the unit read its configuration again, or starts it anew if it
// cannot, and reads back that it is active.
func (s *Services) Reload(ctx context.Context, name string) error {
	return s.job(ctx, "reload", name, (*dbus.Conn).ReloadOrRestartUnitContext)
}

// Mask keeps the unit from being started by anybody.
func (s *Services) Mask(ctx context.Context, name string) error {
	return with(ctx, asking, func(ctx context.Context, conn *dbus.Conn) error {
		if _, err := conn.MaskUnitFilesContext(ctx, []string{name}, false, false); err != nil {
			return fmt.Errorf("mask %s: %v", name, err)
		}
		return reload(ctx, conn)
	})
}

// Unmask takes a Mask back.
func (s *Services) Unmask(ctx context.Context, name string) error {
	return with(ctx, asking, func(ctx context.Context, conn *dbus.Conn) error {
		if _, err := conn.UnmaskUnitFilesContext(ctx, []string{name}, false); err != nil {
			return fmt.Errorf("unmask %s: %v", name, err)
		}
		return reload(ctx, conn)
	})
}

// Reread makes systemd read its unit files again, and run what generates some.
func (s *Services) Reread(ctx context.Context) error { return with(ctx, asking, reload) }

// Stop stops the unit and reads back that it is not active. One whose program says
// that it failed when it is told to end is stopped all the same, and not left as one
// that failed: systemd would list it even when it is not there any more.
func (s *Services) Stop(ctx context.Context, name string) error {
	return s.job(ctx, "stop", name, (*dbus.Conn).StopUnitContext)
}

type begin func(c *dbus.Conn, ctx context.Context, name, mode string, done chan<- string) (int, error)

// job runs one job of systemd to its end and reads back what came of it: a job
// that is "done" may have been skipped by a condition.
func (s *Services) job(ctx context.Context, what, name string, start begin) error {
	limit := cmp.Or(s.Wait, jobWait)
	return with(ctx, limit+asking, func(ctx context.Context, conn *dbus.Conn) error {
		if err := conn.Subscribe(); err != nil {
			return fmt.Errorf("subscribe to systemd: %v", err)
		}
		if err := refresh(ctx, conn, name); err != nil {
			return err
		}
		done := make(chan string, 1)
		if _, err := start(conn, ctx, name, "replace", done); err != nil {
			return fmt.Errorf("%s %s: %v", what, name, err)
		}
		timer := time.NewTimer(limit)
		defer timer.Stop()
		select {
		case result := <-done:
			return came(ctx, conn, what, name, result)
		case <-timer.C:
			return fmt.Errorf("%s %s: after %s %w: look at `systemctl list-jobs` and `journalctl -u %s`", what, name, limit, ErrGoesOn, name)
		case <-ctx.Done():
			return fmt.Errorf("%s %s: %w", what, name, context.Cause(ctx))
		}
	})
}

// came reads back what came of a job that ended.
func came(ctx context.Context, conn *dbus.Conn, what, name, result string) error {
	unit, props, err := read(ctx, conn, name)
	if err != nil {
		return err
	}
	active := unit.Active == "active" || unit.Active == "reloading"
	if result == "done" && active == (what != "stop") {
		return forgive(ctx, conn, name, unit)
	}
	return fmt.Errorf("%s %s: %s: look at `journalctl -u %s`", what, name, why(result, unit, props), name)
}

// why says in words what came of a job.
func why(result string, unit Unit, props map[string]any) string {
	if met, ok := props["ConditionResult"].(bool); ok && !met && unit.Active == "inactive" {
		return "systemd skipped it, because a condition in the unit is not met"
	}
	text := fmt.Sprintf("the job ended as %q and the unit is %s", result, unit.Active)
	if sub, _ := props["SubState"].(string); sub != "" {
		text += " (" + sub + ")"
	}
	if r, _ := props["Result"].(string); r != "" && r != "success" {
		text += ", result " + r
	}
	return text
}

// refresh makes systemd read unit files again where it has to, clears a failure
// that would keep the unit from starting, and refuses a unit that is not there.
func refresh(ctx context.Context, conn *dbus.Conn, name string) error {
	unit, props, err := read(ctx, conn, name)
	if err != nil {
		return err
	}
	if stale, _ := props["NeedDaemonReload"].(bool); stale || unit.Load == "not-found" {
		if err := conn.ReloadContext(ctx); err != nil {
			return fmt.Errorf("make systemd read its unit files again: %v", err)
		}
		if unit, _, err = read(ctx, conn, name); err != nil {
			return err
		}
	}
	switch unit.Load {
	case "not-found":
		return fmt.Errorf("unit %s does not exist: is the package that brings it declared before it?", name)
	case "masked":
		return fmt.Errorf("unit %s is masked on this machine: `systemctl unmask %s` if that is not meant", name, name)
	}
	return forgive(ctx, conn, name, unit)
}

// forgive clears a unit's failure, where it has one.
func forgive(ctx context.Context, conn *dbus.Conn, name string, unit Unit) error {
	if unit.Active != "failed" {
		return nil
	}
	if err := conn.ResetFailedUnitContext(ctx, name); err != nil {
		return fmt.Errorf("clear the failure of %s: %v", name, err)
	}
	return nil
}

// Enable makes the unit start at boot. A unit that has nothing to say about
// that is left as it is.
func (s *Services) Enable(ctx context.Context, name string) error {
	return with(ctx, asking, func(ctx context.Context, conn *dbus.Conn) error {
		if err := refresh(ctx, conn, name); err != nil {
			return err
		}
		if _, _, err := conn.EnableUnitFilesContext(ctx, []string{name}, false, false); err != nil {
			return fmt.Errorf("enable %s: %v", name, err)
		}
		return reload(ctx, conn)
	})
}

// Disable keeps the unit from starting at boot.
func (s *Services) Disable(ctx context.Context, name string) error {
	return with(ctx, asking, func(ctx context.Context, conn *dbus.Conn) error {
		if _, err := conn.DisableUnitFilesContext(ctx, []string{name}, false); err != nil && !strings.Contains(err.Error(), "does not exist") {
			return fmt.Errorf("disable %s: %v", name, err)
		}
		return reload(ctx, conn)
	})
}

func reload(ctx context.Context, conn *dbus.Conn) error {
	if err := conn.ReloadContext(ctx); err != nil {
		return fmt.Errorf("make systemd read its unit files again: %v", err)
	}
	return nil
}
