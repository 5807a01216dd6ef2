package libvirt_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/machine"
	"mesh/lab/machine/libvirt"
)

// clone is a machine that fits testdata/saved.xml, with all else its own.
func clone() machine.Spec {
	return machine.Spec{
		Name: "mesh-other-node-two", UUID: "6ba7b813-9dad-41d1-80b4-00c04fd430c8", Run: "decaf",
		Accelerator: machine.TCG, MemoryBytes: 512 << 20, CPUs: 1,
		Disk:    "/var/lib/mesh-lab/scenarios/other/two.qcow2",
		Kernel:  "/var/lib/mesh-lab/images/other/vmlinuz",
		Initrd:  "/var/lib/mesh-lab/images/other/initrd",
		Cmdline: "root=/dev/vda rw console=ttyS0 systemd.hostname=two",
		NICs: []machine.NIC{
			{MAC: "52:54:00:00:00:01", Tap: "mldecaf0"},
			{MAC: "52:54:00:00:00:02", Tap: "mldecaf1"},
		},
		ConsoleLog:  "/var/lib/mesh-lab/scenarios/other/two.console",
		ConsoleSock: "/run/mesh-lab/other/two.sock",
	}
}

func saved(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("testdata/saved.xml") // as libvirt writes it, with a throttled disk and a pulled cable
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func cloned(t *testing.T) string {
	t.Helper()
	text, err := libvirt.CloneXML(saved(t), clone(), "/usr/bin/qemu-system-x86_64",
		"/var/lib/mesh-lab/scenarios/other/base.qcow2", "/var/lib/mesh-lab/images/other/disk.qcow2")
	if err != nil {
		t.Fatal(err)
	}
	return text + "\n"
}

func TestCloneGolden(t *testing.T) {
	got, file := cloned(t), filepath.Join("testdata", "clone.xml")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-want +got; -update accepts):\n%s", diff)
	}
}

// Case L7: no name of the source appears in a clone.
func TestCaseL7NothingOfTheSourceIsInTheClone(t *testing.T) {
	got := cloned(t)
	for _, of := range []string{"first-node", "debian-13", "0badcafe", "6ba7b810", "6ba7b811", "hostname=one", "/usr/local/"} {
		if strings.Contains(got, of) {
			t.Errorf("the clone still says %q", of)
		}
	}
}

