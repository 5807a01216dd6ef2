package verify_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"mesh/lab/verify"
)

func TestWithoutRootNothingElseIsTried(t *testing.T) {
	dir := t.TempDir()
	got, err := verify.Run(t.Context(), verify.Config{Store: dir + "/store", Runtime: dir + "/run", UID: 1000}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []verify.Result{{
		Check: "root", Verdict: verify.Missing, Remedy: "sudo lab verify",
		Seen: "running as user 1000: machines, namespaces and images need root, so nothing else was tried",
	}}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(verify.Result{}, "Took")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if verify.Able(got) {
		t.Error("able all the same")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("made %v, %v", entries, err)
	}
}

// Whatever this machine can do, nothing of having tried stays.
func TestNothingStays(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	t.Setenv("TMPDIR", filepath.Join("/tmp", "mlt-"+filepath.Base(t.TempDir())))
	tmp := os.Getenv("TMPDIR")
	if err := os.Mkdir(tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(tmp) })
	store := filepath.Join(t.TempDir(), "not", "yet")
	before, logsBefore := links(t), logs(t)
	var reported []verify.Result
	results, err := verify.Run(t.Context(), verify.Config{Store: store, Runtime: "/run/mesh-lab"}, func(r verify.Result) {
		reported = append(reported, r)
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(results, reported); diff != "" {
		t.Errorf("reported is not what came out:\n%s", diff)
	}
	unchecked := []string{"agent", "clock set"} // the store is empty
	optional := []string{"save and clone", "snapshot", "hot-plug", "impairments", "power cut"}
	var names []string
	for _, r := range results {
		t.Logf("%-15s %-8s %4.1fs %s", r.Check, r.Verdict, r.Took, r.Seen)
		names = append(names, r.Check)
		if r.Seen == "" || strings.Contains(r.Seen+r.Remedy, "\n") || (r.Verdict == verify.OK) != (r.Remedy == "") {
			t.Errorf("%+v", r)
		}
		if r.Verdict == verify.Optional && !slices.Contains(optional, r.Check) {
			t.Errorf("%s is called optional", r.Check)
		}
		if r.Verdict == verify.Unchecked && !slices.Contains(unchecked, r.Check) {
			t.Errorf("%s is called unchecked", r.Check)
		}
	}
	want := []string{
		"root", "memory", "disk space", "disk images", "file systems", "image bootstrap",
		"libvirt", "accelerator", "tiny machine", "save and clone", "snapshot", "hot-plug", "agent", "clock set",
		"tap", "bridge", "nftables NAT", "impairments", "power cut",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("checks (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(store); err == nil {
		t.Error("the store was made")
	}
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("temporary files are left: %v", left)
	}
	for _, link := range links(t) {
		if strings.HasPrefix(link, "mlv") && !slices.Contains(before, link) {
			t.Errorf("link %s is left", link)
		}
	}
	for _, log := range logs(t) {
		if !slices.Contains(logsBefore, log) {
			t.Errorf("log %s is left", log)
		}
	}
}

func logs(t *testing.T) []string {
	t.Helper()
	logs, err := filepath.Glob("/var/log/libvirt/qemu/mesh-verify-*")
	if err != nil {
		t.Fatal(err)
	}
	return logs
}

func links(t *testing.T) []string {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range all {
		names = append(names, l.Name)
	}
	return names
}

func TestAnInterruptedVerificationSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	results, err := verify.Run(ctx, verify.Config{Store: t.TempDir(), Runtime: t.TempDir()}, func(verify.Result) { cancel() })
	if !errors.Is(err, context.Canceled) || len(results) != 1 {
		t.Errorf("%v, %v", results, err)
	}
}

func TestAble(t *testing.T) {
	ok, missing, optional := verify.Result{Verdict: verify.OK}, verify.Result{Verdict: verify.Missing}, verify.Result{Verdict: verify.Optional}
	for _, tt := range []struct {
		results []verify.Result
		want    bool
	}{
		{nil, false},
		{[]verify.Result{ok}, true},
		{[]verify.Result{ok, optional, {Verdict: verify.Unchecked}}, true},
		{[]verify.Result{ok, missing, ok}, false},
	} {
		if got := verify.Able(tt.results); got != tt.want {
			t.Errorf("%v: %v", tt.results, got)
		}
	}
}

func TestAvailable(t *testing.T) {
	for text, want := range map[string]int64{
		"MemTotal:       24000000 kB\nMemAvailable:   1024 kB\n": 1 << 20,
		"MemTotal: 1 kB\n":        -1,
		"MemAvailable: lots kB\n": -1,
		"MemAvailable: 5 MB\n":    -1,
		"":                        -1,
	} {
		got, err := verify.Available(strings.NewReader(text))
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%q: %d, want %d (%v)", text, got, want, err)
		}
	}
}

func TestNearest(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		dir:                               dir,
		filepath.Join(dir, "a", "b", "c"): dir,
		file:                              "",
		filepath.Join(file, "below"):      "",
	} {
		if got, err := verify.Nearest(path); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", path, got, err, want)
		}
	}
}

func FuzzOneLine(f *testing.F) {
	f.Add("one\n two\tthree")
	f.Add(strings.Repeat("ä", 300))
	f.Fuzz(func(t *testing.T, text string) {
		got := verify.OneLine(text)
		if strings.ContainsAny(got, "\n\r\t") || len(got) > 250 || utf8.ValidString(text) && !utf8.ValidString(got) {
			t.Errorf("%q", got)
		}
	})
}
