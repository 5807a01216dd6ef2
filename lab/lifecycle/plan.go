package lifecycle

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"mesh/lab/images"
	"mesh/lab/machine"
	"mesh/lab/scenario"
	"mesh/lab/underlay"
	"mesh/lab/world"
)

// Plan is everything that one raise does, in order. It holds no secret and no
// clock; two plans from equal arguments are equal.
type Plan struct {
	Name        string       `json:"name"`     // raised as
	Scenario    string       `json:"scenario"` // the document's own name
	Source      string       `json:"source"`   // where the document came from, as the operator said it
	Document    string       `json:"document"` // the document's name in messages
	Run         string       `json:"run"`
	Accelerator string       `json:"accelerator"` // Auto, "kvm" or "tcg"
	Start       string       `json:"start"`       // StartWarm, where it can be done, or StartCold
	MemoryBytes int64        `json:"memory_bytes"`
	DiskBytes   int64        `json:"disk_bytes"`
	Directory   string       `json:"directory"` // logs, the run record
	Runtime     string       `json:"runtime"`   // sockets
	SSH         SSH          `json:"ssh"`
	Packages    string       `json:"packages,omitempty"` // directory of .debs offered as repository "mesh"
	World       world.Config `json:"world"`
	Machines    []Machine    `json:"machines"`
	Steps       []Step       `json:"steps"`
	Objects     []Object     `json:"objects"` // what the lab machine will hold and lose again
}

// Auto lets the raise find out which accelerator works.
const Auto = "auto"

// How a machine is started.
const (
	StartWarm = "warm" // cloned from a warm image
	StartCold = "cold" // booted
)

// Machine is one machine of a plan. Its Spec's accelerator is chosen by the raise.
type Machine struct {
	Name      string       `json:"name"`
	Image     string       `json:"image"`
	Content   string       `json:"content"` // the image's: images.Image.Content
	Boot      string       `json:"boot"`    // the image's own kernel parameters
	Base      string       `json:"base"`    // the image's disk
	MachineID string       `json:"machine_id"`
	Spec      machine.Spec `json:"spec"`
	// Layers are the frozen layers under the disk, the nearest first; below the
	// last is Base. See Lab.Layer.
	Layers []string `json:"layers,omitempty"`
}

// Kind is what a step does.
type Kind string

// The kinds of steps.
const (
	StepDaemon     Kind = "daemon"     // a hypervisor's daemon answers, and the accelerator is known
	StepRepository Kind = "repository" // .debs become a repository
	StepKeys       Kind = "keys"       // SSH keys of the scenario and its machines
	StepWarm       Kind = "warm"       // a warm image is there, or it is known that its machines boot
	StepDisk       Kind = "disk"       // a machine's disk
	StepDisks      Kind = "disks"      // disks lose what is not flushed, or it is known that they do not
	StepWorld      Kind = "world"      // the outside
	StepMachine    Kind = "machine"    // a machine stands, paused
	StepJoin       Kind = "join"       // its NICs are joined to their segments
	StepBoot       Kind = "boot"       // it runs, answers, and is who and where it is declared to be
	StepPlace      Kind = "place"      // something is placed on it
)

// Step is one step of a plan.
type Step struct {
	ID      string     `json:"id"` // "boot:one"
	Kind    Kind       `json:"kind"`
	Machine string     `json:"machine,omitempty"`
	About   string     `json:"about"` // for people
	After   []string   `json:"after"` // ids of the steps, all earlier in the plan, that must be done before
	Place   *Placement `json:"place,omitempty"`
}

// Placement is scenario.Step as written in records and plans.
type Placement struct {
	Package string `json:"package,omitempty"`
	File    string `json:"file,omitempty"`
	To      string `json:"to,omitempty"`
	Run     string `json:"run,omitempty"`
	Input   string `json:"input,omitempty"`
	Save    string `json:"save,omitempty"`
	Line    int    `json:"line"`
}

// Object is something on the lab machine.
type Object struct {
	Kind string `json:"kind"` // domain, disk, mount, namespace, link, directory
	Name string `json:"name"`
}

// Options are what an operator chooses and what the store knows.
type Options struct {
	Name        string // zero: the scenario's own
	Source      string
	Run         string                  // 8 hex digits, fresh for each raise
	Accelerator string                  // zero: Auto; "kvm" refuses to raise where KVM does not work
	Images      map[string]images.Image // by recipe name; must hold each that the scenario uses
	Directory   string                  // absolute
	Layers      string                  // absolute; holds the disks of all scenarios
	Runtime     string                  // absolute and short
	Packages    string                  // zero: no repository "mesh"
	NoPlace     bool                    // leave out the scenario's placement
	Cold        bool                    // boot every machine
}

// What a machine costs the lab machine beside its memory: QEMU itself with its
// translation cache, and room for what it writes.
const (
	memoryOverhead = 192 << 20
	diskRoom       = 1 << 30
)

// maxSocket is what sockaddr_un holds, less the final NUL: unix(7).
const maxSocket = 107

// CheckName tells why a scenario cannot be raised under a name. Names have no
// dot, so that the dot in a domain's name keeps scenario and machine apart.
func CheckName(name string) error {
	if err := scenario.CheckName(name); err != nil {
		return &Error{What: "no scenario and no snapshot can have that name", Why: err.Error(), Code: codeUsage}
	}
	return nil
}

