package declaration

import (
	"fmt"
	"regexp"
	"strings"
)

// Kind says which kind r is; empty when it has none or more than one, which
// Check refuses.
func (r Resource) Kind() Kind {
	if kind, n := r.kinds(); n == 1 {
		return kind
	}
	return ""
}

// kinds counts those of r, and names one.
func (r Resource) kinds() (one Kind, n int) {
	for _, k := range [...]struct {
		kind Kind
		set  bool
	}{
		{KindDirectory, r.Directory != nil},
		{KindFile, r.File != nil},
		{KindPackage, r.Package != nil},
		{KindService, r.Service != nil},
		{KindContainer, r.Container != nil},
	} {
		if k.set {
			one = k.kind
			n++
		}
	}
	return one, n
}

// Where says what on the machine r is about: a path, a package name, a unit or
// the name of a container; empty when r has no kind.
func (r Resource) Where() string {
	switch r.Kind() {
	case KindDirectory:
		return r.Directory.Path
	case KindFile:
		return r.File.Path
	case KindPackage:
		return r.Package.Name
	case KindService:
		return r.Service.Unit
	case KindContainer:
		return r.Container.Name
	}
	return ""
}

// Check reports everything that makes d a declaration no host may apply, as one
// *DocumentError; nil when there is nothing.
func (d Declaration) Check() error {
	c := checker{}
	c.format(d.Format, d.Resources)
	c.match("mesh", d.Mesh, nameForm, nameWant)
	c.match("node", d.Node, nameForm, nameWant)
	if d.Epoch == 0 {
		c.add("epoch", "0 is not an epoch; they begin at 1")
	}
	if d.Generation == 0 {
		c.add("generation", "0 is not a generation; they begin at 1")
	}
	if d.Final && d.Format == 1 {
		c.add("final", "format 1 has no such word; wanted \"format\": 2")
	}
	if d.Final && len(d.Resources) > 0 {
		c.add("final", "%d resources are declared beside it; wanted none", len(d.Resources))
	}
	c.resources(d.Resources)
	return c.result("declaration")
}

// Check reports everything that makes b a bundle no host may apply, as one
// *DocumentError; nil when there is nothing.
func (b Bundle) Check() error {
	c := checker{}
	c.format(b.Format, b.Resources)
	c.resources(b.Resources)
	return c.result("bundle")
}

// The forms of names, and how they are described to whoever missed them.
var (
	nameForm    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	idForm      = regexp.MustCompile(`^[a-z0-9-]+(/[a-z0-9-]+)*$`)
	accountForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,31}$`)
	modeForm    = regexp.MustCompile(`^[0-7]{4}$`)
	digestForm  = regexp.MustCompile(`^[0-9a-f]{64}$`)
	releaseForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+~_/-]*$`)
	// https://www.debian.org/doc/debian-policy/ch-controlfields.html#source,
	// but for a "-" at the end, by which apt-get means removal.
	packageForm = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]*[a-z0-9+.]$`)
	// https://www.debian.org/doc/debian-policy/ch-controlfields.html#version
	versionForm = regexp.MustCompile(`^[0-9][A-Za-z0-9.+~:-]*$`)
	// systemd.unit(5); a template without an instance is not a unit that runs.
	unitForm = regexp.MustCompile(`^[A-Za-z0-9:_.\\-]+(@[A-Za-z0-9:_.\\-]+)?\.(service|socket|timer|path|target)$`)
)

const (
	nameWant = "1 to 63 of a-z, 0-9 and -, beginning and ending with a letter or digit"
	maxName  = 255  // bytes of an id, a package, a version, a unit; NAME_MAX
	maxPath  = 4095 // bytes of a path; PATH_MAX without its NUL
)

// hostUnit is the host's own unit: the host never asks for itself to be stopped
// or restarted, it ends by itself and is started again.
const hostUnit = "mesh-host.service"

type checker struct {
	problems []Problem
	ids      map[string]int    // id → index
	places   map[string]string // kind of place and place → id
	ports    map[string][]published
}

func (c *checker) add(path, format string, args ...any) {
	c.problems = append(c.problems, Problem{Path: path, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) result(what string) error {
	if len(c.problems) == 0 {
		return nil
	}
	return &DocumentError{What: what, Problems: c.problems}
}

// match reports value unless it has the form and a sane length.
func (c *checker) match(path, value string, form *regexp.Regexp, want string) bool {
	if len(value) <= maxName && form.MatchString(value) {
		return true
	}
	c.add(path, "%s is not allowed; wanted %s", shown(value), want)
	return false
}

func (c *checker) format(format int, list []Resource) {
	if format < 1 || format > Format {
		c.add("format", "%d is not a format this host reads; wanted 1 to %d", format, Format)
		return
	}
	for i, r := range list {
		if member, since := r.newest(); format < since {
			c.add(fmt.Sprintf("resources[%d].%s", i, member), "format %d has no such word; wanted \"format\": %d", format, since)
		}
	}
}

func (c *checker) resources(list []Resource) {
	if len(list) > MaxResources {
		c.add("resources", "%d resources, at most %d are allowed", len(list), MaxResources)
		return
	}
	c.ids, c.places, c.ports = map[string]int{}, map[string]string{}, map[string][]published{}
	for i, r := range list {
		c.resource(fmt.Sprintf("resources[%d]", i), r, i)
	}
	c.nesting(list)
}

func (c *checker) resource(path string, r Resource, index int) {
	if c.match(path+".id", r.ID, idForm, "parts of a-z, 0-9 and - joined by /") {
		if first, taken := c.ids[r.ID]; taken {
			c.add(path+".id", "%q is the id of resources[%d] already", r.ID, first)
		} else {
			c.ids[r.ID] = index
		}
	}
	if _, kinds := r.kinds(); kinds != 1 {
		c.add(path, "%s; a resource is exactly one of directory, file, package, service, container", count(kinds))
		return
	}
	switch {
	case r.Directory != nil:
		c.directory(path+".directory", r)
	case r.File != nil:
		c.file(path+".file", r)
	case r.Package != nil:
		c.pkg(path+".package", r)
	case r.Service != nil:
		c.service(path+".service", r, index)
	case r.Container != nil:
		c.container(path+".container", r, index)
	}
}

func count(kinds int) string {
	if kinds == 0 {
		return "it has no kind"
	}
	return fmt.Sprintf("it is %d kinds at once", kinds)
}

// once reports a second resource for one place.
func (c *checker) once(path, place, where, id string) {
	key := place + " " + where
	if first, taken := c.places[key]; taken {
		c.add(path, "%s %s is declared by %q already; one resource owns one %s", place, where, first, place)
		return
	}
	c.places[key] = id
}

// shown quotes a value that was refused, shortened to a line.
func shown(value string) string { return fmt.Sprintf("%q", short(value)) }

// longest is how much of a value is said, in bytes.
const longest = 80

func short(value string) string {
	if len(value) > longest {
		value = strings.ToValidUTF8(value[:longest-3], "") + "..."
	}
	return value
}
