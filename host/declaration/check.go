package declaration

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Kind says which kind r is; empty when it has none or more than one, which
// Check refuses.
func (r Resource) Kind() Kind {
	kinds := r.kinds()
	if len(kinds) != 1 {
		return ""
	}
	return kinds[0]
}

func (r Resource) kinds() (set []Kind) {
	if r.Directory != nil {
		set = append(set, KindDirectory)
	}
	if r.File != nil {
		set = append(set, KindFile)
	}
	if r.Package != nil {
		set = append(set, KindPackage)
	}
	if r.Service != nil {
		set = append(set, KindService)
	}
	return set
}

// Where says what on the machine r is about: a path, a package name or a unit;
// empty when r has no kind.
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
	}
	return ""
}

// Check reports everything that makes d a declaration no host may apply, as one
// *DocumentError; nil when there is nothing.
func (d Declaration) Check() error {
	c := checker{}
	c.format(d.Format)
	c.match("mesh", d.Mesh, nameForm, nameWant)
	c.match("node", d.Node, nameForm, nameWant)
	if d.Epoch == 0 {
		c.add("epoch", "0 is not an epoch; they begin at 1")
	}
	if d.Generation == 0 {
		c.add("generation", "0 is not a generation; they begin at 1")
	}
	c.resources(d.Resources)
	return c.result("declaration")
}

// Check reports everything that makes b a bundle no host may apply, as one
// *DocumentError; nil when there is nothing.
func (b Bundle) Check() error {
	c := checker{}
	c.format(b.Format)
	c.resources(b.Resources)
	return c.result("bundle")
}

// The forms of names, and how they are described to whoever missed them.
var (
	nameForm    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	idForm      = regexp.MustCompile(`^[a-z0-9-]+(/[a-z0-9-]+)*$`)
	accountForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,31}$`)
	modeForm    = regexp.MustCompile(`^[0-7]{4}$`)
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

func (c *checker) format(format int) {
	if format != Format {
		c.add("format", "%d is not a format this host reads; wanted %d", format, Format)
	}
}

func (c *checker) resources(list []Resource) {
	if len(list) > MaxResources {
		c.add("resources", "%d resources, at most %d are allowed", len(list), MaxResources)
		return
	}
	c.ids, c.places = map[string]int{}, map[string]string{}
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
	if kinds := r.kinds(); len(kinds) != 1 {
		c.add(path, "%s; a resource is exactly one of directory, file, package, service", count(kinds))
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
	}
}

func count(kinds []Kind) string {
	if len(kinds) == 0 {
		return "it has no kind"
	}
	return fmt.Sprintf("it is %d kinds at once", len(kinds))
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

func (c *checker) directory(path string, r Resource) {
	d := r.Directory
	if c.path(path+".path", d.Path) {
		c.once(path+".path", "path", d.Path, r.ID)
	}
	c.access(path, d.Owner, d.Group, d.Mode)
}

func (c *checker) file(path string, r Resource) {
	f := r.File
	if c.path(path+".path", f.Path) {
		c.once(path+".path", "path", f.Path, r.ID)
	}
	c.access(path, f.Owner, f.Group, f.Mode)
	switch {
	case len(f.Content) > MaxContent:
		c.add(path+".content", "%d bytes, at most %d are allowed", len(f.Content), MaxContent)
	case !utf8.ValidString(f.Content):
		c.add(path+".content", "it is not UTF-8")
	}
}

func (c *checker) access(path, owner, group, mode string) {
	if owner != "" {
		c.match(path+".owner", owner, accountForm, "the name of a user")
	}
	if group != "" {
		c.match(path+".group", group, accountForm, "the name of a group")
	}
	if mode != "" {
		c.match(path+".mode", mode, modeForm, `four octal digits, like "0644"`)
	}
}

func (c *checker) pkg(path string, r Resource) {
	p := r.Package
	if c.match(path+".name", p.Name, packageForm, "the name of a Debian package") {
		c.once(path+".name", "package", p.Name, r.ID)
	}
	if p.Version != "" {
		c.match(path+".version", p.Version, versionForm, "an exact Debian version")
	}
}

func (c *checker) service(path string, r Resource, index int) {
	s := r.Service
	if c.match(path+".unit", s.Unit, unitForm, `a systemd unit with its suffix, like "nginx.service"`) {
		c.once(path+".unit", "unit", s.Unit, r.ID)
	}
	if s.Unit == hostUnit {
		c.add(path+".unit", "%s is the host's own unit; nobody but the machine's owner starts or stops it", hostUnit)
	}
	if s.State != "" && s.State != "running" && s.State != "stopped" {
		c.add(path+".state", `%s is not allowed; wanted "running" or "stopped"`, shown(s.State))
	}
	for i, id := range s.RestartOn {
		at := fmt.Sprintf("%s.restart_on[%d]", path, i)
		first, known := c.ids[id]
		switch {
		case id == r.ID:
			c.add(at, "a service cannot be restarted because of itself")
		case !known || first >= index:
			c.add(at, "%s is not the id of a resource declared before this one", shown(id))
		case slices.Contains(s.RestartOn[:i], id):
			c.add(at, "%q is listed twice", id)
		}
	}
}

// shown quotes a value that was refused, shortened to a line.
func shown(value string) string {
	if len(value) > 80 {
		value = strings.ToValidUTF8(value[:77], "") + "..."
	}
	return fmt.Sprintf("%q", value)
}
