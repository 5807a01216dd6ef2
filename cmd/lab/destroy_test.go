package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mesh/cmd/internal/cli"
	"mesh/lab/lifecycle"
	"mesh/lab/lifecycle/lifecycletest"
	"mesh/lab/world"
)

// together are worlds that are removed only once so many are at it, or a while
// has passed; that of one scenario stays.
type together struct {
	lifecycle.World
	stays string // name of the scenario

	mu      *sync.Mutex
	at      *int // how many are being removed
	most    *int
	reached chan struct{} // closed when as many as may are
}

func (w together) Remove(ctx context.Context, c world.Config, p world.Process) error {
	w.mu.Lock()
	*w.at++
	if *w.most = max(*w.most, *w.at); *w.most == destroyAtOnce {
		select {
		case <-w.reached:
		default:
			close(w.reached)
		}
	}
	w.mu.Unlock()
	select {
	case <-w.reached:
	case <-time.After(10 * time.Second):
	}
	w.mu.Lock()
	*w.at--
	w.mu.Unlock()
	if filepath.Base(filepath.Dir(c.Log)) == w.stays {
		return errors.New("the world stays")
	}
	return w.World.Remove(ctx, c, p)
}

// shared is one user of the daemon, which is there while one of a process is.
type shared struct {
	lifecycle.Daemon
	uses  bool
	mu    *sync.Mutex
	users *int // in the process
}

func (s *shared) Ensure(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.uses {
		s.uses = true
		*s.users++
	}
	return s.Daemon.Ensure(ctx)
}

func (s *shared) Release(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.uses {
		s.uses = false
		*s.users--
	}
	if *s.users > 0 {
		return nil
	}
	return s.Daemon.Release(ctx)
}

// writer is one for several goroutines.
type writer struct {
	mu sync.Mutex
	strings.Builder
}

func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Builder.Write(p)
}

// Many are destroyed a few at a time. One that cannot be does not keep the others,
// and is the error; so it is with several at once, each of them told.
func TestDestroySeveralAtOnce(t *testing.T) {
	t.Setenv("BUILT", "debian-13")
	f := &lifecycletest.Fake{Dir: t.TempDir()}
	stays := together{mu: new(sync.Mutex), at: new(int), most: new(int), reached: make(chan struct{})}
	var told *writer
	lab := func(args ...string) int {
		told = &writer{}
		s := cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: told}
		mu, users := new(sync.Mutex), new(int)
		a := &app{
			Streams: s, images: func(*app) imageStore { return fakeImages{} }, way: fakeWay, here: fakeHere{}, newRun: randomRun,
			ports: func(*app) lifecycle.Config {
				cfg := f.Ports(lifecycle.Config{Poll: 5 * time.Millisecond})
				w := stays
				w.World = cfg.World
				cfg.World = w
				cfg.Daemon = &shared{Daemon: cfg.Daemon, mu: mu, users: users}
				return cfg
			},
		}
		return cli.Run(newRootOf(a), s, append([]string{"--store", filepath.Join(f.Dir, "store"), "--runtime", filepath.Join(f.Dir, "run")}, args...))
	}
	var names []string
	for n := range 2*destroyAtOnce - 1 {
		names = append(names, fmt.Sprintf("n%d", n))
		if code := lab("raise", "single", "--as", names[n], "--cold"); code != 0 {
			t.Fatalf("raise: exit code %d: %s", code, told)
		}
	}
	left := func() []string {
		t.Helper()
		dirs, err := filepath.Glob(filepath.Join(f.Dir, "store", "scenarios", "n*"))
		if err != nil {
			t.Fatal(err)
		}
		for i := range dirs {
			dirs[i] = filepath.Base(dirs[i])
		}
		return dirs
	}

	stays.stays = "n1"
	if code := lab("destroy", "--all"); code != 1 || !strings.Contains(told.String(), "the world stays") || !strings.Contains(told.String(), "destroy n1: not all could be removed") {
		t.Errorf("exit code %d: %s", code, told)
	}
	if diff := cmp.Diff([]string{"n1"}, left()); diff != "" {
		t.Errorf("what stays (-want +got):\n%s", diff)
	}
	if *stays.most != destroyAtOnce {
		t.Errorf("%d were removed at once, not %d", *stays.most, destroyAtOnce)
	}
	for _, name := range names {
		if says := strings.Contains(told.String(), "  destroy "+name+" ("); !says {
			t.Errorf("nothing is said of %s:\n%s", name, told)
		}
	}

	if code := lab("destroy", "n1", "n2", "n1", "../n3"); code == 0 ||
		strings.Count(told.String(), "the world stays") < 1 || strings.Count(told.String(), "nothing is raised as n2") != 1 || !strings.Contains(told.String(), "../n3") {
		t.Errorf("exit code %d: %s", code, told)
	}
	stays.stays = ""
	if code := lab("destroy", "n1", "n1"); code != 0 || slices.Contains(left(), "n1") {
		t.Errorf("exit code %d: %s; %q are left", code, told, left())
	}
}
