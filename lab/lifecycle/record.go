package lifecycle

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"mesh/lab/machine"
	"mesh/lab/world"
)

// recordFormat is the version of the run record's file. History:
//
//	1  first
const recordFormat = 1

// Phase is where a scenario is in its life.
type Phase string

// The phases.
const (
	Raising    Phase = "raising"    // a lab process is at it, or was and is gone
	Raised     Phase = "raised"     // all steps done
	Partial    Phase = "partial"    // stopped on the way and kept on request
	Destroying Phase = "destroying" // being removed
	// Work says of both what for. What a cut leaves of them runs on (see
	// Held.Settle), or can be restored again or destroyed.
	Snapshotting Phase = "snapshotting"
	Restoring    Phase = "restoring"
)

// Remedy says what can be done about a scenario that was abandoned in a phase.
func (p Phase) Remedy() string {
	switch p {
	case Snapshotting:
		return "`lab reap` lets it run on"
	case Restoring:
		return "restoring again goes on, `lab reap` removes what it left, or turns off the one machine"
	}
	return "`lab reap` removes what it left"
}

// Record is what the store knows of one raised scenario: enough to remove all of
// it without anything else. It holds no saved value of a placement.
type Record struct {
	Format      int                      `json:"format"`
	Phase       Phase                    `json:"phase"`
	Process     world.Process            `json:"process"` // the lab process that changes the scenario, or changed it last
	World       world.Process            `json:"world"`   // zero until it was started
	Disks       DisksRecord              `json:"disks"`
	Accelerator machine.Accelerator      `json:"accelerator,omitempty"`
	Why         string                   `json:"why,omitempty"` // how the accelerator was chosen
	Since       time.Time                `json:"since"`         // UTC
	Machines    map[string]MachineRecord `json:"machines"`
	Steps       []StepRecord             `json:"steps"` // parallel to Plan.Steps
	Faults      []FaultRecord            `json:"faults,omitempty"`
	// Snapshots are the ids of those that the scenario comes of, the nearest first.
	Snapshots []string `json:"snapshots,omitempty"`
	Work      *Work    `json:"work,omitempty"` // what a process is at, beside raising and destroying
	Plan      Plan     `json:"plan"`
}

// Work is what is done to a raised scenario, written down before it is begun.
type Work struct {
	Snapshot string `json:"snapshot"` // that is taken or restored
	// Machine is the one that alone is restored, see Held.LeaveOff; zero: all are.
	Machine string `json:"machine,omitempty"`
	// Disks are the layers that machines are moved on to, by machine.
	Disks map[string]string `json:"disks,omitempty"`
	// Paused are the machines that are to stay so.
	Paused []string `json:"paused,omitempty"`
}

// MachineRecord is what happened to one machine.
type MachineRecord struct {
	Accelerator  machine.Accelerator `json:"accelerator"`
	Start        string              `json:"start"`            // StartWarm, StartCold, "restored"
	Warm         string              `json:"warm,omitempty"`   // digest of the warm image that it is to be cloned from, or was
	ReadySeconds float64             `json:"ready_seconds"`    // from its first step after the disk's to its being itself
	Off          bool                `json:"off,omitempty"`    // its power was cut and not given back
	Frozen       bool                `json:"frozen,omitempty"` // its clock was left as it was, when it was restored
}

// StepState is how far a step is.
type StepState string

// The states of a step; the zero value means that it was not begun.
const (
	Started StepState = "started"
	Done    StepState = "done"
	Failed  StepState = "failed"
)

// StepRecord is what happened to one step.
type StepRecord struct {
	ID      string    `json:"id"`
	State   StepState `json:"state,omitempty"`
	Seconds float64   `json:"seconds,omitempty"`
	Error   string    `json:"error,omitempty"`
}

// step gives the record of a step. It panics on a step that the plan does not have.
func (r *Record) step(id string) *StepRecord {
	i := slices.IndexFunc(r.Steps, func(s StepRecord) bool { return s.ID == id })
	return &r.Steps[i]
}

func newRecord(p Plan, self world.Process, now time.Time) Record {
	r := Record{
		Format: recordFormat, Phase: Raising, Process: self, Since: now.UTC().Truncate(time.Second),
		Machines: map[string]MachineRecord{}, Plan: p,
	}
	for _, s := range p.Steps {
		r.Steps = append(r.Steps, StepRecord{ID: s.ID})
	}
	return r
}

// recordName is the file's name in a scenario's directory.
const recordName = "record.json"

// readRecord reads a scenario's record. fs.ErrNotExist means that there is none.
func readRecord(dir string) (Record, error) {
	path := filepath.Join(dir, recordName)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, err
	}
	var r Record
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err == nil {
		err = r.check(dir)
	}
	if err != nil {
		return Record{}, &Error{
			What: "run record cannot be read", Where: path, Why: err.Error(),
			Next: "use the lab that wrote it; if it is damaged, end the domains mesh-" + filepath.Base(dir) +
				".*, delete their namespaces ml-*, and then delete " + dir,
			Code: codeFailed,
		}
	}
	return r, nil
}

// check refuses a record that this lab cannot act on: another format, another
// place, steps that are not the plan's.
func (r *Record) check(dir string) error {
	if r.Format != recordFormat {
		return fmt.Errorf("it has format %d, this lab knows %d", r.Format, recordFormat)
	}
	if r.Plan.Directory != dir || r.Plan.Name != filepath.Base(dir) {
		return fmt.Errorf("it is of scenario %q in %q", r.Plan.Name, r.Plan.Directory)
	}
	if !slices.EqualFunc(r.Plan.Steps, r.Steps, func(s Step, done StepRecord) bool { return s.ID == done.ID }) {
		return errors.New("its steps are not those of its plan")
	}
	if (r.Phase == Snapshotting || r.Phase == Restoring) && r.Work == nil {
		return fmt.Errorf("it is %s, but does not say what", r.Phase)
	}
	if r.Machines == nil {
		r.Machines = map[string]MachineRecord{}
	}
	return nil
}

// writeRecord replaces a scenario's record so that after a crash the old or the
// new one is there whole.
func writeRecord(dir string, r Record) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write run record: %w", err)
	}
	if err := replace(filepath.Join(dir, recordName), append(data, '\n')); err != nil {
		return fmt.Errorf("write run record: %w", err)
	}
	return nil
}

// replace writes a file durably: content, then name.
func replace(path string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes the names in a directory last.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
