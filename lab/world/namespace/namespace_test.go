package namespace_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"mesh/lab/world/namespace"
	"mesh/lab/world/worldtest"
)

func TestMain(m *testing.M) { worldtest.Main(m) }

func TestCreateAndRemove(t *testing.T) {
	worldtest.Need(t)
	const name = "ns-create"
	for i, want := range []bool{true, false} {
		if created, err := namespace.Create(name); err != nil || created != want {
			t.Errorf("create %d: %v, %v, want %v", i, created, err, want)
		}
	}
	if exists, err := namespace.Exists(name); err != nil || !exists {
		t.Errorf("exists: %v, %v", exists, err)
	}
	for range 2 {
		if err := namespace.Remove(name); err != nil {
			t.Error(err)
		}
		if exists, err := namespace.Exists(name); err != nil || exists {
			t.Errorf("exists after removal: %v, %v", exists, err)
		}
		if _, err := os.Lstat(namespace.Path(name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("its file: %v", err)
		}
	}
}

// TestHalfMade takes over the file of a namespace whose maker died before it was
// mounted.
func TestHalfMade(t *testing.T) {
	worldtest.Need(t)
	const name = "ns-half"
	defer namespace.Remove(name)
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(namespace.Path(name), nil, 0); err != nil {
		t.Fatal(err)
	}
	if exists, err := namespace.Exists(name); err != nil || exists {
		t.Errorf("exists: %v, %v", exists, err)
	}
	if created, err := namespace.Create(name); err != nil || !created {
		t.Errorf("create: %v, %v", created, err)
	}
}

// TestDo is in the namespace inside of Do and nowhere else, however many do so at
// once.
func TestDo(t *testing.T) {
	worldtest.Need(t)
	const name = "ns-do"
	defer namespace.Remove(name)
	if _, err := namespace.Create(name); err != nil {
		t.Fatal(err)
	}
	outside, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			err := namespace.Do(name, func() error {
				if inside, err := os.Readlink("/proc/thread-self/ns/net"); err != nil || inside == outside {
					t.Errorf("in the namespace: %s, %v", inside, err)
				}
				// The first thread is what others see of the process.
				if main, err := os.Readlink("/proc/self/ns/net"); err != nil || main != outside {
					t.Errorf("the process: %s, %v, want %s", main, err, outside)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			if after, err := os.Readlink("/proc/thread-self/ns/net"); err != nil || after != outside {
				t.Errorf("afterwards: %s, %v, want %s", after, err, outside)
			}
		})
	}
	group.Wait()
}

func TestDoErrors(t *testing.T) {
	worldtest.Need(t)
	if err := namespace.Do("ns-absent", func() error { return nil }); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
	const name = "ns-errors"
	defer namespace.Remove(name)
	if _, err := namespace.Create(name); err != nil {
		t.Fatal(err)
	}
	mine := errors.New("mine")
	if err := namespace.Do(name, func() error { return mine }); !errors.Is(err, mine) {
		t.Errorf("got %v", err)
	}
}

// TestProcesses sees what was started inside, and nothing else.
func TestProcesses(t *testing.T) {
	worldtest.Need(t)
	const name = "ns-processes"
	defer namespace.Remove(name)
	if got, err := namespace.Processes(name); err != nil || len(got) > 0 {
		t.Errorf("absent: %v, %v", got, err)
	}
	if _, err := namespace.Create(name); err != nil {
		t.Fatal(err)
	}
	inside := exec.Command("sleep", "600")
	if err := namespace.Do(name, inside.Start); err != nil {
		t.Fatal(err)
	}
	got, err := namespace.Processes(name)
	if err != nil || !slices.Equal(got, []int{inside.Process.Pid}) {
		t.Errorf("%v, %v, want %d alone", got, err, inside.Process.Pid)
	}
	inside.Process.Kill()
	inside.Wait()
	if got, err := namespace.Processes(name); err != nil || len(got) > 0 {
		t.Errorf("after its end: %v, %v", got, err)
	}
}

// TestEndsWithItsName takes the links of a namespace with its name.
func TestEndsWithItsName(t *testing.T) {
	worldtest.Need(t)
	const name = "ns-links"
	if _, err := namespace.Create(name); err != nil {
		t.Fatal(err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "here0"
	err := namespace.Do(name, func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "there0", PeerNamespace: netlink.NsPid(unix.Getpid())})
	})
	if err != nil {
		t.Fatal(err)
	}
	gone, done := make(chan netlink.LinkUpdate, 16), make(chan struct{})
	defer close(done)
	if err := netlink.LinkSubscribe(gone, done); err != nil {
		t.Fatal(err)
	}
	if err := namespace.Remove(name); err != nil {
		t.Fatal(err)
	}
	for change := range gone {
		if change.Header.Type == unix.RTM_DELLINK && change.Attrs().Name == "there0" {
			return
		}
	}
}
