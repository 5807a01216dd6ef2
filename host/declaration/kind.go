package declaration

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

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

// causes reports IDs a service or container cannot be restarted or reloaded because of.
func (c *checker) causes(path string, r Resource, index int, ids []string) {
	for i, id := range ids {
		at := fmt.Sprintf("%s[%d]", path, i)
		first, known := c.ids[id]
		switch {
		case id == r.ID:
			c.add(at, "a %s cannot be restarted because of itself", r.Kind())
		case !known || first >= index:
			c.add(at, "%s is not the id of a resource declared before this one", shown(id))
		case slices.Contains(ids[:i], id):
			c.add(at, "%q is listed twice", id)
		}
	}
}
