package system_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mesh/host/system"
	"mesh/host/system/systemtest"
)

// script is a Runner that answers each command from a list, and says what ran.
type script struct {
	t       *testing.T
	answers []answer
	ran     []string
}

type answer struct {
	begins string // what the command line begins with, from the program on
	output string
	err    error
}

func (s *script) Run(_ context.Context, argv ...string) (string, error) {
	line := strings.Join(argv, " ")
	s.ran = append(s.ran, line)
	if len(s.answers) == 0 {
		s.t.Fatalf("nobody expects %q", line)
	}
	next := s.answers[0]
	s.answers = s.answers[1:]
	if !strings.Contains(line, next.begins) {
		s.t.Fatalf("%q ran, %q was expected", line, next.begins)
	}
	return next.output, next.err
}

var errExit = errors.New("exit status 100")

// world is a package system whose state the test sets.
type world struct {
	query, change *script
	holder        []string // one answer for each look, then nobody
	broken        bool
}

func (w *world) packages() *system.Packages {
	return system.NewPackages(system.PackagesConfig{
		Query: w.query, Change: w.change, Wait: time.Minute, Poll: time.Second,
		Broken: func() bool { return w.broken },
		Holder: func() string {
			if len(w.holder) == 0 {
				return ""
			}
			next := w.holder[0]
			w.holder = w.holder[1:]
			return next
		},
	})
}

func newWorld(t *testing.T, query, change []answer) *world {
	return &world{query: &script{t: t, answers: query}, change: &script{t: t, answers: change}}
}

func (w *world) done(t *testing.T) {
	t.Helper()
	if left := append(w.query.answers, w.change.answers...); len(left) > 0 {
		t.Errorf("did not run: %+v", left)
	}
}

var quiet = answer{begins: "dpkg --audit"}

