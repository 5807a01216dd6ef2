package lifecycletest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"strings"

	"mesh/lab/guest"
	"mesh/lab/volatile"
)

// What faults leave in a guest's memory, by the beginning of the key.
const (
	heldMemory = "fault memory "
	heldClock  = "fault clock "
	heldDrift  = "fault drift"
)

// fillerPath is what fills a disk.
func fillerPath(fault string) string { return "/.mesh-lab-fault-" + fault }

// fault does what the lab's script for faults does inside a machine: WHAT NAME
// MUCH. It changes d, which the caller keeps.
func (g guests) fault(d *domain, what, name, much string) (out guest.Result) {
	refuse := func(format string, args ...any) guest.Result {
		return guest.Result{ExitCode: 1, Stderr: fmt.Appendf(nil, format, args...)}
	}
	n, err := strconv.ParseInt(much, 10, 64)
	if err != nil {
		return refuse("%v", err)
	}
	switch what {
	case "fill":
		err = writeDisk(*d, fillerPath(name), []byte(much))
	case "drain":
		err = removeDisk(*d, fillerPath(name))
	case "hold":
		d.Held[heldMemory+name] = much
	case "let-go":
		delete(d.Held, heldMemory+name)
	case "step", "step-again":
		d.Held[heldClock+name] = much
	case "step-back":
		delete(d.Held, heldClock+name)
	case "drift":
		delete(d.Held, heldDrift)
		if n != 0 {
			d.Held[heldDrift] = much
		}
	default:
		return refuse("unknown: %s", what)
	}
	if err != nil {
		return refuse("%v", err)
	}
	return out
}

type diskFaults struct{ *Fake }

// SetFault keeps the fault of a disk.
func (f diskFaults) SetFault(ctx context.Context, _, disk string, fault volatile.Fault) error {
	return f.change(ctx, "fault of disk "+disk, func() error {
		if err := fault.Check(); err != nil {
			return err
		}
		if fault.Flush != "" {
			return errors.New("its machine would never flush again")
		}
		name := filepath.Base(disk)
		if fault == (volatile.Fault{}) {
			f.drop("disk-fault", name)
			return nil
		}
		return f.put("disk-fault", name, fault)
	})
}

// failing refuses what opens or flushes a disk while it, or one that it stands on,
// is made to fail.
func (f *Fake) failing(disk string) error {
	for {
		if f.has("disk-fault", filepath.Base(disk)) {
			return fmt.Errorf("%s: input/output error", disk)
		}
		base := Below(disk)
		if base == "" {
			return nil
		}
		disk = filepath.Join(filepath.Dir(disk), base)
	}
}

// Conditions tells everything of machines and worlds that a fault can change, a
// line each, sorted.
func (f *Fake) Conditions() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var lines []string
	for _, name := range f.names("domain") {
		var d domain
		if err := f.get("domain", name, &d); err != nil {
			panic(err)
		}
		files := []string{}
		for path := range readDisk(d.Spec.Disk) {
			if strings.HasPrefix(path, fillerPath("")) {
				files = append(files, path)
			}
		}
		maps.DeleteFunc(d.Held, func(key, _ string) bool { return !strings.HasPrefix(key, "fault ") })
		lines = append(lines, fmt.Sprintf("machine %s: %s, detached %v, pulled %v, throttle %+v, held %v, filled by %v",
			name, d.State, d.Detached, d.Pulled, d.Throttle, d.Held, files))
	}
	for _, name := range f.names("namespace") {
		var s outsideState
		if err := f.get("namespace", name, &s); err != nil {
			panic(err)
		}
		var state struct {
			Faults []json.RawMessage `json:"faults"`
		}
		if len(s.State) > 0 {
			if err := json.Unmarshal(s.State, &state); err != nil {
				panic(err)
			}
		}
		lines = append(lines, fmt.Sprintf("world %s: faults %s", name, state.Faults))
	}
	for _, name := range f.names("disk-fault") {
		lines = append(lines, "disk "+name+" fails")
	}
	return strings.Join(lines, "\n")
}
