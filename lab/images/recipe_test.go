package images_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	recipes "mesh/images"
	"mesh/lab/images"
)

// base is a sound recipe; cases change one part of it.
const base = `suite: trixie
disk: 2GiB
cmdline: root=/dev/vda console=ttyS0
include: [systemd, linux-image-cloud-amd64]
offer: [podman]
prepare: [early]
hooks: [network, apt]
`

func files(document string) fstest.MapFS {
	return fstest.MapFS{
		"one.yaml":         {Data: []byte(document)},
		"hooks/early.sh":   {Data: []byte("echo early\n")},
		"hooks/network.sh": {Data: []byte("echo network\n")},
		"hooks/apt.sh":     {Data: []byte("echo apt\n")},
	}
}

func TestShippedRecipes(t *testing.T) {
	all, err := images.Recipes(recipes.Files)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	digests := map[string]string{}
	for _, r := range all {
		names = append(names, r.Name)
		if other, twice := digests[r.Digest()]; twice {
			t.Errorf("%s and %s have one digest", r.Name, other)
		}
		digests[r.Digest()] = r.Name
		for _, p := range []string{"systemd-sysv", "qemu-guest-agent", "linux-image-cloud-amd64", "nftables", "iproute2", "ca-certificates"} {
			if !slices.Contains(r.Include, p) {
				t.Errorf("%s does not include %s", r.Name, p)
			}
		}
		for _, p := range []string{"podman", "unbound", "nginx", "wireguard-tools"} {
			if !slices.Contains(r.Offer, p) || slices.Contains(r.Include, p) {
				t.Errorf("%s does not offer %s, or has it on its disk", r.Name, p)
			}
		}
		if !strings.Contains(r.Cmdline, "root=/dev/vda") || !strings.Contains(r.Cmdline, "console=ttyS0") {
			t.Errorf("%s: cmdline %q says neither disk nor console", r.Name, r.Cmdline)
		}
	}
	for _, name := range []string{"debian-12", images.Default} {
		if !slices.Contains(names, name) {
			t.Errorf("there is no recipe %s among %v", name, names)
		}
	}
}