func TestSpecOfTheMachineInAnImage(t *testing.T) {
	got, err := libvirt.SpecOf(saved(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := clone().Fits(got); err != nil {
		t.Error(err)
	}
	other := clone()
	other.Display, other.Kernel, other.CPUs = true, "", 2
	other.MemoryBytes *= 2
	other.Accelerator = machine.KVM
	other.NICs = other.NICs[:1]
	if err := other.Fits(got); !errors.Is(err, machine.ErrForeign) || strings.Count(err.Error(), "\n") != 5 {
		t.Errorf("six differences: %v", err)
	}
	text := saved(t)
	for what, broken := range map[string]string{
		"no disk":          without(t, text, "<disk ", "</disk>"),
		"a disk elsewhere": strings.Replace(text, "<disk type='file'", "<disk type='block'", 1),
		"no memory":        without(t, text, "<memory ", "</memory>"),
		"odd memory":       strings.Replace(text, "<memory unit='KiB'", "<memory unit='furlong'", 1),
		"no serial port":   without(t, text, "<serial ", "</serial>"),
		"no devices":       without(t, text, "<devices>", "</devices>"),
		"no XML":           text[:100],
	} {
		if s, err := libvirt.SpecOf(broken); err == nil {
			t.Errorf("%s: taken for %+v", what, s)
		}
	}
}

// without cuts out what stands between two marks, and the marks.
func without(t *testing.T, text, from, to string) string {
	t.Helper()
	before, rest, found := strings.Cut(text, from)
	_, after, ended := strings.Cut(rest, to)
	if !found || !ended {
		t.Fatalf("no %s … %s", from, to)
	}
	return before + after
}

// platform is what an image of the tests' was written on.
var platform = machine.Platform{Emulator: "qemu 7.2.5", MachineType: "pc-q35-7.2", CPU: "Nehalem", Accelerator: machine.TCG}

func TestOnlyWhatThisMachineHasIsRestored(t *testing.T) {
	tests := []struct {
		name   string
		change func(here *machine.Platform)
		want   string // empty: restorable
	}{
		{"the same", func(*machine.Platform) {}, ""},
		{"a later build", func(p *machine.Platform) { p.Emulator = "qemu 7.2.22" }, ""},
		{"an earlier build", func(p *machine.Platform) { p.Emulator = "qemu 7.2.0" }, ""},
		{"a newer QEMU", func(p *machine.Platform) { p.Emulator = "qemu 10.0.2" }, ""},
		{"an older QEMU", func(p *machine.Platform) { p.Emulator = "qemu 6.9.9" }, "written by qemu 7.2.5, here is only qemu 6.9.9"},
		{"an older minor", func(p *machine.Platform) { p.Emulator = "qemu 7.1.9" }, "here is only qemu 7.1.9"},
		{"another program", func(p *machine.Platform) { p.Emulator = "bochs 2.7" }, `here is "bochs 2.7"`},
		{"another machine type", func(p *machine.Platform) { p.MachineType = "pc-q35-9.0" }, "machine type pc-q35-7.2"},
		{"another processor", func(p *machine.Platform) { p.CPU = "EPYC" }, "processor Nehalem, here is EPYC"},
		{"another accelerator", func(p *machine.Platform) { p.Accelerator = machine.KVM }, "under tcg, here is kvm"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			here := platform
			tt.change(&here)
			err := libvirt.Restorable(platform, here)
			if tt.want == "" && err != nil || tt.want != "" && (!errors.Is(err, machine.ErrForeign) || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestWhatQEMUCannotLoadIsForeign(t *testing.T) {
	if err := libvirt.Refused(errors.New("qemu: load of migration failed: Invalid argument")); !errors.Is(err, machine.ErrForeign) {
		t.Error(err)
	}
	if err := libvirt.Refused(errors.New("no space left")); errors.Is(err, machine.ErrForeign) {
		t.Error(err)
	}
}

// imageFile is a whole memory image of the tests': header, state and seal.
func imageFile(t *testing.T, state string) (file string, size int64) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "memory")
	content := append(libvirt.SaveImage{XML: "<domain/>", Cookie: "<cookie/>"}.Header(), state...)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := libvirt.AddSeal(f, platform); err != nil {
		t.Fatal(err)
	}
	return file, int64(len(content))
}

func TestTheSealFindsEveryCut(t *testing.T) {
	file, size := imageFile(t, "state")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, p, err := libvirt.ReadSeal(bytes.NewReader(whole), int64(len(whole)))
	if err != nil || got != size || p != platform {
		t.Errorf("seal of %d bytes: %d, %+v, %v", size, got, p, err)
	}
	for n := range len(whole) {
		if _, _, err := libvirt.ReadSeal(bytes.NewReader(whole[:n]), int64(n)); !errors.Is(err, machine.ErrForeign) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
		if _, _, err := libvirt.ReadSeal(bytes.NewReader(whole[n+1:]), int64(len(whole)-n-1)); !errors.Is(err, machine.ErrForeign) {
			t.Errorf("without its first %d bytes: %v", n+1, err)
		}
	}
}

func TestASealIsShort(t *testing.T) {
	text := `{"bytes":0,"platform":{}` + strings.Repeat(" ", 4<<10) + "}"
	b := append(binary.LittleEndian.AppendUint32([]byte(text), uint32(len(text))), "mesh-memory-seal"...)
	if _, _, err := libvirt.ReadSeal(bytes.NewReader(b), int64(len(b))); !errors.Is(err, machine.ErrForeign) {
		t.Errorf("one of %d bytes: %v", len(text), err)
	}
}

func TestOnlyTheKnownFormIsRead(t *testing.T) {
	good := libvirt.SaveImage{Running: true, XML: "<domain/>", Cookie: "<cookie/>"}
	set := func(offset int, value uint32) func(b []byte) []byte {
		return func(b []byte) []byte { binary.LittleEndian.PutUint32(b[offset:], value); return b }
	}
	tests := []struct {
		name   string
		change func(b []byte) []byte
		want   string
	}{
		{"whole", func(b []byte) []byte { return b }, ""},
		{"nothing", func([]byte) []byte { return nil }, "it has 0 bytes"},
		{"less than a header", func(b []byte) []byte { return b[:91] }, "it has 91 bytes"},
		{"unfinished", func(b []byte) []byte { return append([]byte("LibvirtQemudPart"), b[16:]...) }, "never finished"},
		{"another file", func(b []byte) []byte { return append([]byte("\x7fELF"), b[4:]...) }, `begins with "\x7fELFirtQemudSave"`},
		{"the next version", set(16, 3), "of version 3"},
		{"the last version", set(16, 1), "of version 1"},
		{"big-endian", set(16, 2<<24), "of version 33554432"},
		{"compressed", set(28, 2), "in form 2"},
		{"sparse", set(28, 6), "in form 6"},
		{"no document", set(20, 0), "0 bytes"},
		{"a huge document", set(20, 1<<31), "2147483648 bytes"},
		{"a cookie behind the document", set(32, 1000), "byte 1000"},
		{"cut within the document", func(b []byte) []byte { return b[:95] }, "cut short"},
		{"a document without an end", func(b []byte) []byte { b[92+9] = 'x'; return b }, "its document has no end"},
		{"a cookie without an end", func(b []byte) []byte { b[len(b)-1] = 'x'; return b }, "its cookie has no end"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := tt.change(good.Header())
			got, state, err := libvirt.ReadSaveImage(bytes.NewReader(b))
			if tt.want != "" {
				if !errors.Is(err, machine.ErrForeign) || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%v, want %q", err, tt.want)
				}
				return
			}
			if err != nil || got != good || state != int64(len(b)) {
				t.Errorf("%+v, state at %d, %v", got, state, err)
			}
		})
	}
}

// FuzzReadSaveImage: what is read is written as it was, and is all of it.
func FuzzReadSaveImage(f *testing.F) {
	f.Add(libvirt.SaveImage{Running: true, XML: "<domain/>", Cookie: "<cookie/>"}.Header())
	f.Add(libvirt.SaveImage{XML: "<domain/>"}.Header())
	f.Add(append(libvirt.SaveImage{}.Header(), "state"...))
	f.Add([]byte("LibvirtQemudSave"))
	f.Fuzz(func(t *testing.T, b []byte) {
		image, state, err := libvirt.ReadSaveImage(bytes.NewReader(b))
		if err != nil {
			return
		}
		if state > int64(len(b)) {
			t.Errorf("the state begins at %d of %d", state, len(b))
		}
		again, _, err := libvirt.ReadSaveImage(bytes.NewReader(image.Header()))
		if err != nil || again != image {
			t.Errorf("%+v became %+v, %v", image, again, err)
		}
	})
}

// FuzzReadSeal: no seal claims more than there is.
func FuzzReadSeal(f *testing.F) {
	f.Add([]byte("state{\"bytes\":5,\"platform\":{}}\x1a\x00\x00\x00mesh-memory-seal"))
	f.Add([]byte("\xff\xff\xff\xffmesh-memory-seal"))
	f.Add([]byte("\x00\x00\x00\x00mesh-memory-seal"))
	f.Fuzz(func(t *testing.T, b []byte) {
		size, _, err := libvirt.ReadSeal(bytes.NewReader(b), int64(len(b)))
		if err == nil && (size < 0 || size > int64(len(b))) {
			t.Errorf("an image of %d bytes within %d", size, len(b))
		}
	})
}
