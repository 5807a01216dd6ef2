package declaration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/host/declaration"
)

func dir(id, path string) declaration.Resource {
	return declaration.Resource{ID: id, Directory: &declaration.Directory{Path: path}}
}

func file(id, path string) declaration.Resource {
	return declaration.Resource{ID: id, File: &declaration.File{Path: path, Content: "x\n"}}
}

func pkg(id, name string) declaration.Resource {
	return declaration.Resource{ID: id, Package: &declaration.Package{Name: name}}
}

func service(id, unit string, restartOn ...string) declaration.Resource {
	return declaration.Resource{ID: id, Service: &declaration.Service{Unit: unit, RestartOn: restartOn}}
}

func valid(resources ...declaration.Resource) declaration.Declaration {
	return declaration.Declaration{Format: 1, Mesh: "home", Node: "one", Epoch: 1, Generation: 1, Resources: resources}
}

// second is a declaration of format 2.
func second(resources ...declaration.Resource) declaration.Declaration {
	d := valid(resources...)
	d.Format = 2
	return d
}

// TestFormatFor: a document is written so that the oldest host reads it that can.
func TestFormatFor(t *testing.T) {
	if got := declaration.FormatFor([]declaration.Resource{file("a", "/a"), pkg("b", "bb"), service("c", "c.service", "a")}); got != 1 {
		t.Error(got)
	}
	for _, r := range []declaration.Resource{
		{File: &declaration.File{Blob: &declaration.Blob{}}}, {File: &declaration.File{Validate: []string{}}},
		{File: &declaration.File{Policy: declaration.PolicyOnce}}, {Package: &declaration.Package{Blob: &declaration.Blob{}}},
		{Package: &declaration.Package{Release: "x"}}, {Service: &declaration.Service{State: "masked"}}, {Service: &declaration.Service{ReloadOn: []string{}}},
	} {
		if got := declaration.FormatFor([]declaration.Resource{file("a", "/a"), r}); got != 2 {
			t.Errorf("%+v: %d", r, got)
		}
		if got := declaration.FormatFor([]declaration.Resource{container("c", "c"), r}); got != 3 {
			t.Errorf("with a container, %+v: %d", r, got)
		}
		if err := valid(r).Check(); err == nil || !strings.Contains(err.Error(), `format 1 has no such word; wanted "format": 2`) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// TestContainersAreOfFormat3: older hosts are told that they are too old, not that
// a member is wrong.
func TestContainersAreOfFormat3(t *testing.T) {
	for format := 1; format < 3; format++ {
		d := valid(container("a", "web"))
		d.Format = format
		want := fmt.Sprintf(`resources[0].container: format %d has no such word; wanted "format": 3`, format)
		if err := d.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("\n got: %v\nwant: …%s…", err, want)
		}
	}
}

func TestCheckAccepts(t *testing.T) {
	enabled := false
	for name, d := range map[string]declaration.Declaration{
		"nothing declared": valid(),
		"all kinds": valid(
			dir("demo/directory", "/etc/demo"),
			file("demo/config", "/etc/demo/demo.conf"),
			pkg("demo/package", "libstdc++6"),
			service("demo/service", "wg-quick@mesh.service", "demo/config", "demo/package"),
			declaration.Resource{ID: "x", Service: &declaration.Service{Unit: "x.timer", State: "stopped", Enabled: &enabled}},
		),
		"names that only begin alike": valid(
			file("a", "/device"), file("b", "/process/x"), file("c", "/etc/x"), file("d", "/etc/x.d/y"),
			file("e", "/var/lib/mesh-hostess"), service("f", "mesh-hostess.service"),
		),
		"the host's own package": valid(pkg("host/package", "mesh-host")),
		"the last one":           func() declaration.Declaration { d := second(); d.Final = true; return d }(),
		"all words of format 2": second(
			declaration.Resource{ID: "a", File: &declaration.File{Path: "/a", Blob: &declaration.Blob{Digest: strings.Repeat("0a", 32), Bytes: declaration.MaxBlob},
				Validate: []string{"/usr/sbin/visudo", "-c", declaration.Candidate}, Policy: declaration.PolicyKeepCopy}},
			declaration.Resource{ID: "b", Package: &declaration.Package{Name: "bb", Version: "1.0", Blob: &declaration.Blob{Digest: strings.Repeat("0a", 32), Bytes: 1}}},
			declaration.Resource{ID: "c", Package: &declaration.Package{Name: "cc", Release: "trixie-backports"}},
			declaration.Resource{ID: "d", Service: &declaration.Service{Unit: "d.service", ReloadOn: []string{"a"}, RestartOn: []string{"b"}}},
			declaration.Resource{ID: "e", Service: &declaration.Service{Unit: "e.service", State: declaration.StateMasked}},
		),
		"one word for two kinds": valid(pkg("a", "nginx"), service("b", "nginx.service"), file("c", "/nginx")),
	} {
		if err := d.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	with := func(r declaration.Resource, change func(*declaration.Resource)) declaration.Declaration {
		change(&r)
		return valid(r)
	}
	for _, tc := range []struct {
		name string
		d    declaration.Declaration
		want string
	}{
		{"format", declaration.Declaration{Mesh: "m", Node: "n", Epoch: 1, Generation: 1}, "format: 0 is not a format"},
		{"no mesh", declaration.Declaration{Format: 1, Node: "n", Epoch: 1, Generation: 1}, `mesh: "" is not allowed`},
		{"long node", declaration.Declaration{Format: 1, Mesh: "m", Node: strings.Repeat("n", 64), Epoch: 1, Generation: 1}, "node: "},
		{"epoch", declaration.Declaration{Format: 1, Mesh: "m", Node: "n", Generation: 1}, "epoch: 0 is not an epoch"},
		{"generation", declaration.Declaration{Format: 1, Mesh: "m", Node: "n", Epoch: 1}, "generation: 0 is not a generation"},
		{"no kind", valid(declaration.Resource{ID: "a"}), "resources[0]: it has no kind"},
		{"two kinds", with(file("a", "/x"), func(r *declaration.Resource) { r.Package = &declaration.Package{Name: "xx"} }), "resources[0]: it is 2 kinds at once"},
		{"no id", valid(file("", "/x")), `resources[0].id: "" is not allowed`},
		{"id in capitals", valid(file("A", "/x")), `"A" is not allowed; wanted parts of a-z, 0-9 and - joined by /`},
		{"id with an empty part", valid(file("a//b", "/x")), "resources[0].id"},
		{"id twice", valid(file("a", "/x"), file("a", "/y")), `resources[1].id: "a" is the id of resources[0] already`},
		{"path twice", valid(dir("a", "/x"), file("b", "/x")), `resources[1].file.path: path /x is declared by "a" already`},
		{"package twice", valid(pkg("a", "nginx"), pkg("b", "nginx")), `package nginx is declared by "a" already`},
		{"unit twice", valid(service("a", "x.service"), service("b", "x.service")), `unit x.service is declared by "a" already`},
		{"no path", valid(file("a", "")), "it is empty; wanted an absolute path"},
		{"relative", valid(file("a", "etc/x")), `"etc/x" is not absolute`},
		{"unclean", valid(file("a", "/etc//x")), `"/etc//x" is not clean; wanted "/etc/x"`},
		{"upwards", valid(dir("a", "/etc/../root")), `is not clean; wanted "/root"`},
		{"trailing slash", valid(dir("a", "/etc/x/")), "is not clean"},
		{"root", valid(dir("a", "/")), "the root directory cannot be owned"},
		{"proc", valid(file("a", "/proc/sys/kernel/hostname")), "is in /proc, where nothing can be owned"},
		{"sys itself", valid(dir("a", "/sys")), "is in /sys"},
		{"dev", valid(file("a", "/dev/shm/x")), "is in /dev"},
		{"the host's own record", valid(file("a", "/var/lib/mesh-host/journal")), "is in /var/lib/mesh-host"},
		{"control character", valid(file("a", "/etc/x\ny")), `"/etc/x\ny" has a control character in it`},
		{"path not UTF-8", valid(file("a", "/etc/\xff")), "it is not UTF-8"},
		{"long part", valid(file("a", "/"+strings.Repeat("x", 256))), "has a part of 256 bytes, at most 255 are allowed"},
		{"long path", valid(file("a", strings.Repeat("/x", 2048))), "4096 bytes, at most 4095 are allowed"},
		{"below a file", valid(file("a", "/x"), file("b", "/x/y/z")), `resources[1].file.path: "/x/y/z" lies below "/x", which "a" declares as a file`},
		{"below a later file", valid(file("a", "/x/y"), file("b", "/x")), `resources[0].file.path: "/x/y" lies below "/x"`},
		{"directory after its file", valid(file("a", "/x/y/z"), dir("b", "/x")), `resources[1].directory.path: "/x" is declared after "a", which lies in it`},
		{"short mode", with(file("a", "/x"), func(r *declaration.Resource) { r.File.Mode = "644" }), "wanted four octal digits"},
		{"mode not octal", with(dir("a", "/x"), func(r *declaration.Resource) { r.Directory.Mode = "0788" }), "directory.mode"},
		{"owner by number", with(file("a", "/x"), func(r *declaration.Resource) { r.File.Owner = "0" }), `file.owner: "0" is not allowed; wanted the name of a user`},
		{"group", with(dir("a", "/x"), func(r *declaration.Resource) { r.Directory.Group = "a b" }), "directory.group"},
		{"content not UTF-8", with(file("a", "/x"), func(r *declaration.Resource) { r.File.Content = "\xff" }), "file.content: it is not UTF-8"},
		{"package as an option", valid(pkg("a", "--purge")), "wanted the name of a Debian package"},
		{"package that removes", valid(pkg("a", "nginx-")), "package.name"},
		{"version as an option", with(pkg("a", "nginx"), func(r *declaration.Resource) { r.Package.Version = "-y" }), "wanted an exact Debian version"},
		{"version with a space", with(pkg("a", "nginx"), func(r *declaration.Resource) { r.Package.Version = "1 2" }), "package.version"},
		{"unit without suffix", valid(service("a", "nginx")), "wanted a systemd unit with its suffix"},
		{"template", valid(service("a", "getty@.service")), "service.unit"},
		{"unit as a path", valid(service("a", "../x.service")), "service.unit"},
		{"the host's own unit", valid(service("a", "mesh-host.service")), "is the host's own unit"},
		{"state", with(service("a", "x.service"), func(r *declaration.Resource) { r.Service.State = "started" }), `"started" is not allowed; wanted "running", "stopped" or "masked"`},
		{"final in format 1", func() declaration.Declaration { d := valid(); d.Final = true; return d }(), "final: format 1 has no such word"},
		{"final with resources", func() declaration.Declaration { d := second(file("a", "/a")); d.Final = true; return d }(), "final: 1 resources are declared beside it"},
		{"masked and enabled", second(declaration.Resource{ID: "x", Service: &declaration.Service{Unit: "x.service", State: "masked", Enabled: new(true)}}), "a masked unit cannot be enabled"},
		{"content twice", second(declaration.Resource{ID: "a", File: &declaration.File{Path: "/x", Content: "x", Blob: &declaration.Blob{Digest: strings.Repeat("0", 64), Bytes: 1}}}), "file.content: there is a blob, too"},
		{"digest in capitals", second(declaration.Resource{ID: "a", File: &declaration.File{Path: "/x", Blob: &declaration.Blob{Digest: strings.Repeat("A", 64), Bytes: 1}}}), "file.blob.digest"},
		{"blob of nothing", second(declaration.Resource{ID: "a", File: &declaration.File{Path: "/x", Blob: &declaration.Blob{Digest: strings.Repeat("0", 64)}}}), "file.blob.bytes: 0 is not allowed"},
		{"validate without a candidate", second(declaration.Resource{ID: "a", File: &declaration.File{Path: "/x", Validate: []string{"/bin/true"}}}), `0 of the arguments are "{}"`},
		{"validate by name", second(declaration.Resource{ID: "a", File: &declaration.File{Path: "/x", Validate: []string{"true", "{}"}}}), "wanted a program by its absolute path"},
		{"policy", second(declaration.Resource{ID: "a", File: &declaration.File{Path: "/x", Policy: "maybe"}}), `file.policy: "maybe" is not allowed`},
		{"release and version", second(declaration.Resource{ID: "a", Package: &declaration.Package{Name: "aa", Version: "1", Release: "x"}}), "exclude each other"},
		{"release as an option", second(declaration.Resource{ID: "a", Package: &declaration.Package{Name: "aa", Release: "-y"}}), "package.release"},
		{"deb without a version", second(declaration.Resource{ID: "a", Package: &declaration.Package{Name: "aa", Blob: &declaration.Blob{Digest: strings.Repeat("0", 64), Bytes: 1}}}), "wanted the version of the package in the blob"},
		{"reload and restart", second(file("b", "/x"), declaration.Resource{ID: "a", Service: &declaration.Service{Unit: "a.service", RestartOn: []string{"b"}, ReloadOn: []string{"b"}}}), "is in restart_on, too"},
		{"reload on itself", second(declaration.Resource{ID: "a", Service: &declaration.Service{Unit: "a.service", ReloadOn: []string{"a"}}}), "because of itself"},
		{"restart on itself", valid(service("a", "x.service", "a")), "a service cannot be restarted because of itself"},
		{"restart on a later one", valid(service("a", "x.service", "b"), file("b", "/x")), `"b" is not the id of a resource declared before this one`},
		{"restart on one twice", valid(file("b", "/x"), service("a", "x.service", "b", "b")), `restart_on[1]: "b" is listed twice`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := tc.d.Check(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("\n got: %v\nwant: …%s…", err, tc.want)
			}
		})
	}
}

func TestCheckJoinsProblems(t *testing.T) {
	err := valid(file("A", "x"), dir("b", "/proc")).Check()
	want := `declaration refused, 3 problems:
  resources[0].id: "A" is not allowed; wanted parts of a-z, 0-9 and - joined by /
  resources[0].file.path: "x" is not absolute
  resources[1].directory.path: "/proc" is in /proc, where nothing can be owned`
	if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" {
		t.Error(diff)
	}
}

func TestKindAndWhere(t *testing.T) {
	for _, tc := range []struct {
		r     declaration.Resource
		kind  declaration.Kind
		where string
	}{
		{dir("a", "/x"), declaration.KindDirectory, "/x"},
		{file("a", "/y"), declaration.KindFile, "/y"},
		{pkg("a", "nginx"), declaration.KindPackage, "nginx"},
		{service("a", "x.service"), declaration.KindService, "x.service"},
		{container("a", "web"), declaration.KindContainer, "web"},
		{declaration.Resource{ID: "a"}, "", ""},
	} {
		if tc.r.Kind() != tc.kind || tc.r.Where() != tc.where {
			t.Errorf("%+v: %q %q, want %q %q", tc.r, tc.r.Kind(), tc.r.Where(), tc.kind, tc.where)
		}
	}
}
