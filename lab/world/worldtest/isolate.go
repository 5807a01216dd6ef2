// Package worldtest is a lab machine of its own for tests of the world: a
// process in fresh namespaces for network, mounts and processes, where nothing
// that a test makes or forgets can be seen from outside or outlive it; and
// machines in it that behave like virtual ones, without any.
//
// Only tests import it.
package worldtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"mesh/lab/world"
)

// isolated marks the process that runs in namespaces of its own.
const isolated = "MESH_WORLDTEST_ISOLATED"

// Main is TestMain's body for packages that need namespaces. As root it runs the
// tests in a process apart; otherwise it runs them where they are, and those that
// call Need skip. The binary is also the world itself when it is started as one.
func Main(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "world" && os.Args[2] == "--config" {
		os.Exit(status(serve(os.Args[3])))
	}
	switch {
	case os.Getuid() != 0:
		os.Exit(m.Run())
	case os.Getenv(isolated) == "":
		os.Exit(status(apart()))
	}
	if err := settle(); err != nil {
		os.Exit(status(err))
	}
	os.Exit(m.Run())
}

// Need skips a test that cannot be run where it is.
func Need(t testing.TB) {
	t.Helper()
	if os.Getenv(isolated) == "" {
		t.Skip("needs root, to make network namespaces")
	}
}

func serve(config string) error {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	c, err := world.ReadConfig(config)
	if err != nil {
		return err
	}
	return world.Serve(ctx, c, os.Stdout)
}

// apart runs this binary again, with the same arguments, in new namespaces.
// Whatever it leaves running ends with it, since it is process 1 of its own.
func apart() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	again := exec.Command(self, os.Args[1:]...)
	again.Env = append(os.Environ(), isolated+"=1")
	again.Stdin, again.Stdout, again.Stderr = os.Stdin, os.Stdout, os.Stderr
	again.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID,
		Pdeathsig:  unix.SIGKILL,
	}
	return again.Run()
}

// settle makes the new namespaces usable.
func settle() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %v", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %v", err)
	}
	if err := unix.Mount("run", "/run", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount /run: %v", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find loopback: %v", err)
	}
	return netlink.LinkSetUp(lo)
}

func status(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return max(exit.ExitCode(), 1)
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}
