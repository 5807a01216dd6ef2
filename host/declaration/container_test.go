package declaration_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mesh/host/declaration"
)

const image = "registry.example/shop/web@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func container(id, name string) declaration.Resource {
	return declaration.Resource{ID: id, Container: &declaration.Container{Name: name, Image: image}}
}

// third is a declaration of format 3.
func third(resources ...declaration.Resource) declaration.Declaration {
	d := valid(resources...)
	d.Format = 3
	return d
}

// anyContainer draws one that no other of a list conflicts with.
func anyContainer(t *rapid.T, i int) *declaration.Container {
	line := rapid.StringOf(rapid.RuneFrom(nil, unicode.Letter, unicode.Punct, unicode.Symbol, unicode.Nd))
	return &declaration.Container{
		Name: fmt.Sprintf("c%d", i), Image: image, Network: rapid.SampledFrom([]string{"", "own"}).Draw(t, "network"),
		Arguments:   rapid.SliceOfN(line.Filter(func(s string) bool { return s != "" }), 1, 3).Draw(t, "arguments"),
		Environment: []declaration.Variable{{Name: "A", Value: line.Draw(t, "value")}},
		Ports:       []declaration.Port{{Port: uint16(i + 1), To: rapid.Uint16Min(1).Draw(t, "port")}},
		Volumes:     []declaration.Volume{{Source: "/srv/v", Target: "/v", ReadOnly: rapid.Bool().Draw(t, "read only")}},
	}
}

// wholeContainer has every word a container can have.
func wholeContainer() declaration.Declaration {
	return third(
		file("shop/key", "/etc/shop/key"),
		declaration.Resource{ID: "shop/web", Container: &declaration.Container{
			Name: "web", Image: image, Network: declaration.NetworkOwn,
			Arguments:   []string{"--listen", ":80", `a "quoted" $word of 100 %`},
			Environment: []declaration.Variable{{Name: "LANG", Value: "C.UTF-8"}, {Name: "EMPTY"}},
			Ports: []declaration.Port{
				{Port: 8080, To: 80}, {Address: "127.0.0.1", Port: 53, To: 5353, Protocol: "udp"}, {Address: "::1", Port: 53, To: 5353, Protocol: "udp"},
			},
			Volumes:   []declaration.Volume{{Source: "/srv/shop", Target: "/data"}, {Source: "shop-cache", Target: "/cache"}, {Source: "/etc/ssl/certs", Target: "/etc/ssl/certs", ReadOnly: true}},
			Secrets:   []declaration.Secret{{Name: "key", Path: "/etc/shop/key"}},
			RestartOn: []string{"shop/key"},
		}},
	)
}