func TestInstall(t *testing.T) {
	const cannotRead = "going on with what is known of the package sources, because not all can be read: read the package sources: apt-get: exit status 100: last words"
	for _, tt := range []struct {
		name    string
		version string
		broken  bool
		query   []answer
		change  []answer
		notes   []string
		err     string
	}{
		{
			name: "at the first try", query: []answer{quiet},
			change: []answer{{begins: "install --no-install-recommends nginx"}},
			notes:  []string{"installing"},
		},
		{
			name: "an exact version", version: "1.2-3", query: []answer{quiet},
			change: []answer{{begins: "--allow-downgrades nginx=1.2-3"}},
			notes:  []string{"installing"},
		},
		{
			name: "after reading the sources", query: []answer{quiet, quiet, quiet},
			change: []answer{{begins: "install", output: "E: Unable to locate package nginx\n", err: errExit}, {begins: "update"}, {begins: "install"}},
			notes:  []string{"installing", "reading the package sources, because the first try failed", "installing, second try"},
		},
		{
			name: "after a repair, once", broken: true,
			change: []answer{{begins: "--configure -a"}, {begins: "install"}},
			notes:  []string{"installing", "repairing an interrupted dpkg"},
		},
		{
			name: "a repair that does not help is not repeated", query: []answer{{begins: "--audit", output: "nginx is half installed\n"}},
			change: []answer{{begins: "--configure -a"}, {begins: "install", output: "E: broken\n", err: errExit}, {begins: "update"}, {begins: "install", output: "noise\nE: still broken\nE: really\n", err: errExit}},
			notes:  []string{"installing", "repairing an interrupted dpkg", "reading the package sources, because the first try failed", "installing, second try"},
			err:    "install package nginx: apt-get: exit status 100: E: still broken; E: really",
		},
		{
			name: "the sources do not answer", query: []answer{quiet, quiet, quiet},
			change: []answer{{begins: "install", err: errExit}, {begins: "update", output: "last words\n", err: errExit}, {begins: "install", output: "E: no such package\n", err: errExit}},
			notes:  []string{"installing", "reading the package sources, because the first try failed", cannotRead, "installing, second try"},
			err:    "install package nginx: apt-get: exit status 100: E: no such package\nread the package sources: apt-get: exit status 100: last words",
		},
		{
			name: "a source of somebody else does not answer", query: []answer{quiet, quiet, quiet},
			change: []answer{{begins: "install", output: "E: no such package\n", err: errExit}, {begins: "update", output: "last words\n", err: errExit}, {begins: "install"}},
			notes:  []string{"installing", "reading the package sources, because the first try failed", cannotRead, "installing, second try"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.query, tt.change)
			w.broken = tt.broken
			var notes []string
			err := w.packages().Install(t.Context(), "nginx", tt.version, func(s string) { notes = append(notes, s) })
			if got := text(err); got != tt.err {
				t.Errorf("got %q, want %q", got, tt.err)
			}
			if diff := cmp.Diff(tt.notes, notes); diff != "" {
				t.Error(diff)
			}
			w.done(t)
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestCaseH6NeverAsks: no command may prompt, replace a configuration file that
// was edited, or take another package away.
func TestCaseH6NeverAsks(t *testing.T) {
	w := newWorld(t, []answer{quiet}, []answer{{begins: "install"}})
	if err := w.packages().Install(t.Context(), "nginx", "", func(string) {}); err != nil {
		t.Fatal(err)
	}
	for _, option := range []string{" -y ", "--force-confdef", "--force-confold", "--no-remove"} {
		if !strings.Contains(w.change.ran[0], option) {
			t.Errorf("%q runs without %q", w.change.ran[0], option)
		}
	}
}

// TestCaseH6WaitsForTheLock: visibly, and no longer than the deadline.
func TestCaseH6WaitsForTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, []answer{quiet}, []answer{{begins: "install"}})
		w.holder = append(times(20, "apt-get (process 811)"), times(10, "dpkg (process 822)")...)
		start := time.Now()
		var notes []string
		if err := w.packages().Install(t.Context(), "nginx", "", func(s string) { notes = append(notes, s) }); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(start); waited != 30*time.Second {
			t.Errorf("waited %s", waited)
		}
		want := []string{
			"installing", "waiting for the package lock, which apt-get (process 811) holds",
			"waiting for the package lock, which dpkg (process 822) holds",
		}
		if diff := cmp.Diff(want, notes); diff != "" {
			t.Error(diff)
		}

		w = newWorld(t, nil, nil)
		w.holder = times(1000, "unattended-upgr (process 5)")
		err := w.packages().Uninstall(t.Context(), "nginx", func(string) {})
		if want := "remove package nginx: wait for the package lock: unattended-upgr (process 5) has held it for 1m0s: see what it does, or end it"; text(err) != want {
			t.Errorf("got %q", text(err))
		}

		w = newWorld(t, nil, nil) // and is waited for once
		w.holder = times(100, "unattended-upgr (process 5)")
		start = time.Now()
		if err := w.packages().InstallFrom(t.Context(), "nginx", "trixie", func(string) {}); err == nil || time.Since(start) != time.Minute {
			t.Errorf("%v after %s", err, time.Since(start))
		}

		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		w.holder = times(1000, "unattended-upgr (process 5)")
		if err := w.packages().Uninstall(ctx, "nginx", func(string) {}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("told to stop: %v", err)
		}
	})
}

func times(n int, s string) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = s
	}
	return all
}

