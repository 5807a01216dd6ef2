package images_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"mesh/lab/images"
)

// programs puts stand-ins for what a build runs before the real ones. The
// stand-in for mmdebstrap makes a tree, counts its runs in $RUNS, and does
// first what extra says, $root being the tree.
func programs(t *testing.T, extra string) (runs func() int) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a build takes root")
	}
	need(t, "apt-ftparchive")
	dir, count := t.TempDir(), filepath.Join(t.TempDir(), "runs")
	for name, script := range map[string]string{
		"apt-get":    `case "$1" in indextargets) echo "http://mirror.example/debian/ bookworm";; *) exec /usr/bin/apt-get "$@";; esac`,
		"apt-config": `echo 'Acquire::Retries "3";'`,
		"mmdebstrap": `echo run >> ` + count + `
for arg; do case "$arg" in */root) root=$arg;; esac; done
` + extra + `
mkdir -p "$root/boot" "$root/.offered"
echo kernel > "$root/boot/vmlinuz-6.1"
echo initrd > "$root/boot/initrd.img-6.1"`,
		"mke2fs":   `for last; do test "${before##*/}" != root || find "$before" -type f -printf '%P\n' | sort > "$last"; before=$last; done`,
		"qemu-img": `for last; do before=$this; this=$last; done; cp "$before" "$last"; chmod 600 "$last"`,
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\nset -e\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() int {
		content, err := os.ReadFile(count)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return strings.Count(string(content), "run")
	}
}

// steps records what a build says.
type steps struct {
	mu   sync.Mutex
	said []string
}

func (s *steps) Step(what string) func(error) {
	return func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil {
			what += ": failed"
		}
		s.said = append(s.said, what)
	}
}

func TestBuild(t *testing.T) {
	runs := programs(t, `mkdir -p "$root/.offered"; cp `+deb(t, "a", "1")+` "$root/.offered"`)
	s, said := newStore(t), new(steps)
	write(t, filepath.Join(s.Dir, "images", ".build-1", "root", "etc", "passwd"), "half")
	built, err := s.Build(context.Background(), "one", said)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{
		"image one: install its packages", "image one: make its repository of packages",
		"image one: make its disk", "image one: keep it",
	}, said.said); diff != "" {
		t.Errorf("said (-want +got):\n%s", diff)
	}
	disk := `boot/initrd.img-6.1
boot/vmlinuz-6.1
var/lib/apt/lists/packages.world.test_one_._Packages
var/lib/apt/lists/packages.world.test_one_._Release
`
	for path, want := range map[string]string{built.Disk: disk, built.Kernel: "kernel\n", built.Initrd: "initrd\n"} {
		content, err := os.ReadFile(path)
		if err != nil || string(content) != want {
			t.Errorf("%s holds %q, %v, want %q", path, content, err, want)
		}
		if info, err := os.Stat(path); err == nil && info.Mode().Perm() != 0o644 {
			t.Errorf("%s is %v: machines run as another user", path, info.Mode())
		}
	}
	if got := offers(t, built.Repository); !strings.Contains(got, "a |          1 |") {
		t.Errorf("the repository offers %q, want a 1", got)
	}
	if built.SizeBytes < 20 || built.Digest != digestOf(t, s) || len(built.Content) != 64 || built.Cmdline != "root=/dev/vda console=ttyS0" || time.Since(built.Built) > time.Hour {
		t.Errorf("the manifest says %+v", built)
	}
	if diff := cmp.Diff([]string{built.Digest, "lock", "one.log"}, entries(t, s)); diff != "" {
		t.Errorf("in the store (-want +got):\n%s", diff)
	}
	got, err := s.Get("one")
	if diff := cmp.Diff(built, got); diff != "" || err != nil {
		t.Errorf("%v (-built +found):\n%s", err, diff)
	}
	again, err := s.Build(context.Background(), "one", said)
	if diff := cmp.Diff(built, again); diff != "" || err != nil || runs() != 1 || len(said.said) != 4 {
		t.Errorf("built again: %v, %d runs, %v (-first +second):\n%s", err, runs(), said.said, diff)
	}
}

