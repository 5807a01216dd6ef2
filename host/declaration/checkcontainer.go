package declaration

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

var (
	// https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pulling-manifests
	imageForm    = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)+@sha256:[0-9a-f]{64}$`)
	variableForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	secretForm   = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)
	// What means nothing to podman, which parts paths at colons, nor to systemd.
	mountForm = regexp.MustCompile(`^[A-Za-z0-9_./@+-]+$`)
)

const mountWant = "a path of letters, digits and _ . / @ + -"

// maxArgument bounds an argument and a variable of a container, in bytes.
const maxArgument = 32 << 10

// published is a port of the machine that a container has.
type published struct{ address, id string }

func (c *checker) container(path string, r Resource, index int) {
	d := r.Container
	if c.match(path+".name", d.Name, nameForm, nameWant) {
		c.once(path+".name", "container", d.Name, r.ID)
		c.once(path+".name", "unit", ContainerUnit(d.Name), r.ID)
		c.once(path+".name", "path", ContainerFile(d.Name), r.ID)
	}
	c.image(path+".image", d.Image)
	for i, arg := range d.Arguments {
		c.text(fmt.Sprintf("%s.arguments[%d]", path, i), arg)
	}
	c.environment(path+".environment", d.Environment)
	switch d.Network {
	case "", NetworkOwn, NetworkHost, NetworkNone:
	default:
		c.add(path+".network", `%s is not allowed; wanted "own", "host" or "none"`, shown(d.Network))
	}
	if len(d.Ports) > 0 && (d.Network == NetworkHost || d.Network == NetworkNone) {
		c.add(path+".ports", "there are none to let through with network %q", d.Network)
	}
	for i, p := range d.Ports {
		c.port(fmt.Sprintf("%s.ports[%d]", path, i), p, r.ID)
	}
	c.mounts(path, d)
	c.causes(path+".restart_on", r, index, d.RestartOn)
}

// image wants a registry by its name: one without is looked for, by podman, at
// whoever its configuration says.
func (c *checker) image(path, image string) {
	name, _, digest := strings.Cut(image, "@")
	registry, _, _ := strings.Cut(name, "/")
	switch {
	case image != "" && !digest:
		c.add(path, "%s has no digest, so it can be another image tomorrow; wanted registry/repository@sha256:digest", shown(image))
	case !c.match(path, image, imageForm, "registry/repository@sha256:digest"):
	case !strings.ContainsAny(registry, ".:") && registry != "localhost":
		c.add(path, "%s is not the name of a registry; wanted registry/repository@sha256:digest", shown(registry))
	}
}

// text reports what cannot stand on a line of a unit. An empty argument is lost
// on the way through podman's generator.
func (c *checker) text(path, s string) {
	switch {
	case s == "":
		c.add(path, "it is empty")
	case len(s) > maxArgument:
		c.add(path, "%d bytes, at most %d are allowed", len(s), maxArgument)
	case !utf8.ValidString(s):
		c.add(path, "it is not UTF-8")
	case strings.ContainsFunc(s, unicode.IsControl):
		c.add(path, "%s has a control character in it; what needs one goes into a file", shown(s))
	}
}

func (c *checker) environment(path string, variables []Variable) {
	seen := map[string]bool{}
	for i, v := range variables {
		at := fmt.Sprintf("%s[%d]", path, i)
		if c.match(at+".name", v.Name, variableForm, "the name of a variable, of letters, digits and _") && seen[v.Name] {
			c.add(at+".name", "%s is there already", v.Name)
		}
		seen[v.Name] = true
		if v.Value != "" {
			c.text(at+".value", v.Value)
		}
	}
}

// port reports a port of the machine that another container, or the same, has
// already: at the same address, or where one of both takes all.
func (c *checker) port(path string, p Port, id string) {
	if p.Address != "" {
		if a, err := netip.ParseAddr(p.Address); err != nil || a.Zone() != "" || a.IsUnspecified() {
			c.add(path+".address", "%s is not allowed; wanted an address of the machine, or nothing for all", shown(p.Address))
		} else {
			p.Address = a.Unmap().String()
		}
	}
	if p.Port == 0 {
		c.add(path+".port", "0 is not a port; wanted 1 to 65535")
	}
	if p.To == 0 {
		c.add(path+".to", "0 is not a port; wanted 1 to 65535")
	}
	switch p.Protocol {
	case "":
		p.Protocol = "tcp"
	case "tcp", "udp":
	default:
		c.add(path+".protocol", `%s is not allowed; wanted "tcp" or "udp"`, shown(p.Protocol))
	}
	key := fmt.Sprintf("%d/%s", p.Port, p.Protocol)
	for _, other := range c.ports[key] {
		if other.address == p.Address || other.address == "" || p.Address == "" {
			c.add(path+".port", "port %s is that of %q already", key, other.id)
			break
		}
	}
	c.ports[key] = append(c.ports[key], published{p.Address, id})
}

// mounts reports volumes and secrets that cannot be given to a container.
func (c *checker) mounts(path string, d *Container) {
	targets := map[string]bool{}
	target := func(at, p string) {
		if targets[p] {
			c.add(at, "%s is there already", shown(p))
		}
		targets[p] = true
	}
	for i, s := range d.Secrets {
		at := fmt.Sprintf("%s.secrets[%d]", path, i)
		if c.match(at+".name", s.Name, secretForm, "the name of a file, of letters, digits and _ . -") {
			target(at+".name", SecretsPath+"/"+s.Name)
		}
		c.source(at+".path", s.Path)
	}
	for i, v := range d.Volumes {
		at := fmt.Sprintf("%s.volumes[%d]", path, i)
		switch {
		case strings.HasPrefix(v.Source, "/"):
			c.source(at+".source", v.Source)
		case !nameForm.MatchString(v.Source):
			c.add(at+".source", "%s is not allowed; wanted an absolute path, or the name of a volume: %s", shown(v.Source), nameWant)
		}
		if c.path(at+".target", v.Target) && c.match(at+".target", v.Target, mountForm, mountWant) {
			target(at+".target", v.Target)
		}
		if v.Target == SecretsPath || strings.HasPrefix(v.Target, SecretsPath+"/") {
			c.add(at+".target", "%s is where secrets are", shown(v.Target))
		}
	}
}

// source reports a path of the machine that no container may be given: one in
// which nothing can be owned, or that leads there.
func (c *checker) source(at, p string) {
	if !c.path(at, p) || !c.match(at, p, mountForm, mountWant) {
		return
	}
	for _, tree := range forbidden {
		if strings.HasPrefix(tree, p+"/") {
			c.add(at, "%s has %s in it, which no container may see", shown(p), tree)
			return
		}
	}
}
