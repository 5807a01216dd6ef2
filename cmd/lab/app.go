package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/lab/evidence"
	"mesh/lab/images"
	"mesh/lab/lifecycle"
	"mesh/lab/snapshot"
	"mesh/lab/underlay"
)

// Where the lab keeps things unless told otherwise.
const (
	defaultStore   = "/var/lib/mesh-lab"
	defaultRuntime = "/run/mesh-lab"
)

// app is what the commands share.
type app struct {
	cli.Streams
	store, runtime string // absolute once a command runs

	// What stands outside of this program; tests put their own in.
	ports  func(*app) lifecycle.Config
	images func(*app) imageStore
	way    func(world string, m underlay.Machine) (way, error)
	here   evidence.Here
	// describe is how a hypervisor was told to make a machine, in its own words.
	describe func(ctx context.Context, name string) (string, error)
	newRun   func() string
}

// imageStore is where machine images come from.
type imageStore interface {
	// Names lists the recipes there are.
	Names() []string
	// Get finds a built image; where there is none its error says what to do.
	Get(name string) (images.Image, error)
	// List lists the images that are built, of earlier recipes too.
	List() ([]images.Image, error)
}

// flags adds those that every command has.
func (a *app) flags(root *cobra.Command) {
	root.PersistentFlags().StringVar(&a.store, "store", defaultStore, "directory of images and raised scenarios")
	root.PersistentFlags().StringVar(&a.runtime, "runtime", defaultRuntime, "short directory of sockets and locks")
}

// prepare makes the flags usable and says which scenarios nobody looks after.
func (a *app) prepare(c *cobra.Command, _ []string) error {
	if err := a.absolute(); err != nil {
		return err
	}
	switch c.Name() {
	case "world", "disks", "keep", "reap", "destroy", "completion", "help", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd:
		return nil
	}
	_, lab := a.lab()
	abandoned, err := lab.Abandoned()
	if err != nil {
		return nil // the command itself meets it
	}
	for _, one := range abandoned {
		fmt.Fprintf(a.Err, "lab: %s %s is abandoned: %s; %s\n", one.Kind, one.Name, one.Why, one.Remedy())
	}
	return nil
}

// absolute makes the directories independent of the working directory. They need
// not exist.
func (a *app) absolute() error {
	for flag, dir := range map[string]*string{"--store": &a.store, "--runtime": &a.runtime} {
		if *dir == "" { // a variable of a script that is not set, and not the working directory
			return cli.WithCode(cli.Usage, fmt.Errorf("%s is empty: name a directory, or leave it out", flag))
		}
		path, err := filepath.Abs(*dir)
		if err != nil {
			return fmt.Errorf("find the working directory: %w", err)
		}
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return cli.WithCode(cli.Usage, fmt.Errorf("%s %s is no directory: name one, which need not exist", flag, path))
		}
		*dir = path
	}
	return nil
}

// lab makes the lab that a command works with, and gives what it stands on.
func (a *app) lab() (lifecycle.Config, *lifecycle.Lab) {
	cfg := a.ports(a)
	cfg.Store, cfg.Runtime = a.store, a.runtime
	cfg.Snapshots = snapshot.Store{Dir: a.store}
	cfg.Progress = cli.NewProgress(a.Err)
	cfg.Now = time.Now
	// Both stand on the same; the collector asks a lab that keeps none itself.
	cfg.Evidence = a.collector(cfg, lifecycle.New(cfg))
	return cfg, lifecycle.New(cfg)
}

// randomRun makes a run's id: 8 hex digits.
func randomRun() string {
	id := make([]byte, 4)
	rand.Read(id)
	return hex.EncodeToString(id)
}

// piped gives stdin if something is there to be read: not a terminal.
func (a *app) piped() bool {
	f, ok := a.In.(*os.File)
	if !ok {
		return a.In != nil
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice == 0
}

// status is an exit code without a message: what a command on a machine ended with.
type status int

func (status) Error() string   { return "" }
func (s status) ExitCode() int { return int(s) }
