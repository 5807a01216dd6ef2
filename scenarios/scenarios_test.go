package scenarios_test

import (
	"net/netip"
	"testing"

	"github.com/goccy/go-yaml"

	"mesh/lab/scenario"
	"mesh/lab/underlay"
	"mesh/scenarios"
)

func parse(t *testing.T, name string) *scenario.Scenario {
	t.Helper()
	f, err := scenarios.Files.Open(name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := scenario.Parse(name+".yaml", f)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestFilesShip: what a shipped scenario places ships with it.
func TestFilesShip(t *testing.T) {
	for _, name := range scenarios.Names() {
		if err := parse(t, name).CheckFiles(scenarios.Files).Err(); err != nil {
			t.Errorf("%v\n(mesh-plane bundle --config scenarios/first-node/plane.yaml writes a bundle)", err)
		}
	}
}

// TestFirstNodeAddress: the plane of first-node tells nodes to dial the address
// that the underlay gives to the machine it is raised on.
func TestFirstNodeAddress(t *testing.T) {
	text, err := scenarios.Files.ReadFile("first-node/plane.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var plane struct{ Addresses []string }
	if err := yaml.Unmarshal(text, &plane); err != nil || len(plane.Addresses) != 1 {
		t.Fatalf("%v, addresses %v", err, plane.Addresses)
	}
	u, err := underlay.Plan(parse(t, "first-node"), "00000000")
	if err != nil {
		t.Fatal(err)
	}
	one := u.Machines[0]
	want := netip.AddrPortFrom(one.NICs[0].IPv4.Addr(), 7443).String()
	if one.Name != "one" || plane.Addresses[0] != want {
		t.Errorf("plane.yaml says %s, machine %s is at %s", plane.Addresses[0], one.Name, want)
	}
}
