package declare

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"mesh/host/declaration"
	"mesh/host/inventory"
	"mesh/plane/debian"
	"mesh/plane/refusal"
	"mesh/plane/registry"
)

// hostPackageName is the Debian package that mesh-host comes in.
const hostPackageName = "mesh-host"

// architectures are what Debian calls those of profiles.
// https://wiki.debian.org/SupportedArchitectures
var architectures = map[string]string{
	"amd64": "amd64", "arm64": "arm64", "armhf": "arm", "i386": "386", "ppc64el": "ppc64le", "riscv64": "riscv64", "s390x": "s390x",
}

// HostSetting is what became of a SetHost or an UnsetHost.
type HostSetting struct {
	Package registry.HostPackage // zero after an UnsetHost
	Changed bool                 // false: it was so already
	Nodes   []string             // that are told something new by it, by name
	Notes   []string             // about nodes that it does not reach
}

// host is what n shall have of mesh-host; nil means whichever it has.
func (k knowledge) host(n registry.Node) *declaration.Package {
	i := k.hostFor(n.Profile.Architecture)
	if i < 0 || !readsHost(n.Profile) || Spares(k.hosts[i], n.Profile) {
		return nil
	}
	return hostPackage(k.hosts[i])
}

// hostFor finds the package for an architecture in k.hosts; -1 where there is none.
func (k knowledge) hostFor(architecture string) int {
	return slices.IndexFunc(k.hosts, func(p registry.HostPackage) bool { return p.Architecture == architecture })
}

// Spares tells whether p is not declared to a node with this profile because a
// higher version runs there: no host is taken down to a lower one, however it came
// to the mesh, unless the operator said so of p.
func Spares(p registry.HostPackage, on inventory.Profile) bool { return !p.Downgrade && above(p, on) }

// above tells whether a higher version than p runs, where p could be instead.
func above(p registry.HostPackage, on inventory.Profile) bool {
	return p.Architecture == on.Architecture && debian.Compare(on.HostVersion, p.Version) > 0
}

func hostPackage(p registry.HostPackage) *declaration.Package {
	return &declaration.Package{Name: hostPackageName, Version: p.Version, Blob: &p.Content.Blob}
}

// readsHost tells whether a host reads a declaration with its own package in it.
func readsHost(p inventory.Profile) bool {
	return slices.Contains(p.Formats, declaration.FormatFor([]declaration.Resource{{Package: &declaration.Package{Blob: &declaration.Blob{}}}}))
}

// SetHost takes a Debian package of mesh-host and declares it to every node of its
// architecture, and to those that come, in one transaction. Whatever cannot be
// one is refused with a *refusal.Error, and so is a version lower than one that
// runs on a node, unless downgrade is true. That is remembered with the package: a
// node that comes with a higher version keeps it otherwise. The same one again
// changes nothing, unless it is downgrade that was not said before.
func (d *Declarer) SetHost(ctx context.Context, deb []byte, downgrade bool) (HostSetting, error) {
	p, err := readHost(deb)
	if err != nil {
		return HostSetting{}, err
	}
	p.Since, p.Downgrade = d.Now().UTC(), downgrade
	done := HostSetting{Package: p}
	done.Package.Content.Data = ""
	err = d.changeHost(ctx, &done, func(k *knowledge, nodes []registry.Node) (registry.Change, error) {
		i := k.hostFor(p.Architecture)
		if i >= 0 && k.hosts[i].Version == p.Version {
			if k.hosts[i].Content.Blob != p.Content.Blob {
				return registry.Change{}, refuseHost(fmt.Sprintf("version %s for %s is declared already, with the digest %s, and this is another package of that version (%s): nodes would not install it",
					p.Version, p.Architecture, k.hosts[i].Content.Digest, p.Content.Digest), "build it with a version of its own")
			}
			if k.hosts[i].Downgrade || !downgrade {
				done.Package, done.Notes = k.hosts[i], k.unreached(k.hosts[i], nodes)
				return registry.Change{}, nil
			}
		}
		if newer := newerThan(p, nodes); len(newer) > 0 && !downgrade {
			return registry.Change{}, refuseHost(fmt.Sprintf("it is version %s, and a higher one runs on %s", p.Version, listed(newer)),
				"give a higher version; to go back to this one, say so with --downgrade")
		}
		if i >= 0 {
			k.hosts = slices.Delete(k.hosts, i, i+1)
		}
		k.hosts = append(k.hosts, p)
		done.Notes = k.unreached(p, nodes)
		return registry.Change{SetHost: &p}, nil
	})
	return done, err
}

// UnsetHost declares no package of mesh-host any more: nodes keep what they have.
func (d *Declarer) UnsetHost(ctx context.Context) (HostSetting, error) {
	var done HostSetting
	err := d.changeHost(ctx, &done, func(k *knowledge, _ []registry.Node) (registry.Change, error) {
		if len(k.hosts) == 0 {
			return registry.Change{}, nil
		}
		k.hosts = nil
		return registry.Change{UnsetHost: true}, nil
	})
	return done, err
}

