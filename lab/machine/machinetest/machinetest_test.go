package machinetest_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/machine"
	"mesh/lab/machine/bootsector"
	"mesh/lab/machine/machinetest"
)

func kit(t *testing.T) machinetest.Kit {
	h := machinetest.New()
	return machinetest.Kit{
		Hypervisor:  h,
		Accelerator: machine.TCG,
		Disk:        func(*testing.T, []byte, string) {},
		Overlay: func(t *testing.T, base, path string) {
			if err := machinetest.Overlay(base, path); err != nil {
				t.Fatal(err)
			}
		},
		Count: func(_ *testing.T, s machine.Spec) int { return h.Count(s.Name) },
		Dir:   t.TempDir(),
		Run:   "fake",
	}
}

func TestConformance(t *testing.T) { machinetest.RunConformance(t, kit) }

func TestTheWorldIsShownAsText(t *testing.T) {
	k := kit(t)
	k.Dir = "/nowhere"
	h := k.Hypervisor.(*machinetest.Hypervisor)
	one, two := k.Spec(t, "one", bootsector.Halt()), k.Spec(t, "two", bootsector.Halt())
	one.Kernel, one.Initrd, one.Cmdline = "/i/vmlinuz", "/i/initrd", "root=/dev/vda quiet"
	one.NICs = []machine.NIC{{MAC: "52:54:00:00:00:01", Tap: "ml-a"}}
	for _, s := range []machine.Spec{two, one} {
		if err := h.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Resume(t.Context(), two.Name); err != nil {
		t.Fatal(err)
	}
	want := `mesh-test-fake-one paused run=fake accelerator=tcg memory=16MiB cpus=1 disk=/nowhere/one.qcow2
  boot /i/vmlinuz /i/initrd "root=/dev/vda quiet"
  nic 52:54:00:00:00:01 ml-a
mesh-test-fake-two running run=fake accelerator=tcg memory=16MiB cpus=1 disk=/nowhere/two.qcow2
`
	if diff := cmp.Diff(want, h.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	h.End(two.Name, machine.Death{Cause: machine.Failed, Stderr: "out of luck"})
	if d, err := h.Wait(t.Context(), two.Name); err != nil || d.Cause != machine.Failed {
		t.Errorf("wait: %+v, %v", d, err)
	}
}

func TestOneTapIsNotGivenToTwoMachines(t *testing.T) {
	k := kit(t)
	one, two := k.Spec(t, "one", bootsector.Halt()), k.Spec(t, "two", bootsector.Halt())
	one.NICs = []machine.NIC{{MAC: "52:54:00:00:00:01", Tap: "ml-a"}}
	two.NICs = []machine.NIC{{MAC: "52:54:00:00:00:01", Tap: "ml-a"}} // the address may: another scenario has it
	if err := k.Hypervisor.Create(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	if err := k.Hypervisor.Create(t.Context(), two); err == nil {
		t.Error("both have it")
	}
	two.NICs[0].Tap = "ml-b"
	if err := k.Hypervisor.Create(t.Context(), two); err != nil {
		t.Error(err)
	}
}