// NewPlan says what raising s does. u must be the underlay of s for o.Run. All
// problems are reported at once, as one error with exit code 2.
func NewPlan(s *scenario.Scenario, u underlay.Underlay, o Options) (Plan, error) {
	p := Plan{
		Name: o.Name, Scenario: s.Name, Source: o.Source, Document: s.File, Run: o.Run, Accelerator: o.Accelerator,
		Directory: o.Directory, Runtime: o.Runtime, Packages: o.Packages, SSH: sshFiles(o.Directory), Start: StartWarm,
	}
	if o.Cold {
		p.Start = StartCold
	}
	if p.Name == "" {
		p.Name = s.Name
	}
	if p.Accelerator == "" {
		p.Accelerator = Auto
	}
	repositories := map[string]string{}
	if o.Packages != "" {
		repositories[offered] = repositoryOf(p, offered, o.Images)
	}
	for i, m := range s.Machines {
		image := o.Images[m.Image]
		repositories[m.Image] = image.Repository
		p.Machines = append(p.Machines, newMachine(p, m, u.Machines[i], image, o.Layers))
		p.MemoryBytes += m.MemoryBytes + memoryOverhead
		p.DiskBytes += diskRoom
	}
	p.World = world.Config{Underlay: u, Repositories: repositories}
	p.World.Control, p.World.Log = worldFiles(p)
	p.Steps = steps(p, s, o.NoPlace)
	p.Objects = objects(p)
	return p, p.check()
}

func newMachine(p Plan, m scenario.Machine, at underlay.Machine, image images.Image, layers string) Machine {
	id := identity(p.Run, "machine-id", m.Name)
	spec := machine.Spec{
		Name: DomainName(p.Name, m.Name), UUID: uuid(p.Run, m.Name), Run: p.Run,
		MemoryBytes: m.MemoryBytes, CPUs: m.CPUs, Display: m.Display,
		Disk:   layerPath(layers, identity(p.Run, "disk", m.Name)),
		Kernel: image.Kernel, Initrd: image.Initrd,
		Cmdline: strings.TrimSpace(image.Cmdline +
			" systemd.machine_id=" + id + " systemd.hostname=" + m.Name),
	}
	spec.ConsoleLog, spec.ConsoleSock = consoleFiles(p, m.Name)
	for _, nic := range at.NICs {
		spec.NICs = append(spec.NICs, machine.NIC{MAC: nic.MAC, Tap: nic.Tap})
	}
	return Machine{
		Name: m.Name, Image: m.Image, Content: image.Content, Boot: image.Cmdline, Base: image.Disk,
		MachineID: id, Spec: spec,
	}
}

// DomainName is what the hypervisor knows a machine by.
func DomainName(scenario, machine string) string { return "mesh-" + scenario + "." + machine }

func objects(p Plan) []Object {
	all := []Object{{"directory", p.Directory}, {"directory", p.Runtime}, {"namespace", p.World.Underlay.Namespace}}
	for _, r := range p.World.Underlay.Routers {
		all = append(all, Object{"namespace", r.Namespace})
	}
	if len(p.Machines) > 0 {
		all = append(all, Object{"mount", mountOf(filepath.Dir(p.Machines[0].Spec.Disk), p)})
	}
	for _, m := range p.Machines {
		all = append(all, Object{"domain", m.Spec.Name}, Object{"disk", m.Spec.Disk})
		for _, nic := range m.Spec.NICs {
			all = append(all, Object{"link", nic.Tap})
		}
	}
	return all
}

// check finds what no raise could overcome.
func (p Plan) check() error {
	problems := []error{CheckName(p.Name)}
	for _, path := range append([]string{p.World.Control}, sockets(p)...) {
		if len(path) > maxSocket {
			problems = append(problems, &Error{
				What: "the runtime directory's path is too long", Where: path,
				Why:  fmt.Sprintf("a UNIX socket's path has at most %d bytes, this one has %d", maxSocket, len(path)),
				Next: "choose a shorter one with --runtime",
				Code: codeUsage,
			})
			break
		}
	}
	switch p.Accelerator {
	case Auto, string(machine.KVM), string(machine.TCG):
	default:
		problems = append(problems, &Error{
			What: fmt.Sprintf("%q is no accelerator", p.Accelerator), Next: "choose auto, kvm or tcg", Code: codeUsage,
		})
	}
	return errors.Join(problems...)
}

func sockets(p Plan) (paths []string) {
	for _, m := range p.Machines {
		paths = append(paths, m.Spec.ConsoleSock)
	}
	return paths
}

// identity derives 32 hex digits that no other run, purpose or machine has.
func identity(run, purpose, machine string) string {
	sum := sha256.Sum256([]byte(run + "/" + purpose + "/" + machine))
	return hex.EncodeToString(sum[:16])
}

// uuid derives a UUID of version 8 (RFC 9562, section 5.8).
func uuid(run, machine string) string {
	sum := sha256.Sum256([]byte(run + "/uuid/" + machine))
	sum[6] = sum[6]&0x0f | 0x80
	sum[8] = sum[8]&0x3f | 0x80
	x := hex.EncodeToString(sum[:16])
	return x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]
}
