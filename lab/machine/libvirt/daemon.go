package libvirt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	rpc "github.com/digitalocean/go-libvirt"
)

// startTime bounds the start of the daemons up to the first answer: one that has
// never seen this QEMU asks it first what it can do, which takes half a minute on a
// busy machine whose KVM is none. stopTime bounds its end.
const (
	startTime = 90 * time.Second
	stopTime  = 15 * time.Second
)

// Daemon is the libvirt daemon of this machine: whichever answers, or else one
// that the lab starts and owns, with virtlogd beside it for the consoles.
//
// A daemon is the lab's own if it holds the lock on the pid file that the lab
// had it make; only such a one is ever ended. All labs of a machine must use
// the same runtime directory, since they share the daemon. Not safe for
// concurrent use; any number of processes may hold one each.
type Daemon struct {
	dir   string // pid files, locks and logs
	keep  string // program whose command "keep" is companion.Keep; empty: there is none
	log   *slog.Logger
	lease *os.File // locked, shared, while this process needs the daemon; nil: it does not
}

// NewDaemon returns the daemon as seen from runtimeDir, an absolute path. A nil
// log discards.
func NewDaemon(runtimeDir string, log *slog.Logger) *Daemon {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Daemon{dir: filepath.Join(runtimeDir, "libvirt"), log: log}
}

// NewKeptDaemon is NewDaemon of one that, where the lab starts it, the command
// `exe keep PROGRAM ARGUMENT...` starts and keeps as companion.Keep does: machines
// then end at once, and not when an init of a container gets to it. That process
// ends by itself with the daemon and the last machine.
func NewKeptDaemon(runtimeDir, exe string, log *slog.Logger) *Daemon {
	d := NewDaemon(runtimeDir, log)
	d.keep = exe
	return d
}

// service is one of the two programs.
type service struct {
	program string
	sockets []string // where it listens
	packs   string   // Debian packages that have it
}

var (
	logService  = service{"virtlogd", []string{"/run/libvirt/virtlogd-sock"}, "libvirt-daemon-system libvirt-daemon-driver-qemu"}
	mainService = service{"libvirtd", sockets, "libvirt-daemon-system libvirt-daemon-driver-qemu"}
)

// missing is an error for want of something on the machine.
type missing struct{ error }

// ExitCode is that of a missing prerequisite.
func (missing) ExitCode() int { return 4 }

func (m missing) Unwrap() error { return m.error }

// Ensure returns when a daemon answers, having started one where none listened
// (also none that a service manager starts on first contact). Until Release, or
// the end of this process, no other lab ends it.
func (d *Daemon) Ensure(ctx context.Context) error {
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		return fmt.Errorf("ensure a libvirt daemon: %w", err)
	}
	unlock, err := d.lock(ctx)
	if err != nil {
		return fmt.Errorf("ensure a libvirt daemon: %w", err)
	}
	defer unlock()
	if d.lease == nil {
		lease, err := shareLock(d.path("users"))
		if err != nil {
			return fmt.Errorf("ensure a libvirt daemon: %w", err)
		}
		d.lease = lease
	}
	if err := d.startAll(ctx); err != nil {
		return fmt.Errorf("ensure a libvirt daemon: %w", err)
	}
	return nil
}

// startAll starts what does not listen, and again if it ends at once: an
// earlier daemon that is still ending holds locks that a new one needs.
func (d *Daemon) startAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		err := d.startOnce(ctx)
		var absent missing
		if err == nil || errors.As(err, &absent) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w; its log, if the lab started it: %s", err, d.path(mainService.program+".log"))
		}
	}
}

func (d *Daemon) startOnce(ctx context.Context) error {
	for _, s := range []service{logService, mainService} {
		conn, err := dial(ctx, s.sockets)
		if err == nil {
			_ = conn.Close()
			continue
		}
		if err := d.start(ctx, s); err != nil {
			return fmt.Errorf("start %s: %w", s.program, err)
		}
	}
	_, err := New().Version(ctx)
	return err
}

