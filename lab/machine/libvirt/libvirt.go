// Package libvirt is the hypervisor of the lab: machine.Hypervisor over
// libvirt's RPC, the daemon behind it (started and ended by the lab where none
// runs), and the proof of how guests can be run on this machine.
//
// It makes transient QEMU domains only, and touches no network, storage pool or
// domain that does not carry the lab's mark in its metadata, except to name it
// in an error. Only cmd/lab and lab/verify import it.
package libvirt

import (
	"context"
	"crypto/rand"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"strings"

	rpc "github.com/digitalocean/go-libvirt"

	"mesh/lab/machine"
)

// Hypervisor is QEMU behind the local libvirt daemon. Each call has a
// connection of its own, so that a daemon that was started anew is no matter
// and the end of a context ends the call. Safe for concurrent use.
type Hypervisor struct {
	sockets []string
}

var _ machine.Hypervisor = (*Hypervisor)(nil)

// New returns the hypervisor behind the daemon's usual sockets. It does not
// connect.
func New() *Hypervisor { return &Hypervisor{sockets: sockets} }

// Create is machine.Hypervisor's. An error of QEMU itself is part of the
// error's text.
func (h *Hypervisor) Create(ctx context.Context, spec machine.Spec) error {
	chain, err := checkFiles(spec)
	if err != nil {
		return fmt.Errorf("create machine %s: %w", spec.Name, err)
	}
	err = h.call(ctx, "create machine "+spec.Name, func(c *rpc.Libvirt) error {
		host, err := probe(c, spec.Accelerator, newest)
		if err != nil {
			return err
		}
		host.backing, host.genid = chain, newUUID()
		text, err := domainXML(spec, host)
		if err != nil {
			return err
		}
		_, err = c.DomainCreateXML(text, rpc.DomainStartPaused|rpc.DomainStartValidate)
		return err
	})
	if err == nil {
		return nil
	}
	h.sweep(ctx, spec)
	return explained(err, logFile(spec.Name), stillborn(ctx, spec.Name))
}

// checkFiles reports what is wrong with a spec and its files, and lists what its
// disk stands on.
func checkFiles(spec machine.Spec) (chain []string, err error) {
	if err := spec.Check(); err != nil {
		return nil, fmt.Errorf("its spec is wrong: %w", err)
	}
	for _, file := range []string{spec.Disk, spec.Kernel, spec.Initrd} {
		if file == "" {
			continue
		}
		if _, err := os.Stat(file); err != nil {
			return nil, err
		}
	}
	return backingChain(spec.Disk)
}

// newUUID is a random one: RFC 9562, version 4.
func newUUID() string {
	var u rpc.UUID
	_, _ = rand.Read(u[:]) // never fails
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return text(u)
}

// explained adds to the error of a creation what QEMU said, where libvirt did
// not hear it, and where the command is that QEMU was started with.
func explained(err error, path string, l processLog) error {
	if l.reason != "failed" || l.command == "" {
		return err // it never came to starting QEMU
	}
	if said := strings.TrimSpace(l.stderr); !strings.Contains(err.Error(), lastLine(said)) {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return fmt.Errorf("%w (%s holds the command that QEMU was started with)", err, path)
}

func lastLine(text string) string { return text[strings.LastIndexByte(text, '\n')+1:] }

// sweep removes what a failed creation may have left: the socket, which
// libvirt makes before it starts QEMU, and the domain itself if the caller gave
// up while it was being made.
func (h *Hypervisor) sweep(ctx context.Context, spec machine.Spec) {
	if ctx.Err() != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepTime)
		defer cancel()
		_ = h.call(ctx, "", func(c *rpc.Libvirt) error {
			d, err := c.DomainLookupByName(spec.Name)
			if err != nil || text(d.UUID) != spec.UUID {
				return nil
			}
			return c.DomainDestroy(d)
		})
	}
	if !h.present(ctx, spec.Name) {
		_ = os.Remove(spec.ConsoleSock)
	}
}

// present tells whether a domain has that name; when in doubt it has.
func (h *Hypervisor) present(ctx context.Context, name string) bool {
	_, err := h.State(ctx, name)
	return !errors.Is(err, machine.ErrAbsent)
}

// Resume is machine.Hypervisor's.
func (h *Hypervisor) Resume(ctx context.Context, name string) error {
	return h.with(ctx, "resume machine "+name, name, func(c *rpc.Libvirt, d rpc.Domain) error {
		state, _, err := c.DomainGetState(d, 0)
		if err != nil || rpc.DomainState(state) == rpc.DomainRunning {
			return err
		}
		return c.DomainResume(d)
	})
}

// Destroy is machine.Hypervisor's.
func (h *Hypervisor) Destroy(ctx context.Context, name string) error {
	err := h.with(ctx, "destroy machine "+name, name, func(c *rpc.Libvirt, d rpc.Domain) error {
		err := c.DomainDestroy(d)
		if is(err, rpc.ErrOperationInvalid) { // it ended by itself in between
			return nil
		}
		return err
	})
	if errors.Is(err, machine.ErrAbsent) {
		return nil
	}
	return err
}

// State is machine.Hypervisor's.
func (h *Hypervisor) State(ctx context.Context, name string) (machine.State, error) {
	var state int32
	err := h.with(ctx, "ask the state of machine "+name, name, func(c *rpc.Libvirt, d rpc.Domain) (err error) {
		state, _, err = c.DomainGetState(d, 0)
		return err
	})
	if err != nil {
		return "", err
	}
	switch rpc.DomainState(state) {
	case rpc.DomainRunning, rpc.DomainBlocked:
		return machine.Running, nil
	case rpc.DomainPaused, rpc.DomainPmsuspended:
		return machine.Paused, nil
	}
	return machine.Stopped, nil
}

// List is machine.Hypervisor's.
func (h *Hypervisor) List(ctx context.Context, run string) ([]string, error) {
	var names []string
	err := h.call(ctx, "list machines", func(c *rpc.Libvirt) error {
		domains, _, err := c.ConnectListAllDomains(1, 0)
		if err != nil {
			return err
		}
		for _, d := range domains {
			got, err := c.DomainGetMetadata(d, int32(rpc.DomainMetadataElement), rpc.OptString{markSpace}, 0)
			if is(err, rpc.ErrNoDomainMetadata) || is(err, rpc.ErrNoDomain) {
				continue // not ours, or gone in between
			}
			if err != nil {
				return fmt.Errorf("domain %s: %w", d.Name, err)
			}
			var m mark
			if err := xml.Unmarshal([]byte(got), &m); err != nil {
				return fmt.Errorf("domain %s: its mark is unreadable: %w", d.Name, err)
			}
			if run == "" || m.Run == run {
				names = append(names, d.Name)
			}
		}
		return nil
	})
	return names, err
}

// Diagnosis is machine.Hypervisor's.
func (h *Hypervisor) Diagnosis(_ context.Context, name string) (string, error) {
	l, err := readLog(name)
	if err != nil {
		return "", fmt.Errorf("read what the process of machine %s said: %w", name, err)
	}
	return l.stderr, nil
}

// Forget is machine.Hypervisor's.
func (h *Hypervisor) Forget(ctx context.Context, name string) error {
	if h.present(ctx, name) {
		return fmt.Errorf("forget machine %s: it still exists, or the daemon does not answer; destroy it first", name)
	}
	if err := removeLogs(name); err != nil {
		return fmt.Errorf("forget machine %s: %w", name, err)
	}
	return nil
}
