package lifecycle

import (
	"path/filepath"
	"slices"

	"mesh/lab/images"
)

// Ground is where a portable plan is put. Paths are absolute.
type Ground struct {
	Name      string                  // that the scenario is raised as
	Run       string                  // 8 hex digits
	Directory string                  // see Lab.Directory
	Runtime   string                  // see Lab.RuntimeOf
	Layers    string                  // see Lab.Layers
	Images    map[string]images.Image // by recipe; must hold each that the plan uses
	Disks     map[string]string       // by machine: the id of the layer that it writes to; zero: as NewPlan
}

// Portable is p without all that belongs to one lab machine, one store or one
// run: it holds no path of the lab machine. On puts it somewhere. It is itself
// what it would be again: p.Portable() equals p.Portable().Portable().
func (p Plan) Portable() Plan {
	p.Name, p.Run, p.Directory, p.Runtime, p.Packages = "", "", "", "", ""
	p.Source, p.Document = filepath.Base(p.Source), filepath.Base(p.Document)
	p.Objects = nil
	p.SSH = SSH{}
	p.World.Control, p.World.Log = "", ""
	p.World.Underlay = p.World.Underlay.As("")
	repositories := map[string]string{}
	for name := range p.World.Repositories {
		repositories[name] = ""
	}
	p.World.Repositories = repositories
	p.Machines = slices.Clone(p.Machines)
	for i := range p.Machines {
		m := &p.Machines[i]
		m.Base = ""
		s := &m.Spec
		s.Name, s.UUID, s.Run, s.Disk = "", "", "", ""
		s.Kernel, s.Initrd, s.ConsoleLog, s.ConsoleSock = "", "", "", ""
		s.NICs = slices.Clone(s.NICs)
		for j := range s.NICs {
			s.NICs[j].Tap = ""
		}
	}
	return p
}

// On is a portable plan put on g: the plan of the same machines, who know
// themselves by the same names and ids, in a world of their own. What its
// repository "mesh" held has to be brought to g's directory, and so has the
// directory of its SSH keys.
func (p Plan) On(g Ground) Plan {
	p.Name, p.Run, p.Directory, p.Runtime = g.Name, g.Run, g.Directory, g.Runtime
	p.SSH = sshFiles(p.Directory)
	u := p.World.Underlay.As(g.Run)
	p.World.Underlay = u
	p.World.Control, p.World.Log = worldFiles(p)
	repositories := map[string]string{}
	for name := range p.World.Repositories {
		repositories[name] = repositoryOf(p, name, g.Images)
	}
	p.World.Repositories = repositories
	p.Machines = slices.Clone(p.Machines)
	for i := range p.Machines {
		m := &p.Machines[i]
		image := g.Images[m.Image]
		m.Base = image.Disk
		s := &m.Spec
		s.Name, s.UUID, s.Run = DomainName(p.Name, m.Name), uuid(p.Run, m.Name), p.Run
		s.Kernel, s.Initrd = image.Kernel, image.Initrd
		s.Disk = layerPath(g.Layers, topOf(p, *m, g.Disks))
		s.ConsoleLog, s.ConsoleSock = consoleFiles(p, m.Name)
		s.NICs = slices.Clone(s.NICs)
		for j, at := range u.Machines[i].NICs {
			s.NICs[j].Tap = at.Tap
		}
	}
	p.Objects = objects(p)
	return p
}

func topOf(p Plan, m Machine, chosen map[string]string) string {
	if id := chosen[m.Name]; id != "" {
		return id
	}
	return identity(p.Run, "disk", m.Name)
}

// repositoryOf is the directory of one of the world's repositories.
func repositoryOf(p Plan, name string, all map[string]images.Image) string {
	if name == offered {
		return filepath.Join(p.Directory, "repository")
	}
	return all[name].Repository
}

// offered is the repository of what the operator offers, beside those of images.
const offered = "mesh"

// worldFiles are the world's control socket and log.
func worldFiles(p Plan) (control, log string) {
	return filepath.Join(p.Runtime, "world.sock"), filepath.Join(p.Directory, "world.log")
}

// consoleFiles are a machine's recorded console and its socket.
func consoleFiles(p Plan, machine string) (log, socket string) {
	return filepath.Join(p.Directory, machine+".console"), filepath.Join(p.Runtime, machine+".sock")
}