// TestContainerCanonical: the bytes of format 3, so that a member is never renamed
// by accident.
func TestContainerCanonical(t *testing.T) {
	got, err := wholeContainer().Canonical()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("testdata/container.json", got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/container.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got) {
		t.Errorf("(-want +got):\n%s", cmp.Diff(string(want), string(got)))
	}
	back, err := declaration.Parse(got)
	if diff := cmp.Diff(wholeContainer(), back); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestBadInputContainers is what people and machines get wrong about a container.
func TestBadInputContainers(t *testing.T) {
	with := func(change func(*declaration.Container)) declaration.Declaration {
		r := container("a", "web")
		change(r.Container)
		return third(r)
	}
	volume := func(source, target string) declaration.Declaration {
		return with(func(c *declaration.Container) {
			c.Volumes = []declaration.Volume{{Source: source, Target: target}}
		})
	}
	ports := func(all ...declaration.Port) declaration.Declaration {
		return with(func(c *declaration.Container) { c.Ports = all })
	}
	for _, tc := range []struct {
		name string
		d    declaration.Declaration
		want string
	}{
		{"no image", with(func(c *declaration.Container) { c.Image = "" }), `container.image: "" is not allowed`},
		{"a tag", with(func(c *declaration.Container) { c.Image = "registry.example/web:1.2" }), `container.image: "registry.example/web:1.2" has no digest, so it can be another image tomorrow`},
		{"a tag and a digest", with(func(c *declaration.Container) { c.Image = strings.Replace(image, "@", ":1.2@", 1) }), "wanted registry/repository@sha256:digest"},
		{"a short digest", with(func(c *declaration.Container) { c.Image = image[:len(image)-1] }), "wanted registry/repository@sha256:digest"},
		{"another digest", with(func(c *declaration.Container) { c.Image = strings.Replace(image, "sha256", "sha512", 1) }), "wanted registry/repository@sha256:digest"},
		{"no registry", with(func(c *declaration.Container) {
			c.Image = strings.TrimPrefix(image, "registry.example/")
		}), `"shop" is not the name of a registry`},
		{"an image as an option", with(func(c *declaration.Container) { c.Image = "--" + image }), "wanted registry/repository@sha256:digest"},
		{"a repository upwards", with(func(c *declaration.Container) { c.Image = strings.Replace(image, "shop", "..", 1) }), "wanted registry/repository@sha256:digest"},
		{"no name", third(container("a", "")), `container.name: "" is not allowed`},
		{"a name with a dot", third(container("a", "web.container")), "container.name"},
		{"a name as a path", third(container("a", "../web")), "container.name"},
		{"a name twice", third(container("a", "web"), container("b", "web")), `container web is declared by "a" already`},
		{"its unit as a service", third(container("a", "web"), service("b", "mesh-web.service")), `unit mesh-web.service is declared by "a" already`},
		{"its unit file as a file", third(file("b", "/etc/containers/systemd/mesh-web.container"), container("a", "web")), `path /etc/containers/systemd/mesh-web.container is declared by "b" already`},
		{"an empty argument", with(func(c *declaration.Container) { c.Arguments = []string{"x", ""} }), "container.arguments[1]: it is empty"},
		{"an argument of two lines", with(func(c *declaration.Container) { c.Arguments = []string{"a\nImage=b"} }), "container.arguments[0]: "},
		{"a variable of two lines", with(func(c *declaration.Container) {
			c.Environment = []declaration.Variable{{Name: "A", Value: "a\n[Service]"}}
		}), "container.environment[0].value: "},
		{"a variable without a name", with(func(c *declaration.Container) { c.Environment = []declaration.Variable{{Name: "A=B"}} }), "container.environment[0].name"},
		{"a variable twice", with(func(c *declaration.Container) { c.Environment = []declaration.Variable{{Name: "A"}, {Name: "A"}} }), "container.environment[1].name: A is there already"},
		{"a variable too long", with(func(c *declaration.Container) {
			c.Environment = []declaration.Variable{{Name: "A", Value: strings.Repeat("x", 1<<16)}}
		}), "65536 bytes, at most 32768 are allowed"},
		{"another network", with(func(c *declaration.Container) { c.Network = "bridge" }), `"bridge" is not allowed; wanted "own", "host" or "none"`},
		{"ports of the machine's network", with(func(c *declaration.Container) {
			c.Network, c.Ports = "host", []declaration.Port{{Port: 1, To: 1}}
		}), `there are none to let through with network "host"`},
		{"no port", ports(declaration.Port{To: 80}), "ports[0].port: 0 is not a port"},
		{"no port inside", ports(declaration.Port{Port: 80}), "ports[0].to: 0 is not a port"},
		{"a port twice", ports(declaration.Port{Port: 80, To: 80}, declaration.Port{Port: 80, To: 81}), `ports[1].port: port 80/tcp is that of "a" already`},
		{"a port twice, once by its address", ports(declaration.Port{Port: 80, To: 80, Address: "192.0.2.1"}, declaration.Port{Port: 80, To: 81, Protocol: "tcp"}), `ports[1].port: port 80/tcp`},
		{"a port twice, by two names of an address", ports(declaration.Port{Port: 80, To: 80, Address: "192.0.2.1"}, declaration.Port{Port: 80, To: 80, Address: "::ffff:192.0.2.1"}), `ports[1].port: port 80/tcp`},
		{"a port of two containers", func() declaration.Declaration {
			a, b := container("a", "one"), container("b", "two")
			a.Container.Ports, b.Container.Ports = []declaration.Port{{Port: 80, To: 80}}, []declaration.Port{{Port: 80, To: 8080}}
			return third(a, b)
		}(), `resources[1].container.ports[0].port: port 80/tcp is that of "a" already`},
		{"a port at a name", ports(declaration.Port{Port: 80, To: 80, Address: "localhost"}), `ports[0].address: "localhost" is not allowed`},
		{"another protocol", ports(declaration.Port{Port: 80, To: 80, Protocol: "TCP"}), `ports[0].protocol: "TCP" is not allowed`},
		{"a relative volume", volume("./data", "/data"), `volumes[0].source: "./data" is not allowed; wanted an absolute path, or the name of a volume`},
		{"an unclean volume", volume("/srv/../etc", "/data"), `is not clean; wanted "/etc"`},
		{"the whole machine", volume("/", "/data"), "volumes[0].source: the root directory"},
		{"the kernel's", volume("/proc", "/data"), "is in /proc"},
		{"a device", volume("/dev/kmsg", "/data"), "is in /dev"},
		{"the host's record", volume("/var/lib/mesh-host", "/data"), "is in /var/lib/mesh-host"},
		{"what the host's record is in", volume("/var/lib", "/data"), `"/var/lib" has /var/lib/mesh-host in it, which no container may see`},
		{"what the host does", volume("/run", "/data"), `"/run" has /run/mesh-host in it`},
		{"a volume with an option", volume("/srv/data:z", "/data"), `"/srv/data:z" is not allowed; wanted a path of letters`},
		{"a volume of another kind of unit", volume("data.volume", "/data"), "volumes[0].source"},
		{"a target with a space", volume("/srv/a", "/a b"), "volumes[0].target"},
		{"a relative target", volume("/srv/a", "data"), `"data" is not absolute`},
		{"a target in place of the root", volume("/srv/a", "/"), "volumes[0].target"},
		{"a target among the secrets", volume("/srv/a", "/run/secrets/x"), `volumes[0].target: "/run/secrets/x" is where secrets are`},
		{"a target twice", with(func(c *declaration.Container) {
			c.Volumes = []declaration.Volume{{Source: "/srv/a", Target: "/a"}, {Source: "b", Target: "/a"}}
		}), `volumes[1].target: "/a" is there already`},
		{"a secret without a path", with(func(c *declaration.Container) { c.Secrets = []declaration.Secret{{Name: "key"}} }), "secrets[0].path: it is empty"},
		{"a secret upwards", with(func(c *declaration.Container) {
			c.Secrets = []declaration.Secret{{Name: "../../etc/passwd", Path: "/etc/key"}}
		}), "secrets[0].name"},
		{"a secret of the host's", with(func(c *declaration.Container) {
			c.Secrets = []declaration.Secret{{Name: "key", Path: "/var/lib/mesh-host/identity/member"}}
		}), "secrets[0].path: "},
		{"a secret twice", with(func(c *declaration.Container) {
			c.Secrets = []declaration.Secret{{Name: "key", Path: "/etc/a"}, {Name: "key", Path: "/etc/b"}}
		}), `secrets[1].name: "/run/secrets/key" is there already`},
		{"started anew because of itself", with(func(c *declaration.Container) { c.RestartOn = []string{"a"} }), "a container cannot be restarted because of itself"},
		{"started anew because of nothing", with(func(c *declaration.Container) { c.RestartOn = []string{"b"} }), `"b" is not the id of a resource declared before this one`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := tc.d.Check(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("\n got: %v\nwant: …%s…", err, tc.want)
			}
		})
	}
}