func TestInstalled(t *testing.T) {
	const out = "nginx\tinstalled\tok\t1.22.1-9\n" +
		"gone\tconfig-files\tok\t1\n" +
		"never\tnot-installed\tok\t\n" +
		"half\thalf-configured\tok\t2\n" +
		"hurt\tinstalled\treinstreq\t3\n" +
		"busy\ttriggers-awaited\tok\t4\n" +
		"multi\tunpacked\tok\t5\n" +
		"multi\tinstalled\tok\t5\n" +
		"no line of ours\n"
	for _, exit := range []error{nil, exitOne(t)} {
		w := newWorld(t, []answer{{begins: "dpkg-query -W", output: out, err: exit}}, nil)
		got, err := w.packages().Installed(t.Context(), []string{"nginx", "gone"})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]system.Package{
			"nginx": {Version: "1.22.1-9", Status: "installed"},
			"half":  {Version: "2", Status: "half-configured"},
			"hurt":  {Version: "3", Status: "in need of being installed again"},
			"busy":  {Version: "4", Status: "installed"},
			"multi": {Version: "5", Status: "installed"},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	w := newWorld(t, []answer{{begins: "dpkg-query", err: errExit}}, nil)
	if _, err := w.packages().Installed(t.Context(), []string{"nginx"}); err == nil {
		t.Error("a dpkg that cannot answer is taken for one without packages")
	}
}

// exitOne is how dpkg-query says that it does not know one of the names.
func exitOne(t *testing.T) error {
	t.Helper()
	err := exec.Command("sh", "-c", "exit 1").Run()
	if err == nil {
		t.Fatal("sh did not fail")
	}
	return err
}

// TestInstalledHere asks the real dpkg, which must be there to be asked.
func TestInstalledHere(t *testing.T) {
	if _, err := exec.LookPath("dpkg-query"); err != nil {
		t.Skip("this machine has no dpkg")
	}
	got, err := system.New(system.Config{}).Installed(t.Context(), []string{"dpkg", "no-such-package-anywhere"})
	if err != nil {
		t.Fatal(err)
	}
	if p := got["dpkg"]; len(got) != 1 || p.Status != "installed" || p.Version == "" {
		t.Errorf("%+v", got)
	}
}

func TestParseAccounts(t *testing.T) {
	got := system.ParseAccounts("root:x:0:0:root:/root:/bin/bash\nwww-data:x:33:33::/:\n\nbad\nworse:x:y:z\nroot:x:5:5::/:\n+nis\n", "adm:x:4:\n")
	want := system.Accounts{Users: map[string]uint32{"root": 0, "www-data": 33}, Groups: map[string]uint32{"adm": 4}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestNewest reads what apt-cache says of the sources it knows.
func TestNewest(t *testing.T) {
	const said = "      demo | 2.0-1~bpo13+1 | http://mirror.example/debian trixie-backports/main amd64 Packages\n" +
		"      demo |      1.1-1 | http://mirror.example/debian trixie/main amd64 Packages\n" +
		"      demo |      1.0-1 | http://mirror.example/debian trixie/main amd64 Packages\n"
	for release, want := range map[string]string{"trixie": "1.1-1", "trixie-backports": "2.0-1~bpo13+1", "trix": "", "sid": ""} {
		w := newWorld(t, []answer{{begins: "apt-cache madison -- demo", output: said}}, nil)
		if got, err := w.packages().Newest(t.Context(), "demo", release); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", release, got, err, want)
		}
		w.done(t)
	}
}

// TestInstallFromAFileAndARelease: by apt, so that what they depend on comes too.
func TestInstallFromAFileAndARelease(t *testing.T) {
	w := newWorld(t, []answer{quiet, quiet, quiet}, []answer{
		{begins: "install --no-install-recommends --allow-downgrades -- /var/lib/mesh-host/content/0a.deb"},
		{begins: "update"},
		{begins: "install --no-install-recommends -t trixie-backports -- demo/trixie-backports"},
	})
	p := w.packages()
	note := func(string) {}
	if err := errors.Join(p.InstallFile(t.Context(), "demo", "/var/lib/mesh-host/content/0a.deb", note), p.InstallFrom(t.Context(), "demo", "trixie-backports", note)); err != nil {
		t.Error(err)
	}
	w.done(t)
	broken := newWorld(t, []answer{quiet, quiet}, []answer{{begins: "update", output: "E: somebody else's is not signed", err: errExit}, {begins: "install"}})
	if err := broken.packages().InstallFrom(t.Context(), "demo", "trixie-backports", note); err != nil {
		t.Error(err)
	}
	broken.done(t)
	failing := newWorld(t, []answer{quiet}, []answer{{begins: "install", output: "E: no such file", err: errExit}})
	if err := failing.packages().InstallFile(t.Context(), "demo", "/x.deb", note); err == nil || err.Error() != "install package demo: apt-get: exit status 100: E: no such file" {
		t.Error(err)
	}
}

func TestFetched(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"demo_1%3a2.0-1+b1_amd64.deb", "demo_2.0-1+b1_amd64.deb", "demo-x_3.0_all.deb"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := system.NewPackages(system.PackagesConfig{Archives: dir})
	for version, want := range map[string]string{"1:2.0-1+b1": "demo_1%3a2.0-1+b1_amd64.deb", "2.0-1+b1": "demo_2.0-1+b1_amd64.deb"} {
		if got, err := p.Fetched("demo", version); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", version, got, err)
		}
	}
	if _, err := p.Fetched("demo", "3.0"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// TestInstallGoesOn: an installation that does not come to its end is not tried once
// more beside the one that goes on.
func TestInstallGoesOn(t *testing.T) {
	w := newWorld(t, []answer{quiet}, []answer{{begins: "install", err: fmt.Errorf("after 30m0s %w", system.ErrGoesOn)}})
	err := w.packages().Install(t.Context(), "nginx", "", func(string) {})
	if !errors.Is(err, system.ErrGoesOn) || err.Error() != "install package nginx: apt-get: after 30m0s it has not come to its end, and goes on" {
		t.Error(err)
	}
	w.done(t)
}

var onApt = flag.Bool("apt", false, "add a source to this machine's apt, and install and remove a package of it")

// offer makes a source of packages, and a package in it in two versions.
const offer = `set -e
mkdir -p $DIR/pool $DIR/dists/conformance/main/binary-amd64
for version in 1.0 2.0; do
	mkdir -p $DIR/tree/DEBIAN
	printf 'Package: mesh-conformance\nVersion: %s\nArchitecture: all\nMaintainer: nobody <nobody@world.test>\nDescription: a test\n' $version >$DIR/tree/DEBIAN/control
	dpkg-deb --build $DIR/tree $DIR/pool/$version.deb >/dev/null
	{
		cat $DIR/tree/DEBIAN/control
		echo "Filename: pool/$version.deb"
		echo "Size: $(stat --format=%s $DIR/pool/$version.deb)"
		echo "SHA256: $(sha256sum <$DIR/pool/$version.deb | cut -d' ' -f1)"
		echo
	} >>$DIR/dists/conformance/main/binary-amd64/Packages
done
cd $DIR/dists/conformance
{
	printf 'Suite: conformance\nCodename: conformance\nComponents: main\nArchitectures: amd64 all\nSHA256:\n'
	echo " $(sha256sum <main/binary-amd64/Packages | cut -d' ' -f1) $(stat --format=%s main/binary-amd64/Packages) main/binary-amd64/Packages"
} >Release
echo "deb [trusted=yes] file:$DIR conformance main" >/etc/apt/sources.list.d/mesh-conformance.list
`

func TestConformanceOfApt(t *testing.T) {
	if !*onApt {
		t.Skip("it changes this machine's packages: run it with -apt, as root")
	}
	dir := "/srv/mesh-conformance"
	t.Cleanup(func() {
		if err := errors.Join(os.RemoveAll(dir), os.Remove("/etc/apt/sources.list.d/mesh-conformance.list")); err != nil {
			t.Error(err)
		}
	})
	cmd := exec.Command("sh", "-c", offer)
	cmd.Env = append(os.Environ(), "DIR="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	systemtest.PackageConformance(t, system.New(system.Config{Runtime: t.TempDir()}).Packages,
		systemtest.OfferedPackage{Name: "mesh-conformance", Release: "conformance", File: filepath.Join(dir, "pool/1.0.deb")})
}

// TestCaseH7PackageThatFailsIsTriedEverMoreRarely: a mirror is left in peace, what
// waits for the lock is not, and other sources are another matter.
func TestCaseH7PackageThatFailsIsTriedEverMoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sources, tries := "", 0
		w := newWorld(t, nil, nil)
		cfg := system.PackagesConfig{
			Query: w.query, Holder: func() string { return "" }, Broken: func() bool { return false },
			Change: runs(func(argv []string) error {
				if slices.Contains(argv, "update") {
					tries++
				}
				return errExit
			}),
			Sources: func() string { return sources }, Jitter: func() float64 { return 1 },
		}
		w.query.answers = slices.Repeat([]answer{quiet}, 1000)
		p := system.NewPackages(cfg)
		var tried []time.Duration
		for began := time.Now(); time.Since(began) < 30*time.Minute; time.Sleep(5 * time.Second) {
			before := tries
			err := p.InstallFrom(t.Context(), "demo", "trixie", func(string) {})
			if tries > before {
				tried = append(tried, time.Since(began))
			}
			if err == nil || strings.Contains(err.Error(), "; it is tried again at 00:") == (tries > before) {
				t.Fatal(err)
			}
		}
		want := []time.Duration{0, 15 * time.Second, 45 * time.Second, 105 * time.Second, 225 * time.Second, 465 * time.Second, 945 * time.Second, 1545 * time.Second}
		if diff := cmp.Diff(want, tried); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		before := tries
		sources = "another"
		for range 2 {
			_ = p.InstallFrom(t.Context(), "demo", "trixie", func(string) {})
			_ = p.InstallFrom(t.Context(), "other", "trixie", func(string) {})
		}
		if tries != before+2 {
			t.Errorf("tried %d times after the sources changed, and something else was wanted", tries-before)
		}
	})
}

// runs is a Runner that only fails, or not.
type runs func(argv []string) error

func (r runs) Run(_ context.Context, argv ...string) (string, error) { return "", r(argv) }
