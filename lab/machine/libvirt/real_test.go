package libvirt_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mesh/lab/machine"
	"mesh/lab/machine/libvirt"
	"mesh/lab/machine/machinetest"
)

// runtimeDir is the labs' own: all labs of a machine share its daemon.
const runtimeDir = "/run/mesh-lab"

// real returns a kit over the real libvirt, or skips with the reason.
func real(t *testing.T) machinetest.Kit {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for _, program := range []string{"qemu-system-x86_64", "qemu-img"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s (apt-get install qemu-system-x86 qemu-utils)", program)
		}
	}
	needDaemon(t)
	dir, err := os.MkdirTemp("/run", "mlt-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, pattern := range []string{"*.sock", "*.part", "*.log.memory"} {
			if left, _ := filepath.Glob(filepath.Join(dir, pattern)); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		}
		_ = os.RemoveAll(dir)
	})
	if err := os.Chmod(dir, 0o755); err != nil { // machines run as another user
		t.Fatal(err)
	}
	return machinetest.Kit{
		Hypervisor:  libvirt.New(),
		Accelerator: accelerator,
		Disk:        writeDisk,
		Overlay:     makeOverlay,
		Count:       readCount,
		Dir:         dir,
		Run:         fmt.Sprintf("t%08x", rand.Uint32()),
	}
}

var (
	daemon      = libvirt.NewDaemon(runtimeDir, nil)
	once        sync.Once
	accelerator machine.Accelerator
	daemonErr   error
)

// needDaemon makes sure of the daemon, once for all tests, or skips where it is
// not installed.
func needDaemon(t *testing.T) {
	t.Helper()
	once.Do(func() {
		if daemonErr = daemon.Ensure(context.WithoutCancel(t.Context())); daemonErr == nil {
			accelerator, _, daemonErr = daemon.Accelerator(context.WithoutCancel(t.Context()))
		}
	})
	var absent interface{ ExitCode() int }
	if errors.As(daemonErr, &absent) {
		t.Skip(daemonErr)
	}
	if daemonErr != nil {
		t.Fatal(daemonErr)
	}
}

func TestMain(m *testing.M) {
	if file := os.Getenv(holdEnv); file != "" {
		hold(file)
	}
	// Most of the time is spent waiting for processes of the kernel's and init's.
	flag.Parse()
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		_ = p.Value.Set("8")
	}
	code := m.Run()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := daemon.Release(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := goleak.Find(); err != nil { // every connection has goroutines
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func writeDisk(t *testing.T, raw []byte, path string) {
	t.Helper()
	if err := os.WriteFile(path+".raw", raw, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "qemu-img", "convert", "-f", "raw", "-O", "qcow2", path+".raw", path).CombinedOutput()
	if err != nil {
		t.Fatalf("qemu-img: %v: %s", err, out)
	}
}

func makeOverlay(t *testing.T, base, path string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", base, path).CombinedOutput()
	if err != nil {
		t.Fatalf("qemu-img: %v: %s", err, out)
	}
}

// readCount is the last number of bootsector.Count in a machine's console; 0 for
// none.
func readCount(t *testing.T, s machine.Spec) int {
	t.Helper()
	console, err := os.ReadFile(s.ConsoleLog)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	lines := strings.Split(string(console), "\n")
	if len(lines) < 2 {
		return 0
	}
	n, err := strconv.ParseUint(lines[len(lines)-2], 16, 16)
	if err != nil {
		t.Fatalf("console of %s: %v", s.Name, err)
	}
	return int(n)
}
