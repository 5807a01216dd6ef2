package system

import (
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// NotifyReady tells the service manager that this program has started. Nobody
// who listens is no error.
func NotifyReady() error { return notify(daemon.SdNotifyReady) }

// NotifyDelay asks the service manager to wait for NotifyReady as long as this.
// It has to come before the time is up that the unit gives.
// https://www.freedesktop.org/software/systemd/man/sd_notify.html#EXTEND_TIMEOUT_USEC=%E2%80%A6
func NotifyDelay(d time.Duration) error {
	return notify(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", d.Microseconds()))
}

func notify(state string) error {
	if _, err := daemon.SdNotify(false, state); err != nil {
		return fmt.Errorf("tell the service manager %s: %w", state, err)
	}
	return nil
}