func TestBuildAtOnce(t *testing.T) {
	runs := programs(t, "sleep 0.3")
	s := newStore(t)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if _, err := s.Build(context.Background(), "one", nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if runs() != 1 {
		t.Errorf("%d builds, want 1", runs())
	}
}

// TestBuildOverAnUnreadableManifest: what is there and not understood is said,
// neither taken for an image nor replaced.
func TestBuildOverAnUnreadableManifest(t *testing.T) {
	runs := programs(t, "")
	s := newStore(t)
	write(t, filepath.Join(s.Dir, "images", digestOf(t, s), "manifest.json"), "{}")
	if _, err := s.Build(context.Background(), "one", nil); code(err) != 1 || !strings.Contains(err.Error(), "remove that directory") || runs() != 0 {
		t.Errorf("got %v after %d runs, want exit code 1 and what to do", err, runs())
	}
}

func TestBuildFails(t *testing.T) {
	for name, c := range map[string]struct{ extra, want string }{
		"a program": {"echo E: no such package >&2; exit 25", "(install its packages): mmdebstrap: exit status 25\n    E: no such package; read "},
		"no kernel": {"mkdir -p $root; exit 0", "(make its disk): the packages put 0 files boot/"},
	} {
		t.Run(name, func(t *testing.T) {
			programs(t, c.extra)
			s, said := newStore(t), new(steps)
			_, err := s.Build(context.Background(), "one", said)
			if code(err) != 1 || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "lab image build one") {
				t.Errorf("got %v\nwant exit code 1, %q and what to do", err, c.want)
			}
			if diff := cmp.Diff([]string{"lock", "one.log"}, entries(t, s)); diff != "" {
				t.Errorf("in the store (-want +got):\n%s", diff)
			}
			if last := said.said[len(said.said)-1]; !strings.HasSuffix(last, ": failed") {
				t.Errorf("the last that was said is %q", last)
			}
		})
	}
}

func TestBuildWithoutItsPrograms(t *testing.T) {
	programs(t, "")
	dir, _, _ := strings.Cut(os.Getenv("PATH"), ":")
	if err := os.Remove(filepath.Join(dir, "mmdebstrap")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	_, err := newStore(t).Build(context.Background(), "one", nil)
	if code(err) != 4 || !strings.Contains(err.Error(), "run mmdebstrap") || !strings.Contains(err.Error(), "lab install") {
		t.Errorf("got %v, want exit code 4 and what to do", err)
	}
	err = images.Repository(context.Background(), nil, filepath.Join(t.TempDir(), "mesh"))
	if code(err) != 4 || !strings.Contains(err.Error(), "run apt-ftparchive") || !strings.Contains(err.Error(), "lab install") {
		t.Errorf("got %v, want exit code 4 and what to do", err)
	}
}

// TestBuildInterrupted: nothing that a build started outlives it.
func TestBuildInterrupted(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	programs(t, "exec 3>"+pipe+"; setsid sh -c 'echo started >&3; exec sleep 1000' & wait")
	s := newStore(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := s.Build(ctx, "one", nil)
		ended <- err
	}()
	f, err := os.Open(pipe) // returns when the stand-in has opened it too
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.ReadFull(f, make([]byte, len("started\n"))); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the cancellation", err)
	}
	if err := f.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("somebody still holds the pipe: %v", err)
	}
	if diff := cmp.Diff([]string{"lock", "one.log"}, entries(t, s)); diff != "" {
		t.Errorf("in the store (-want +got):\n%s", diff)
	}
}

func TestBuildNeedsRoot(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may build")
	}
	s := newStore(t)
	if _, err := s.Build(context.Background(), "one", nil); code(err) != 4 {
		t.Errorf("got %v, want exit code 4", err)
	}
	if left, _ := os.ReadDir(s.Dir); len(left) != 0 {
		t.Errorf("made %v", left)
	}
}

func TestBuildUnknown(t *testing.T) {
	s := newStore(t)
	if _, err := s.Build(context.Background(), "two", nil); !errors.Is(err, images.ErrUnknown) || code(err) != 2 {
		t.Errorf("got %v, want ErrUnknown with exit code 2", err)
	}
	if left, _ := os.ReadDir(s.Dir); len(left) != 0 {
		t.Errorf("made %v", left)
	}
}
