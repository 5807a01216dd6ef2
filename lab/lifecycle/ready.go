package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"mesh/lab/guest"
	"mesh/lab/underlay"
)

// identityScript prints what a machine thinks it is and where it stands.
const identityScript = `cat /etc/machine-id /proc/sys/kernel/hostname && ip -json address show`

// ready waits until a machine's agent answers and the machine is who and where
// the plan says.
func (l *Lab) ready(ctx context.Context, p Plan, m Machine) error {
	if err := l.cfg.Guest.Wait(ctx, m.Spec.Name); err != nil {
		return fmt.Errorf("wait for machine %s: %w", m.Name, err)
	}
	at, err := place(p, m.Name)
	if err != nil {
		return err
	}
	// Each question costs an emulated machine a third of a second of its boot.
	again := time.NewTicker(4 * l.cfg.Poll)
	defer again.Stop()
	for {
		missing, err := l.missing(ctx, m, at)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil && len(missing) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return &Error{
				What: "machine " + m.Name + " is not what it is declared to be", Where: "machine " + m.Name,
				Why: strings.Join(missing, "\n"), Code: codeFailed, Cause: context.Cause(ctx),
			}
		case <-again.C:
		}
	}
}

func place(p Plan, name string) (underlay.Machine, error) {
	for _, m := range p.World.Underlay.Machines {
		if m.Name == name {
			return m, nil
		}
	}
	return underlay.Machine{}, fmt.Errorf("the plan has no place for machine %s", name)
}

// missing asks a machine and lists what it lacks; a line each.
func (l *Lab) missing(ctx context.Context, m Machine, at underlay.Machine) ([]string, error) {
	out, err := l.cfg.Guest.Exec(ctx, m.Spec.Name, guest.Shell(identityScript))
	if err != nil {
		return nil, fmt.Errorf("ask machine %s who it is: %w", m.Name, err)
	}
	if out.ExitCode != 0 {
		return []string{fmt.Sprintf("it cannot tell: exit code %d: %s", out.ExitCode, out.Stderr)}, nil
	}
	seen, err := parseIdentity(string(out.Stdout))
	if err != nil {
		return nil, fmt.Errorf("machine %s: %w", m.Name, err)
	}
	return seen.lacks(m, at), nil
}

// seenIdentity is what a machine says of itself.
type seenIdentity struct {
	machineID, hostname string
	addresses           map[string][]string // by MAC, with prefix length, usable ones
}

func parseIdentity(text string) (seenIdentity, error) {
	id, rest, ok := strings.Cut(text, "\n")
	host, doc, ok2 := strings.Cut(rest, "\n")
	if !ok || !ok2 {
		return seenIdentity{}, errors.New("its answer about itself is cut short")
	}
	var links []struct {
		MAC       string `json:"address"`
		Addresses []struct {
			Local     string `json:"local"`
			Length    int    `json:"prefixlen"`
			Tentative bool   `json:"tentative"`
			Failed    bool   `json:"dadfailed"`
		} `json:"addr_info"`
	}
	if err := json.Unmarshal([]byte(doc), &links); err != nil {
		return seenIdentity{}, fmt.Errorf("read its addresses: %v", err)
	}
	seen := seenIdentity{machineID: id, hostname: host, addresses: map[string][]string{}}
	for _, link := range links {
		for _, a := range link.Addresses {
			if !a.Tentative && !a.Failed {
				seen.addresses[link.MAC] = append(seen.addresses[link.MAC], fmt.Sprintf("%s/%d", a.Local, a.Length))
			}
		}
	}
	return seen, nil
}

// lacks compares with what is declared.
func (s seenIdentity) lacks(m Machine, at underlay.Machine) (lines []string) {
	if s.machineID != m.MachineID {
		lines = append(lines, fmt.Sprintf("its machine id is %q, not %s", s.machineID, m.MachineID))
	}
	if s.hostname != m.Name {
		lines = append(lines, fmt.Sprintf("its host name is %q, not %s", s.hostname, m.Name))
	}
	for _, nic := range at.NICs {
		has := s.addresses[nic.MAC]
		for _, want := range []interface {
			IsValid() bool
			String() string
		}{nic.IPv4, nic.IPv6} {
			if want.IsValid() && !slices.Contains(has, want.String()) {
				lines = append(lines, fmt.Sprintf("address %s is not on its NIC in segment %s (%s), which has %q",
					want, nic.Segment, nic.MAC, has))
			}
		}
	}
	return lines
}
