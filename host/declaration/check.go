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
		if member := r.newer(); member != "" && format < 2 {
			c.add(fmt.Sprintf("resources[%d].%s", i, member), "format %d has no such word; wanted \"format\": 2", format)
		}
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
	case f.Content != "" && f.Blob != nil:
		c.add(path+".content", "there is a blob, too; wanted \"\" beside one")
	}
	c.blob(path+".blob", f.Blob)
	c.validate(path+".validate", f.Validate)
	switch f.Policy {
	case "", PolicyEnforce, PolicyKeepCopy, PolicyOnce, PolicyReport:
	default:
		c.add(path+".policy", `%s is not allowed; wanted "enforce", "keep-copy", "once" or "report"`, shown(string(f.Policy)))
	}
}

func (c *checker) blob(path string, b *Blob) {
	if b == nil {
		return
	}
	c.match(path+".digest", b.Digest, digestForm, "a SHA-256 in 64 lower-case hex digits")
	if b.Bytes < 1 || b.Bytes > MaxBlob {
		c.add(path+".bytes", "%d is not allowed; wanted 1 to %d", b.Bytes, MaxBlob)
	}
}

func (c *checker) validate(path string, argv []string) {
	if argv == nil {
		return
	}
	candidates := 0
	for i, arg := range argv {
		if arg == Candidate {
			candidates++
		}
		if !utf8.ValidString(arg) || strings.ContainsRune(arg, 0) || len(arg) > maxPath {
			c.add(fmt.Sprintf("%s[%d]", path, i), "it cannot be an argument of a program")
		}
	}
	switch {
	case len(argv) == 0 || !strings.HasPrefix(argv[0], "/"):
		c.add(path, "wanted a program by its absolute path, and its arguments")
	case candidates != 1:
		c.add(path, "%d of the arguments are %q; wanted one, which is where the new file lies", candidates, Candidate)
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
	if p.Release != "" {
		c.match(path+".release", p.Release, releaseForm, "an archive or codename of a package source")
	}
	c.blob(path+".blob", p.Blob)
	switch {
	case p.Release != "" && (p.Version != "" || p.Blob != nil):
		c.add(path+".release", "the newest of a source and one version exclude each other")
	case p.Blob != nil && p.Version == "":
		c.add(path+".version", "it is empty; wanted the version of the package in the blob")
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
	if s.State != "" && s.State != "running" && s.State != "stopped" && s.State != StateMasked {
		c.add(path+".state", `%s is not allowed; wanted "running", "stopped" or "masked"`, shown(s.State))
	}
	if s.State == StateMasked && s.Enabled != nil && *s.Enabled {
		c.add(path+".enabled", "a masked unit cannot be enabled")
	}
	c.causes(path+".restart_on", r, index, s.RestartOn)
	c.causes(path+".reload_on", r, index, s.ReloadOn)
	for i, id := range s.ReloadOn {
		if slices.Contains(s.RestartOn, id) {
			c.add(fmt.Sprintf("%s.reload_on[%d]", path, i), "%q is in restart_on, too", id)
		}
	}
}

// causes reports IDs a service cannot be restarted or reloaded because of.
func (c *checker) causes(path string, r Resource, index int, ids []string) {
	for i, id := range ids {
		at := fmt.Sprintf("%s[%d]", path, i)
		first, known := c.ids[id]
		switch {
		case id == r.ID:
			c.add(at, "a service cannot be restarted because of itself")
		case !known || first >= index:
			c.add(at, "%s is not the id of a resource declared before this one", shown(id))
		case slices.Contains(ids[:i], id):
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
