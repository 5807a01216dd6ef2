package resource

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"

	"mesh/host/declaration"
	"mesh/host/system"
)

// quadlet writes the unit file of a container, and says by what name a container
// that is made of it is told from one that is made of another: the digest of all
// of the file but the label that carries it. Nothing of it depends on anything
// but d, and no secret is in it.
// https://docs.podman.io/en/latest/markdown/podman-systemd.unit.5.html
func quadlet(d *declaration.Container) (text, made string) {
	var b strings.Builder
	set := func(key, value string) { fmt.Fprintf(&b, "%s=%s\n", key, value) }

	fmt.Fprintf(&b, "# Written by mesh-host, which puts it right again: `mesh-host why %s`.\n", d.Name)
	b.WriteString("[Unit]\n")
	set("Description", "Container "+d.Name+" of this machine's mesh")
	set("Wants", "network-online.target")
	set("After", "network-online.target")
	b.WriteString("\n[Service]\n")
	set("Restart", "always")
	set("RestartSec", "5")
	set("TimeoutStartSec", "900") // the image is fetched once more if somebody removed it
	b.WriteString("\n[Install]\n")
	set("WantedBy", "multi-user.target")
	b.WriteString("\n[Container]\n")
	set("ContainerName", declaration.ContainerPrefix+d.Name)
	set("Image", d.Image)
	if d.Network != "" && d.Network != declaration.NetworkOwn {
		set("Network", d.Network)
	}
	for _, v := range d.Environment {
		set("Environment", word(v.Name+"="+v.Value))
	}
	for _, p := range d.Ports {
		set("PublishPort", published(p))
	}
	for _, s := range d.Secrets {
		set("Volume", s.Path+":"+declaration.SecretsPath+"/"+s.Name+":ro")
	}
	for _, v := range d.Volumes {
		set("Volume", mount(v))
	}
	if len(d.Arguments) > 0 {
		words := make([]string, len(d.Arguments))
		for i, arg := range d.Arguments {
			words[i] = word(arg)
		}
		set("Exec", strings.Join(words, " "))
	}
	sum := sha256.Sum256([]byte(b.String()))
	made = hex.EncodeToString(sum[:])
	set("Label", system.LabelMade+"="+made)
	return b.String(), made
}

// word quotes one word of a list for podman's generator, and what is in it for
// systemd, which reads the command line that the generator makes of it.
func word(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`, `$`, `$$`).Replace(s) + `"`
}

func published(p declaration.Port) string {
	text := fmt.Sprintf("%d:%d/%s", p.Port, p.To, or(p.Protocol, "tcp"))
	if a, err := netip.ParseAddr(p.Address); err == nil && a.Is6() {
		return "[" + p.Address + "]:" + text
	}
	if p.Address != "" {
		return p.Address + ":" + text
	}
	return text
}

func mount(v declaration.Volume) string {
	text := v.Source + ":" + v.Target
	if !strings.HasPrefix(v.Source, "/") {
		text = declaration.ContainerPrefix + text
	}
	if v.ReadOnly {
		text += ":ro"
	}
	return text
}
