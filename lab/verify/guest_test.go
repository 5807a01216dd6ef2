package verify_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/images"
	"mesh/lab/machine"
	"mesh/lab/machine/machinetest"
	"mesh/lab/verify"
)

// fake is a hypervisor without processes.
type fake struct{ *machinetest.Hypervisor }

func (fake) Version(context.Context) (string, error) { return "fake 1", nil }

// agentOf is the agent of a machine whose clock is an hour behind until it is
// set, and then off. A machine that is deaf does not answer.
func agentOf(off time.Duration, deaf bool) func(machine.Spec) machinetest.Agent {
	return func(machine.Spec) machinetest.Agent {
		if deaf {
			return nil
		}
		behind := time.Hour
		return func(_ context.Context, command string) (string, error) {
			var c struct {
				Execute   string
				Arguments struct {
					Input []byte `json:"input-data"`
				}
			}
			if err := json.Unmarshal([]byte(command), &c); err != nil {
				return "", err
			}
			switch c.Execute {
			case "guest-ping":
				return `{"return":{}}`, nil
			case "guest-get-time":
				return fmt.Sprintf(`{"return":%d}`, time.Now().Add(-behind).UnixNano()), nil
			case "guest-exec":
				if strings.HasPrefix(string(c.Arguments.Input), "clock ") {
					behind = off
				}
				return `{"return":{"pid":7}}`, nil
			case "guest-exec-status":
				return `{"return":{"exited":true,"exitcode":0}}`, nil
			}
			return "", fmt.Errorf("unknown command %s", c.Execute)
		}
	}
}

// warmStore is a store with one image and its warm image, and what tells where
// its layer is.
func warmStore(t *testing.T, platform machine.Platform) (store string, layer func(string) string) {
	t.Helper()
	store = t.TempDir()
	layer = func(id string) string { return filepath.Join(store, id+".qcow2") }
	digest, content := strings.Repeat("a", 64), strings.Repeat("b", 64)
	dir := filepath.Join(store, "images", digest)
	manifest := fmt.Sprintf(`{"format":1,"name":"one","digest":%q,"content":%q,"cmdline":"quiet"}`, digest, content)
	of := images.WarmOf{Image: "one", Content: content, Platform: platform, MemoryBytes: 1 << 20, CPUs: 1}
	making, err := images.WarmStore{Dir: store}.Begin(of.Digest(), "layer")
	if err != nil {
		t.Fatal(err)
	}
	spec := machine.Spec{
		Name: "source", UUID: "00000000-0000-4000-8000-000000000001", Run: "source", Accelerator: platform.Accelerator,
		MemoryBytes: of.MemoryBytes, CPUs: of.CPUs, Disk: layer("layer"), Kernel: filepath.Join(dir, "kernel"), Cmdline: "quiet",
		ConsoleLog: filepath.Join(store, "console"), ConsoleSock: "/run/console",
	}
	source := machinetest.New()
	_, err = exec.LookPath("qemu-img")
	if err != nil {
		t.Skip("needs qemu-img")
	}
	err = errors.Join(
		os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "manifest.json"), []byte(manifest), 0o644),
		exec.Command("qemu-img", "create", "-q", "-f", "qcow2", spec.Disk, "1M").Run(),
		source.Create(t.Context(), spec), source.Resume(t.Context(), spec.Name), source.Save(t.Context(), spec.Name, making.Memory),
	)
	if err == nil {
		_, err = making.Finish(of, spec.Disk, 40, time.Unix(0, 0))
	}
	if err != nil {
		t.Fatal(err)
	}
	return store, layer
}

