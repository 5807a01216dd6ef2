package apply_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/host/apply"
	"mesh/host/apply/applytest"
	"mesh/host/declaration"
	"mesh/host/store"
	"mesh/host/system"
	"mesh/host/system/systemtest"
)

// came makes one pass and says what became of the last resource.
func came(t *testing.T, m *systemtest.Machine, d apply.Desired) string {
	t.Helper()
	out, err := applytest.Pass(t.Context(), m, d)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Results) == 0 {
		return ""
	}
	last := out.Results[len(out.Results)-1]
	return strings.TrimSuffix(string(last.Status)+": "+last.Reason, ": ")
}

func put(m *systemtest.Machine, p, content string) {
	m.Disk.Put(p, systemtest.Thing{Type: system.TypeFile, Mode: 0o644, Content: content})
}

func content(m *systemtest.Machine, p string) string {
	c, there := m.Disk.Content(p)
	if !there {
		return "(nothing)"
	}
	return c
}

func viewOf(t *testing.T, m *systemtest.Machine) store.View {
	t.Helper()
	s, _, err := applytest.Open(m)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return s.View()
}

// TestPolicies brings a file of each policy through its life: made, changed by
// hand, changed by the declaration, removed by hand, not declared any more.
func TestPolicies(t *testing.T) {
	steps := []struct {
		name string
		do   func(m *systemtest.Machine)
		says string // content declared; empty: not declared
	}{
		{"first", func(*systemtest.Machine) {}, "1"},
		{"drift", func(m *systemtest.Machine) { put(m, "/etc/f", "by hand") }, "1"},
		{"other", func(*systemtest.Machine) {}, "2"},
		{"gone", func(m *systemtest.Machine) { m.Disk.Put("/etc/f", systemtest.Thing{}) }, "2"},
		{"end", func(*systemtest.Machine) {}, ""},
	}
	for policy, want := range map[declaration.Policy]string{
		declaration.PolicyEnforce:  "1 1 2 2 (nothing)",
		declaration.PolicyKeepCopy: "1 1 2 2 (nothing)",
		declaration.PolicyOnce:     "1 by hand by hand (nothing) (nothing)",
		declaration.PolicyReport:   "(nothing) by hand by hand (nothing) (nothing)",
	} {
		t.Run(string(policy), func(t *testing.T) {
			m := systemtest.New()
			var got []string
			for i, step := range steps {
				step.do(m)
				var all []declaration.Resource
				if step.says != "" {
					all = append(all, declaration.Resource{ID: "f", File: &declaration.File{Path: "/etc/f", Content: step.says, Policy: policy}})
				}
				came(t, m, applytest.Desired(uint64(i+1), all...))
				got = append(got, content(m, "/etc/f"))
			}
			if d := cmp.Diff(want, strings.Join(got, " ")); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestOnceLeavesWhatWasThereBefore(t *testing.T) {
	m := systemtest.New()
	put(m, "/etc/f", "theirs")
	f := declaration.Resource{ID: "f", File: &declaration.File{Path: "/etc/f", Content: "ours", Policy: declaration.PolicyOnce}}
	if got := came(t, m, applytest.Desired(1, f)); got != "in_sync" {
		t.Error(got)
	}
	came(t, m, applytest.Desired(2))
	if got := content(m, "/etc/f"); got != "theirs" {
		t.Error(got)
	}
}

func TestReportSaysHowAFileDiffers(t *testing.T) {
	m := systemtest.New()
	put(m, "/etc/f", "theirs")
	f := declaration.Resource{ID: "f", File: &declaration.File{Path: "/etc/f", Content: "ours", Policy: declaration.PolicyReport}}
	if got := came(t, m, applytest.Desired(1, f)); got != "kept: its content is another, which is reported and left so" {
		t.Error(got)
	}
	if owned := viewOf(t, m).Owned; len(owned) != 0 {
		t.Errorf("it is owned: %+v", owned)
	}
}

// TestKeepCopy keeps what others wrote, each once, before it is replaced.
func TestKeepCopy(t *testing.T) {
	m := systemtest.New()
	f := func(says string) declaration.Resource {
		return declaration.Resource{ID: "f", File: &declaration.File{Path: "/etc/f", Content: says, Policy: declaration.PolicyKeepCopy}}
	}
	put(m, "/etc/f", "before")
	came(t, m, applytest.Desired(1, f("1")))
	came(t, m, applytest.Desired(2, f("2"))) // replaces its own: no copy
	put(m, "/etc/f", "by hand")
	came(t, m, applytest.Desired(2, f("2")))
	var got []string
	for _, c := range viewOf(t, m).Copies {
		data, err := m.ReadContent(c.Digest)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, c.Where+" "+string(data))
	}
	if d := cmp.Diff([]string{"/etc/f before", "/etc/f by hand"}, got); d != "" {
		t.Error(d)
	}
}

// TestKeepCopyOrNothing: what cannot be kept is not replaced.
func TestKeepCopyOrNothing(t *testing.T) {
	m := systemtest.New()
	put(m, "/etc/f", "by hand")
	m.Hook(func(op systemtest.Op) error {
		if op.Changes && strings.Contains(op.Where, "/content") {
			return errors.New("no space left on device")
		}
		return nil
	})
	f := declaration.Resource{ID: "f", File: &declaration.File{Path: "/etc/f", Content: "1", Policy: declaration.PolicyKeepCopy}}
	got := came(t, m, applytest.Desired(1, f))
	if !strings.Contains(got, "failed: nothing was done, because what is there could not be kept") || content(m, "/etc/f") != "by hand" {
		t.Errorf("%s; %s", got, content(m, "/etc/f"))
	}
}

// TestKeepCopyOfTooMuch: what is larger than any copy is not replaced either.
func TestKeepCopyOfTooMuch(t *testing.T) {
	m := systemtest.New()
	theirs := strings.Repeat("x", system.MaxContent+1)
	put(m, "/etc/f", theirs)
	f := declaration.Resource{ID: "f", File: &declaration.File{Path: "/etc/f", Content: "1", Policy: declaration.PolicyKeepCopy}}
	got := came(t, m, applytest.Desired(1, f))
	if !strings.Contains(got, "failed: nothing was done, because what is there could not be kept") || content(m, "/etc/f") != theirs {
		t.Errorf("%s; %d bytes are there", got, len(content(m, "/etc/f")))
	}
}

// TestValidate runs the command on the new file, where it lies, before it
// replaces the old one.
func TestValidate(t *testing.T) {
	m := systemtest.New()
	m.Programs = map[string]func(string) error{"/usr/sbin/visudo": func(content string) error {
		if strings.Contains(content, "wrong") {
			return errors.New("syntax error on line 1")
		}
		return nil
	}}
	f := func(says string) declaration.Resource {
		return declaration.Resource{ID: "f", File: &declaration.File{
			Path: "/etc/sudoers", Content: says, Mode: "0440", Validate: []string{"/usr/sbin/visudo", "-cf", "{}"}}}
	}
	var ran []string
	m.Hook(func(op systemtest.Op) error {
		if op.Name == "run" {
			ran = append(ran, op.Where)
		}
		return nil
	})
	if got := came(t, m, applytest.Desired(1, f("right"))); !strings.HasPrefix(got, "changed") {
		t.Error(got)
	}
	if want := "/usr/sbin/visudo -cf /etc/" + system.Temporary("sudoers"); len(ran) != 1 || ran[0] != want {
		t.Errorf("%q, want %q", ran, want)
	}
	if got := came(t, m, applytest.Desired(2, f("wrong"))); got != "failed: the new file is refused and the old one stands: syntax error on line 1" {
		t.Error(got)
	}
	if content(m, "/etc/sudoers") != "right" || strings.Contains(m.Disk.String(), system.TemporaryPrefix) {
		t.Errorf("after a refusal:\n%s", m.Disk)
	}
}

func blobOf(text string) *declaration.Blob {
	return &declaration.Blob{Digest: declaration.Digest([]byte(text)), Bytes: int64(len(text))}
}

// TestCaseH7ContentThatHasNotCome: what needs it waits, and who needs that;
// everything else goes on.
func TestCaseH7ContentThatHasNotCome(t *testing.T) {
	m := systemtest.New()
	m.AddUnit(systemtest.Unit{Name: "x.service"})
	d := applytest.Desired(1,
		declaration.Resource{ID: "big", File: &declaration.File{Path: "/etc/big", Blob: blobOf("much")}},
		applytest.Service("x", "x.service", "big"),
		applytest.File("small", "/etc/small", "little"),
	)
	out, err := applytest.Pass(t.Context(), m, d)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range out.Results {
		got = append(got, r.ID+" "+string(r.Status))
	}
	if d := cmp.Diff([]string{"big waiting", "x waiting", "small changed"}, got); d != "" {
		t.Error(d)
	}
	if _, err := m.KeepContent([]byte("much")); err != nil {
		t.Fatal(err)
	}
	came(t, m, d)
	if got := content(m, "/etc/big"); got != "much" {
		t.Error(got)
	}
	came(t, m, applytest.Desired(2))
	if got := content(m, "/etc/big"); got != "(nothing)" {
		t.Error(got)
	}
}

// TestDamagedContentIsNotUsed: what lies there under a digest and is something
// else goes, and the file waits for it to be fetched again.
func TestDamagedContentIsNotUsed(t *testing.T) {
	m := systemtest.New()
	digest, err := "", error(nil)
	d := applytest.Desired(1, declaration.Resource{ID: "big", File: &declaration.File{Path: "/etc/big", Blob: blobOf("much")}})
	came(t, m, d)
	if digest, err = m.KeepContent([]byte("much")); err != nil {
		t.Fatal(err)
	}
	put(m, m.ContentPath(digest), "rot")
	if got := came(t, m, d); !strings.HasPrefix(got, "failed: read content") {
		t.Error(got)
	}
	if got := came(t, m, d); !strings.HasPrefix(got, "waiting") || content(m, "/etc/big") != "(nothing)" {
		t.Error(got)
	}
}

func TestPackageOfABlobAndOfARelease(t *testing.T) {
	m := systemtest.New()
	m.OfferPackage("demo", systemtest.Offer{Versions: []string{"1.0", "1.1"}})
	m.Disk.Put(applytest.StatePath, systemtest.Thing{Type: system.TypeDirectory, Mode: 0o700})
	if _, err := m.KeepContent([]byte("1.0")); err != nil {
		t.Fatal(err)
	}
	p := declaration.Resource{ID: "p", Package: &declaration.Package{Name: "demo", Version: "1.0", Blob: blobOf("1.0")}}
	if got := came(t, m, applytest.Desired(1, p)); !strings.HasPrefix(got, "changed") || !strings.Contains(m.String(), "package demo 1.0 installed") {
		t.Errorf("%s\n%s", got, m)
	}
	p = declaration.Resource{ID: "p", Package: &declaration.Package{Name: "demo", Release: "stable"}}
	if got := came(t, m, applytest.Desired(2, p)); got != "changed: version 1.0 is installed instead of 1.1" {
		t.Error(got)
	}
	if got := came(t, m, applytest.Desired(2, p)); got != "in_sync" {
		t.Error(got)
	}
	m.OfferPackage("demo", systemtest.Offer{Versions: []string{"1.0", "1.1", "2.0"}})
	if got := came(t, m, applytest.Desired(2, p)); got != "changed: version 1.1 is installed instead of 2.0" {
		t.Error(got)
	}
}

func TestMaskAndUnmask(t *testing.T) {
	m := systemtest.New()
	m.AddUnit(systemtest.Unit{Name: "x.service", Active: "active", Enabled: "enabled"})
	masked := declaration.Resource{ID: "x", Service: &declaration.Service{Unit: "x.service", State: declaration.StateMasked}}
	if got := came(t, m, applytest.Desired(1, masked)); !strings.HasPrefix(got, "changed") || !strings.Contains(m.String(), "unit x.service inactive masked") {
		t.Errorf("%s\n%s", got, m)
	}
	if got := came(t, m, applytest.Desired(1, masked)); got != "in_sync" {
		t.Error(got)
	}
	if got := came(t, m, applytest.Desired(2, applytest.Service("x", "x.service"))); !strings.HasPrefix(got, "changed") || !strings.Contains(m.String(), "unit x.service active enabled") {
		t.Errorf("%s\n%s", got, m)
	}
	came(t, m, applytest.Desired(3, masked))
	came(t, m, applytest.Desired(4))
	if !strings.Contains(m.String(), "unit x.service inactive disabled") {
		t.Errorf("given up:\n%s", m)
	}
}

// TestMaskedBySomebodyElse: what a person masked is not unmasked.
func TestMaskedBySomebodyElse(t *testing.T) {
	m := systemtest.New()
	m.AddUnit(systemtest.Unit{Name: "x.service", Enabled: "masked"})
	if got := came(t, m, applytest.Desired(1, applytest.Service("x", "x.service"))); !strings.Contains(got, "failed: unit x.service is masked") {
		t.Error(got)
	}
	came(t, m, applytest.Desired(2, declaration.Resource{ID: "x", Service: &declaration.Service{Unit: "y.service", State: "stopped"}}))
	m.AddUnit(systemtest.Unit{Name: "y.service"})
	came(t, m, applytest.Desired(3, applytest.Service("y", "y.service")))
	m.AddUnit(systemtest.Unit{Name: "y.service", Enabled: "masked"})
	came(t, m, applytest.Desired(4))
	if !strings.Contains(m.String(), "unit y.service inactive masked") {
		t.Errorf("it was unmasked:\n%s", m)
	}
}

// TestReloadOn: a change of what a service reloads on reloads it; one of what it
// restarts on restarts it, and pays for both.
func TestReloadOn(t *testing.T) {
	m := systemtest.New()
	m.AddUnit(systemtest.Unit{Name: "x.service", Active: "active", Enabled: "enabled", Reads: []string{"/etc/a", "/etc/b"}})
	d := func(generation uint64, a, b string) apply.Desired {
		return applytest.Desired(generation, applytest.File("a", "/etc/a", a), applytest.File("b", "/etc/b", b),
			declaration.Resource{ID: "x", Service: &declaration.Service{Unit: "x.service", RestartOn: []string{"a"}, ReloadOn: []string{"b"}}})
	}
	var calls []string
	m.Hook(func(op systemtest.Op) error {
		if op.Name == "reload" || op.Name == "restart" {
			calls = append(calls, op.Name)
		}
		return nil
	})
	for i, step := range []struct{ a, b, want string }{
		{"1", "1", "restart"}, {"1", "2", "reload"}, {"1", "2", ""}, {"2", "2", "restart"}, {"3", "3", "restart"},
	} {
		calls = nil
		came(t, m, d(uint64(i+1), step.a, step.b))
		if got := strings.Join(calls, " "); got != step.want || len(m.Stale()) != 0 || len(viewOf(t, m).Debts) != 0 {
			t.Errorf("step %d: %q, want %q; stale %v", i+1, got, step.want, m.Stale())
		}
	}
}
