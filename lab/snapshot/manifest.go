package snapshot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"time"

	strict "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"mesh/lab/lifecycle"
	"mesh/lab/machine"
)

// format is the version of the manifest. History:
//
//	1  first
//	2  the world's state tells what routers remember
const (
	format = 2
	oldest = 1 // that is read
)

// Manifest says everything about one snapshot. Files are named by slash-separated
// paths below the snapshot's directory, layers by their ids, images by digests.
type Manifest struct {
	Format      int       `json:"format"`
	ID          string    `json:"id"` // 32 hex digits, unlike any other snapshot's
	Scenario    string    `json:"scenario"`
	Name        string    `json:"name"`
	About       string    `json:"about,omitempty"`
	Taken       time.Time `json:"taken"`        // the lab machine's clock at the cut, UTC
	SkewSeconds float64   `json:"skew_seconds"` // at most so much lies between the first and the last machine's pause
	// Ancestors are the ids of the snapshots that this one comes of, the nearest
	// first; some may have been removed.
	Ancestors []string                `json:"ancestors,omitempty"`
	Platform  machine.Platform        `json:"platform"`
	Images    map[string]string       `json:"images"` // digests, by recipe
	Plan      lifecycle.Plan          `json:"plan"`   // portable; each machine's Layers begin with the one that this snapshot froze
	Steps     []lifecycle.StepRecord  `json:"steps"`  // what became of the plan's
	Machines  []Machine               `json:"machines"`
	Faults    []lifecycle.FaultRecord `json:"faults,omitempty"` // all, the world\'s too
	World     jsontext.Value          `json:"world_state"`      // as the world gave it
	Layers    []Layer                 `json:"layers"`           // all that the machines' disks consist of, above their images
	Files     []File                  `json:"files"`
}

// Machine is the state of one machine of the plan; they are in the plan's order.
type Machine struct {
	Name   string `json:"name"`
	Memory string `json:"memory,omitempty"` // file; empty: its power was off
	Paused bool   `json:"paused,omitempty"` // before the snapshot was taken, too
}