// A whole guest is checked where one can be cloned, and only there; whatever
// comes of it, neither machine nor file is left.
func TestGuestChecks(t *testing.T) {
	here := machinetest.FakePlatform(machine.KVM)
	older := here
	older.Emulator = "fake 0.9.0"
	for name, tt := range map[string]struct {
		platform    machine.Platform
		accelerator machine.Accelerator
		off         time.Duration
		deaf        bool
		broken      string
		want        []verify.Verdict
		seen        []string // parts
	}{
		"all is well":          {here, machine.KVM, 20 * time.Millisecond, false, "", []verify.Verdict{verify.OK, verify.OK}, []string{"a clone of one answered", "was 1h0m"}},
		"a clock far off":      {here, machine.KVM, 150 * time.Millisecond, false, "", []verify.Verdict{verify.OK, verify.Missing}, []string{"", "more than 100ms"}},
		"a clock ahead":        {here, machine.KVM, -time.Minute, false, "", []verify.Verdict{verify.OK, verify.Missing}, []string{"", "more than 100ms"}},
		"no agent":             {here, machine.KVM, 0, true, "", []verify.Verdict{verify.Missing, verify.Missing}, []string{"guest agent", "guest agent"}},
		"another's images":     {older, machine.KVM, 0, false, "", []verify.Verdict{verify.Unchecked, verify.Unchecked}, []string{"not checked: no warm image", "not checked"}},
		"no clone":             {here, machine.KVM, 0, false, "restore", []verify.Verdict{verify.Unchecked, verify.Unchecked}, []string{"not checked: no clone of one: as told", ""}},
		"no accelerator":       {here, "", 0, false, "", []verify.Verdict{verify.Missing, verify.Missing}, []string{"see accelerator", "see accelerator"}},
		"what cannot be ended": {here, machine.KVM, 0, false, "forget", []verify.Verdict{verify.Missing, verify.Missing}, []string{"as told", "as told"}},
	} {
		t.Run(name, func(t *testing.T) {
			store, layer := warmStore(t, tt.platform)
			tmp := t.TempDir()
			t.Setenv("TMPDIR", tmp)
			h := fake{machinetest.New()}
			h.NewAgent = agentOf(tt.off, tt.deaf)
			h.Broken = func(method, _ string) error {
				if method == tt.broken {
					return errors.New("as told")
				}
				return nil
			}
			limit := time.Minute
			if tt.deaf {
				limit = time.Second
			}
			results := verify.OfGuests(t.Context(), limit, h, tt.accelerator, verify.Config{Store: store, Layer: layer})
			var verdicts []verify.Verdict
			for i, r := range results {
				verdicts = append(verdicts, r.Verdict)
				if !strings.Contains(r.Seen, tt.seen[i]) || (r.Verdict == verify.OK) != (r.Remedy == "") {
					t.Errorf("%+v", r)
				}
			}
			if diff := cmp.Diff(tt.want, verdicts); diff != "" {
				t.Errorf("(-want +got):\n%s\n%+v", diff, results)
			}
			if left, err := h.List(t.Context(), ""); err != nil || len(left) > 0 {
				t.Errorf("machines are left: %q, %v", left, err)
			}
			if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
				t.Errorf("files are left: %v, %v", left, err)
			}
		})
	}
}

// Of the warm images that can be restored here the smallest is chosen.
func TestSmallest(t *testing.T) {
	here := machinetest.FakePlatform(machine.TCG)
	warm := func(content string, memory int64, a machine.Accelerator) images.Warm {
		return images.Warm{Layer: content, Of: images.WarmOf{Content: content, MemoryBytes: memory, Platform: machinetest.FakePlatform(a)}}
	}
	built := []images.Image{{Name: "early"}, {Name: "one", Content: "a"}, {Name: "two", Content: "b"}}
	for _, tt := range []struct {
		warm []images.Warm
		want string
	}{
		{nil, ""},
		{[]images.Warm{warm("a", 8, machine.TCG), warm("b", 4, machine.TCG)}, "two"},
		{[]images.Warm{warm("a", 8, machine.TCG), warm("b", 4, machine.KVM)}, "one"},
		{[]images.Warm{warm("a", 8, machine.TCG), warm("gone", 4, machine.TCG)}, "one"},
		{[]images.Warm{warm("", 4, machine.TCG)}, ""},
	} {
		w, i, err := verify.Smallest(here, tt.warm, built)
		if i.Name != tt.want || w.Layer != i.Content || (err == nil) != (tt.want != "") {
			t.Errorf("%v: %q of %q, %v; want %q", tt.warm, w.Layer, i.Name, err, tt.want)
		}
	}
}

// TestWhereNoGuestRuns: what to do is said once, where the cause is.
func TestWhereNoGuestRuns(t *testing.T) {
	for _, r := range verify.OfGuests(t.Context(), time.Minute, fake{machinetest.New()}, "", verify.Config{Store: t.TempDir()}) {
		if r.Verdict != verify.Missing || r.Seen != "no guest runs, see accelerator" || r.Remedy != "what is to be done for accelerator" {
			t.Errorf("%+v", r)
		}
	}
}