func TestContainersAccepted(t *testing.T) {
	one, two := container("a", "one"), container("b", "two")
	one.Container.Ports = []declaration.Port{{Address: "192.0.2.1", Port: 53, To: 53}, {Port: 53, To: 53, Protocol: "udp"}}
	two.Container.Ports = []declaration.Port{{Address: "192.0.2.2", Port: 53, To: 53}}
	two.Container.Image = "localhost:5000/x@sha256:" + strings.Repeat("0", 64)
	two.Container.RestartOn = []string{"a"}
	for name, d := range map[string]declaration.Declaration{
		"every word": wholeContainer(), "one port at two addresses": third(one, two),
	} {
		if err := d.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUnknownKeysOfContainers: what is not understood is refused with its place.
func TestUnknownKeysOfContainers(t *testing.T) {
	text := `{"format":3,"resources":[
{"id":"a","container":{"name":"web","image":"` + image + `","enviroment":[],
"ports":[{"port":80,"to":80,"host":1},{"port":70000,"to":80}],"privileged":true,"volumes":[{"source":"a"}]}}]}`
	_, err := declaration.ParseBundle([]byte(text))
	for _, want := range []string{
		`resources[0].container.enviroment: unknown member "enviroment"; did you mean "environment"?`,
		`line 3, column 29: resources[0].container.ports[0].host: unknown member "host"`,
		`resources[0].container.privileged: unknown member "privileged"`,
		`resources[0].container.volumes[0]: member "target" is missing`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("\n got: %v\nwant: …%s…", err, want)
		}
	}
}
