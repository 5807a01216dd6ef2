package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"mesh/cmd/internal/cli"
	"mesh/lab/images"
	"mesh/lab/lifecycle"
	"mesh/lab/lifecycle/lifecycletest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"lab":         func() { os.Exit(runFake(os.Args[1:])) },
		"kill-worlds": func() { fake().KillWorlds() },
		"kill-machine": func() {
			if err := fake().KillMachine(os.Args[1], "qemu: ended\n"); err != nil {
				panic(err)
			}
		},
		"stands": func() {
			if s := fake().String(); s != "" {
				_, _ = os.Stdout.WriteString(s + "\n")
			}
		},
	})
}

// TestScripts runs the real command tree on a lab machine that exists in a
// directory only. Scripts say what is special of it in environment variables.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("FAKE", e.WorkDir+"/fake")
			e.Setenv("BUILT", "debian-13 debian-12")
			return os.Mkdir(e.WorkDir+"/fake", 0o755)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "stands-still": standsStill},
	})
}

// standsStill FILE writes there all that a fault could have changed.
func standsStill(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: stands-still FILE")
	}
	f := &lifecycletest.Fake{Dir: ts.Getenv("FAKE")}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(f.Conditions()), 0o644))
}

// exits CODE COMMAND... demands an exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	err, code := ts.Exec(args[1], args[2:]...), 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if args[0] != strconv.Itoa(code) {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

func fake() *lifecycletest.Fake { return &lifecycletest.Fake{Dir: os.Getenv("FAKE")} }

func runFake(args []string) int {
	f := fake()
	f.NotRoot = os.Getenv("NOT_ROOT") != ""
	f.KVM = os.Getenv("KVM") != ""
	if os.Getenv("NO_MEMORY") != "" {
		f.MemoryBytes = 64 << 20
	}
	if mib, err := strconv.ParseInt(os.Getenv("FREE_MIB"), 10, 64); err == nil {
		f.MemoryBytes = mib << 20
	}
	if os.Getenv("NO_SPACE") != "" {
		f.SpaceBytes = 64 << 20
	}
	s := cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	a := &app{
		Streams: s,
		ports: func(*app) lifecycle.Config {
			return f.Ports(lifecycle.Config{Poll: 5 * time.Millisecond})
		},
		images: func(*app) imageStore { return fakeImages{} },
		way:    fakeWay,
		here:   fakeHere{},
		describe: func(_ context.Context, name string) (string, error) {
			return "a machine called " + name + "\n", nil
		},
		newRun: randomRun,
	}
	// Each script has a store of its own.
	return cli.Run(newRootOf(a), s, append([]string{"--store", "store", "--runtime", "run"}, args...))
}

// fakeImages knows two recipes; those of $BUILT are built.
type fakeImages struct{}

func (fakeImages) Names() []string { return []string{"debian-12", "debian-13"} }

func (f fakeImages) List() (all []images.Image, err error) {
	for _, name := range strings.Fields(os.Getenv("BUILT")) {
		image, err := f.Get(name)
		if err != nil {
			return nil, err
		}
		image.Digest = strings.Repeat("d", 64)
		all = append(all, image)
	}
	return all, nil
}

func (fakeImages) Get(name string) (images.Image, error) {
	for _, built := range strings.Fields(os.Getenv("BUILT")) {
		if built == name {
			dir := "/images/" + name
			return images.Image{
				Name: name, Disk: dir + "/disk", Kernel: dir + "/kernel", Initrd: dir + "/initrd",
				Cmdline: "root=/dev/vda", Repository: dir + "/repository",
			}, nil
		}
	}
	return images.Store{Dir: "/nowhere"}.Get(name)
}