// changeHost runs decide, which changes what is known, and adds to the change it
// decides on the generations that follow from it.
func (d *Declarer) changeHost(ctx context.Context, done *HostSetting, decide func(*knowledge, []registry.Node) (registry.Change, error)) error {
	err := d.Store.Update(ctx, func(ctx context.Context, v registry.View) (registry.Change, error) {
		k, err := known(ctx, v)
		if err != nil {
			return registry.Change{}, err
		}
		nodes, err := v.Nodes(ctx)
		if err != nil {
			return registry.Change{}, err
		}
		change, err := decide(&k, nodes)
		if err != nil || change.IsZero() {
			return registry.Change{}, err
		}
		done.Changed = true
		change.At = d.Now()
		done.Notes = append(done.Notes, d.renew(k, nodes, &change)...)
		for _, next := range change.Declare {
			done.Nodes = append(done.Nodes, next.Node.Name)
		}
		return change, nil
	})
	if err == nil && done.Changed {
		d.Log.Info("package of mesh-host changed", "version", done.Package.Version, "architecture", done.Package.Architecture, "nodes", len(done.Nodes))
	}
	return err
}

func refuseHost(why, do string) error {
	return &refusal.Error{Kind: refusal.Invalid, What: "setting the package of mesh-host", Why: why, Do: do}
}

// readHost finds out what the bytes of a package are.
func readHost(deb []byte) (registry.HostPackage, error) {
	const do = "name the .deb of mesh-host that nodes shall have"
	if len(deb) > declaration.MaxBlob {
		return registry.HostPackage{}, refuseHost(fmt.Sprintf("it has %d bytes, and at most %d are declared", len(deb), declaration.MaxBlob), do)
	}
	says, err := debian.Read(deb)
	if err != nil {
		return registry.HostPackage{}, refuseHost(err.Error(), do)
	}
	p := registry.HostPackage{Version: says.Version, Architecture: architectures[says.Architecture]}
	p.Content.Data = string(deb)
	p.Content.Blob = declaration.Blob{Digest: declaration.Digest(deb), Bytes: int64(len(deb))}
	resources := []declaration.Resource{{ID: "host/package", Package: hostPackage(p)}}
	bad := declaration.Bundle{Format: declaration.FormatFor(resources), Resources: resources}.Check()
	switch {
	case says.Name != hostPackageName:
		return p, refuseHost(fmt.Sprintf("it is the package %.80q, not %s", says.Name, hostPackageName), do)
	case p.Architecture == "":
		return p, refuseHost(fmt.Sprintf("it is for the architecture %.80q, of which no node is", says.Architecture), do)
	case bad != nil:
		return p, refuseHost(bad.Error(), do)
	}
	return p, nil
}

// shownNodes bounds how many nodes one line names.
const shownNodes = 5

// newerThan lists the nodes on which a higher version than p runs.
func newerThan(p registry.HostPackage, nodes []registry.Node) []string {
	var newer []string
	for _, n := range nodes {
		if !n.Retiring() && above(p, n.Profile) {
			newer = append(newer, fmt.Sprintf("%s (%s)", n.Name, n.Profile.HostVersion))
		}
	}
	return newer
}

// unreached says which nodes have no package in k, though one was given for p's
// architecture, and which cannot be told.
func (k knowledge) unreached(p registry.HostPackage, nodes []registry.Node) []string {
	var other, old, spared []string
	for _, n := range nodes {
		switch {
		case n.Retiring():
		case k.hostFor(n.Profile.Architecture) < 0:
			other = append(other, fmt.Sprintf("%s (%s)", n.Name, n.Profile.Architecture))
		case !readsHost(n.Profile):
			old = append(old, fmt.Sprintf("%s (%s)", n.Name, n.Profile.HostVersion))
		case Spares(p, n.Profile):
			spared = append(spared, fmt.Sprintf("%s (%s)", n.Name, n.Profile.HostVersion))
		}
	}
	var notes []string
	if len(other) > 0 {
		notes = append(notes, fmt.Sprintf("it is for %s; these nodes are of another architecture and want a package of theirs: %s", p.Architecture, listed(other)))
	}
	if len(old) > 0 {
		notes = append(notes, fmt.Sprintf("the hosts of these nodes are too old to be told; install it there by hand: %s", listed(old)))
	}
	if len(spared) > 0 {
		notes = append(notes, fmt.Sprintf("a higher version runs on these nodes, and they keep it; to take them down to this one, say so with --downgrade: %s", listed(spared)))
	}
	return notes
}

func listed(all []string) string {
	if more := len(all) - shownNodes; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:shownNodes], ", "), more)
	}
	return strings.Join(all, ", ")
}