// Layer is a frozen layer.
type Layer struct {
	ID     string `json:"id"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// File is a file of the snapshot's own.
type File struct {
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Bytes is how much of the store is the snapshot's own: what its removal frees
// for certain. Layers are shared.
func (m Manifest) Bytes() (sum int64) {
	for _, f := range m.Files {
		sum += f.Bytes
	}
	return sum
}

// CheckFormat refuses a document that tells another format than those that are
// known, before it is read strictly by them. what it is begins the error.
func CheckFormat(what string, data []byte, oldest, known int) error {
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return fmt.Errorf("read %s: %v", what, err)
	}
	if oldest <= head.Format && head.Format <= known {
		return nil
	}
	newer := ""
	if head.Format > known {
		newer = ": it was written by a newer lab"
	}
	return fmt.Errorf("read %s: it has format %d, this lab knows %d%s", what, head.Format, known, newer)
}

// Parse reads a manifest. Unknown and repeated members, other formats, and what
// contradicts itself are refused; all contradictions are told at once.
func Parse(data []byte) (Manifest, error) {
	if err := CheckFormat("manifest", data, oldest, format); err != nil {
		return Manifest{}, err
	}
	var m Manifest
	if err := strict.Unmarshal(data, &m, strict.RejectUnknownMembers(true)); err != nil {
		return Manifest{}, fmt.Errorf("read manifest: %v", err)
	}
	return m, m.check()
}

// Marshal writes a manifest; equal manifests give equal bytes.
func (m Manifest) Marshal() ([]byte, error) {
	m.Format = format
	if err := m.check(); err != nil {
		return nil, err
	}
	data, err := strict.Marshal(m, jsontext.WithIndent("  "), strict.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("write manifest: %v", err)
	}
	return append(data, '\n'), nil
}

var (
	idForm     = regexp.MustCompile(`^[0-9a-f]{32}$`)
	digestForm = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// check finds what contradicts itself, or would lead out of the store.
func (m Manifest) check() error {
	var problems []error
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	for field, name := range map[string]string{"scenario": m.Scenario, "name": m.Name} {
		if err := lifecycle.CheckName(name); err != nil {
			wrong("%s: %q is no name", field, name)
		}
	}
	for _, id := range append([]string{m.ID}, m.Ancestors...) {
		if !idForm.MatchString(id) {
			wrong("%q is no id of a snapshot", id)
		}
	}
	if m.Taken.IsZero() || m.SkewSeconds < 0 {
		wrong("taken: at %s, with a skew of %g s", m.Taken.Format(time.RFC3339), m.SkewSeconds)
	}
	if m.World.Kind() != '{' {
		wrong("world_state: %q is no object", m.World)
	}
	m.checkPlan(wrong)
	m.checkFiles(wrong)
	m.checkLayers(wrong)
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("the manifest of a snapshot is wrong: %w", err)
	}
	return nil
}

func (m Manifest) checkPlan(wrong func(string, ...any)) {
	if !portable(m.Plan) {
		wrong("plan: it names paths, or belongs to a run")
	}
	if len(m.Plan.Machines) == 0 || len(m.Plan.World.Underlay.Machines) != len(m.Plan.Machines) {
		wrong("plan: %d machines, %d places for them", len(m.Plan.Machines), len(m.Plan.World.Underlay.Machines))
		return
	}
	for i, pm := range m.Plan.Machines {
		if err := lifecycle.CheckName(pm.Name); err != nil {
			wrong("plan: %q is no machine's name", pm.Name)
		}
		if len(m.Plan.World.Underlay.Machines[i].NICs) != len(pm.Spec.NICs) {
			wrong("plan: machine %s: its NICs are not those of its place", pm.Name)
		}
		if !digestForm.MatchString(m.Images[pm.Image]) {
			wrong("images: no digest of %q, which machine %s stands on", pm.Image, pm.Name)
		}
	}
	if !slices.EqualFunc(m.Plan.Machines, m.Machines, func(p lifecycle.Machine, s Machine) bool { return p.Name == s.Name }) {
		wrong("machines: they are not the plan's")
	}
	if !slices.EqualFunc(m.Plan.Steps, m.Steps, func(p lifecycle.Step, s lifecycle.StepRecord) bool { return p.ID == s.ID }) {
		wrong("steps: they are not the plan's")
	}
}

// portable tells whether a plan is what Plan.Portable makes.
func portable(p lifecycle.Plan) bool {
	return equal(p, p.Portable())
}

// equal compares plans of which one may have been in a file.
func equal(a, b lifecycle.Plan) bool {
	x, errX := strict.Marshal(a, strict.Deterministic(true))
	y, errY := strict.Marshal(b, strict.Deterministic(true))
	return errors.Join(errX, errY) == nil && bytes.Equal(x, y)
}

func (m Manifest) checkFiles(wrong func(string, ...any)) {
	known := map[string]bool{}
	for _, f := range m.Files {
		switch {
		case !fs.ValidPath(f.Path) || f.Path == "." || f.Path == manifestName:
			wrong("files: %q is no path below the snapshot", f.Path)
		case known[f.Path]:
			wrong("files: %s stands twice", f.Path)
		case f.Bytes < 0 || !digestForm.MatchString(f.SHA256):
			wrong("files: %s: %d bytes, digest %q", f.Path, f.Bytes, f.SHA256)
		}
		known[f.Path] = true
	}
	for _, one := range m.Machines {
		if one.Memory != "" && !known[one.Memory] {
			wrong("machines: %s: its memory %q is none of the files", one.Name, one.Memory)
		}
	}
}

func (m Manifest) checkLayers(wrong func(string, ...any)) {
	known := map[string]bool{}
	for _, l := range m.Layers {
		switch {
		case !idForm.MatchString(l.ID):
			wrong("layers: %q is no id", l.ID)
		case known[l.ID]:
			wrong("layers: %s stands twice", l.ID)
		case l.Bytes < 0 || !digestForm.MatchString(l.SHA256):
			wrong("layers: %s: %d bytes, digest %q", l.ID, l.Bytes, l.SHA256)
		}
		known[l.ID] = true
	}
	for _, pm := range m.Plan.Machines {
		if len(pm.Layers) == 0 {
			wrong("plan: machine %s has no layer", pm.Name)
		}
		for _, id := range pm.Layers {
			if !known[id] {
				wrong("layers: %s, of machine %s, is none of them", id, pm.Name)
			}
		}
	}
}