func TestRecipeRefuses(t *testing.T) {
	for name, c := range map[string]struct{ from, to, want string }{
		"unknown key":     {"offer:", "ofer:", "[5:1]"},
		"duplicate key":   {"hooks:", "suite: bookworm\nhooks:", "[7:1]"},
		"suite":           {"trixie", "'trixie main'", `one.yaml: suite: "trixie main" is not the code name`},
		"no suite":        {"suite: trixie\n", "", `one.yaml: suite: "" is not the code name`},
		"size":            {"2GiB", "2 GB", `one.yaml: disk: "2 GB" is not a size`},
		"no size":         {"2GiB", "0GiB", `one.yaml: disk: "0GiB" is not a size`},
		"too large":       {"2GiB", "1024GiB", `one.yaml: disk: "1024GiB" is not a size`},
		"negative":        {"2GiB", "-2GiB", `one.yaml: disk: "-2GiB" is not a size`},
		"cmdline":         {"console=ttyS0", `"x"  y`, `one.yaml: cmdline: `},
		"package":         {"podman", "Podman", `one.yaml: offer: "Podman" is not the name of a package`},
		"option":          {"systemd", "--simulate", `one.yaml: include: "--simulate" is not the name of a package`},
		"package twice":   {"[systemd,", "[systemd, systemd,", `one.yaml: include: "systemd" stands twice`},
		"tag":             {"[podman]", "!x [podman]", "[5:8] a recipe has no anchors"},
		"hook":            {"network,", "netwrok,", "one.yaml: hooks: there is no script hooks/netwrok.sh"},
		"hook of another": {"early", "../one", "one.yaml: prepare: there is no script hooks/../one.sh"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := images.ParseRecipe(files(strings.Replace(base, c.from, c.to, 1)), "one")
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestRecipeTellsAllAtOnce(t *testing.T) {
	_, err := images.ParseRecipe(files("suite: X\ndisk: 1\ncmdline: ''\ninclude: [A]\nhooks: [b]\n"), "one")
	for _, key := range []string{"suite", "disk", "cmdline", "include", "hooks"} {
		if err == nil || !strings.Contains(err.Error(), "one.yaml: "+key+": ") {
			t.Errorf("%s is not told in %v", key, err)
		}
	}
}

func TestUnknownRecipe(t *testing.T) {
	for _, name := range []string{"debian-14", "", "../one", "hooks/one", "one.yaml"} {
		_, err := images.ParseRecipe(files(base), name)
		var coder interface{ ExitCode() int }
		if !errors.Is(err, images.ErrUnknown) || !errors.As(err, &coder) || coder.ExitCode() != 2 {
			t.Errorf("%q: got %v, want ErrUnknown with exit code 2", name, err)
		} else if !strings.Contains(err.Error(), "use one of one") {
			t.Errorf("%q: %v does not say which there are", name, err)
		}
	}
}

// TestDigest: whatever decides what is built changes the digest; how it is
// written does not.
func TestDigest(t *testing.T) {
	digest := func(f fstest.MapFS) string {
		r, err := images.ParseRecipe(f, "one")
		if err != nil {
			t.Fatal(err)
		}
		return r.Digest()
	}
	seen := map[string]string{digest(files(base)): "the base"}
	if d := digest(files("# A comment.\n" + strings.Replace(base, "[podman]", "\n  - podman", 1))); seen[d] == "" {
		t.Error("another way to write the same recipe has another digest")
	}
	for what, change := range map[string][2]string{
		"suite": {"trixie", "bookworm"}, "disk": {"2GiB", "3GiB"}, "cmdline": {"ttyS0", "ttyS1"},
		"include": {"systemd", "systemd-sysv"}, "offer": {"podman", "nginx"}, "moved": {"[podman]", "[]"},
		"prepare": {"[early]", "[]"}, "order": {"network, apt", "apt, network"},
	} {
		d := digest(files(strings.Replace(base, change[0], change[1], 1)))
		if other, twice := seen[d]; twice {
			t.Errorf("%s has the digest of %s", what, other)
		}
		seen[d] = what
	}
	script := files(base)
	script["hooks/apt.sh"] = &fstest.MapFile{Data: []byte("echo other\n")}
	if other, twice := seen[digest(script)]; twice {
		t.Errorf("another script has the digest of %s", other)
	}
	if d := digest(files(base)); len(d) != 64 || strings.Trim(d, "0123456789abcdef") != "" {
		t.Errorf("digest %q is not 64 hex digits", d)
	}
}

func FuzzRecipe(f *testing.F) {
	f.Add(base)
	f.Add("suite: trixie\nsuite: trixie\n")
	f.Add("include: {a: [b, &x c, *x]}\n")
	f.Add("disk: 99999999999999999999GiB")
	f.Add("suite: a\ninclude: !tag\na")
	f.Add("")
	f.Fuzz(func(t *testing.T, document string) {
		r, err := images.ParseRecipe(files(document), "one")
		if err != nil {
			return
		}
		if r.DiskBytes < 1<<30 || r.Suite == "" || r.Cmdline == "" {
			t.Errorf("accepted %+v", r)
		}
		for _, p := range slices.Concat(r.Include, r.Offer) {
			if strings.ContainsAny(p, " ,;$`'\"\\|&<>(){}*?~#\n\t") || strings.HasPrefix(p, "-") {
				t.Errorf("accepted the package %q, which a shell or apt reads as something else", p)
			}
		}
		again, err := images.ParseRecipe(files(document), "one")
		if err != nil || again.Digest() != r.Digest() {
			t.Errorf("read twice it is %v with %s and %s", err, r.Digest(), again.Digest())
		}
	})
}