// Release gives up this process's need of the daemon, and ends the one that the
// lab owns if no other lab needs it and no domain, whosever, exists on it.
// Idempotent; nothing to end is success.
func (d *Daemon) Release(ctx context.Context) error {
	if _, err := os.Stat(d.dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	unlock, err := d.lock(ctx)
	if err != nil {
		return fmt.Errorf("release the libvirt daemon: %w", err)
	}
	defer unlock()
	if d.lease != nil {
		_ = d.lease.Close() // and with it its lock
		d.lease = nil
	}
	alone, err := tryLock(d.path("users"))
	if err != nil || alone == nil {
		return err
	}
	defer alone.Close()
	used, err := d.used(ctx)
	if err != nil {
		return fmt.Errorf("release the libvirt daemon: %w", err)
	}
	if len(used) > 0 {
		d.log.Info("libvirt daemon kept", "domains", strings.Join(used, " "))
		return nil
	}
	for _, s := range []service{mainService, logService} {
		if err := d.stop(ctx, s); err != nil {
			return fmt.Errorf("end %s: %w", s.program, err)
		}
	}
	if err := d.closeKVM(); err != nil {
		return fmt.Errorf("put back the permissions of %s: %w", kvmDev, err)
	}
	return nil
}

// used names the domains that need a program that the lab owns.
func (d *Daemon) used(ctx context.Context) ([]string, error) {
	owned := false
	for _, s := range []service{mainService, logService} {
		pid, err := lockHolder(d.path(s.program + ".pid"))
		if err != nil {
			return nil, err
		}
		owned = owned || pid != 0
	}
	if !owned {
		return nil, nil
	}
	domains, err := New().domains(ctx)
	if errors.Is(err, errNoDaemon) {
		return nil, nil
	}
	return domains, err
}

// stop ends the lab's own instance of s, if there is one, and removes what it
// leaves in the runtime directory.
func (d *Daemon) stop(ctx context.Context, s service) error {
	pidFile := d.path(s.program + ".pid")
	pid, err := terminate(ctx, pidFile, stopTime)
	if err != nil {
		return err
	}
	if pid != 0 {
		d.log.Info("ended", "program", s.program, "pid", pid)
	}
	for _, file := range []string{pidFile, d.path(s.program + ".log")} {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Own tells whether the daemon that answers was started by a lab.
func (d *Daemon) Own() bool {
	pid, err := lockHolder(d.path(mainService.program + ".pid"))
	return err == nil && pid != 0
}

func (d *Daemon) path(name string) string { return filepath.Join(d.dir, name) }

// lock keeps two labs from starting or ending a daemon at once.
func (d *Daemon) lock(ctx context.Context) (unlock func(), err error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		f, err := tryLock(d.path("lock"))
		if err != nil {
			return nil, err
		}
		if f != nil {
			return func() { _ = f.Close() }, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another lab that starts or ends it: %w", context.Cause(ctx))
		}
	}
}

// Version is the daemon's and QEMU's, for people.
func (h *Hypervisor) Version(ctx context.Context) (string, error) {
	var daemon, qemu uint64
	err := h.call(ctx, "ask libvirt's version", func(c *rpc.Libvirt) (err error) {
		if daemon, err = c.ConnectGetLibVersion(); err != nil {
			return err
		}
		qemu, err = c.ConnectGetVersion()
		return err
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("libvirt %s, QEMU %s", dotted(daemon), dotted(qemu)), nil
}

// dotted writes libvirt's form of a version: a million majors, a thousand minors.
func dotted(v uint64) string {
	return fmt.Sprintf("%d.%d.%d", v/1_000_000, v/1000%1000, v%1000)
}

// domains names every domain, whosever, running or not.
func (h *Hypervisor) domains(ctx context.Context) ([]string, error) {
	var names []string
	err := h.call(ctx, "list domains", func(c *rpc.Libvirt) error {
		all, _, err := c.ConnectListAllDomains(1, 0)
		for _, d := range all {
			names = append(names, d.Name)
		}
		return err
	})
	return names, err
}
