package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/lab/evidence"
	"mesh/lab/lifecycle"
	"mesh/lab/machine"
)

// collectedSuffix makes `lab collect` write one file instead of a directory.
const collectedSuffix = ".tar.zst"

func newCollect(a *app) *cobra.Command {
	var out string
	var asJSON bool
	c := &cobra.Command{
		Use:   "collect NAME",
		Short: "Collect all that may explain how a scenario came to be as it is",
		Long: `Collect everything that may explain how a scenario came to be as it is, into one
directory with an index: consoles with the times of their lines, journals, the
status of host and plane, the world's log, its links, ways and filters, captures
of traffic, the virtual machines as libvirt sees them, the plan, and what came
of each of its steps.

The index, index.md and index.json, tells of each file what it is and where it
came from, and what could not be had and why. A machine that is silent keeps
nothing else from being collected. Keys, tokens and passwords are left out; the
captures are as they are.

A raise that fails collects by itself, into STORE/evidence/NAME-RUN; the ten
newest are kept.`,
		Example: `  lab collect first-node                    into ./first-node-evidence-TIME
  lab collect first-node -o today
  lab collect first-node -o today.tar.zst   one file, to send to somebody`,
		Args:              cli.UsageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeRaised(1),
		RunE: func(c *cobra.Command, args []string) error {
			index, where, err := a.collect(c.Context(), args[0], out)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.JSON(a.Out, struct {
					Where string `json:"where"`
					evidence.Index
				}{where, index})
			}
			return a.showCollected(index, where)
		},
	}
	c.Flags().StringVarP(&out, "output", "o", "", "a directory that is not there yet, or a file that ends with "+collectedSuffix)
	c.Flags().BoolVar(&asJSON, "json", false, "print the index as JSON")
	_ = c.MarkFlagDirname("output") // fails only for a flag that is not there
	return c
}

// collector gathers the evidence of what cfg and lab know.
func (a *app) collector(cfg lifecycle.Config, lab *lifecycle.Lab) *evidence.Collector {
	return evidence.New(evidence.Config{
		Store: filepath.Join(a.store, "evidence"), Guest: cfg.Guest, Hypervisor: describer{cfg.Hypervisor, a.describe},
		Here: a.here, Status: lab.Status, Now: time.Now, Version: version,
	})
}

// collect gathers into a directory or a file, and gives its absolute path.
func (a *app) collect(ctx context.Context, name, out string) (evidence.Index, string, error) {
	cfg, lab := a.lab()
	r, err := lab.Record(name)
	if err != nil {
		return evidence.Index{}, "", err
	}
	if out == "" {
		out = name + "-evidence-" + time.Now().UTC().Format("20060102-150405")
	}
	out, err = filepath.Abs(out)
	if err != nil {
		return evidence.Index{}, "", fmt.Errorf("find the working directory: %w", err)
	}
	dir := out
	if strings.HasSuffix(out, collectedSuffix) {
		if _, err := os.Lstat(out); err == nil {
			return evidence.Index{}, "", cli.WithCode(cli.Usage, fmt.Errorf("%s is there already; choose a name that is free, or remove it", out))
		}
		parent, err := os.MkdirTemp(filepath.Dir(out), ".collect-*")
		if err != nil {
			return evidence.Index{}, "", cli.WithCode(cli.Usage, err)
		}
		defer os.RemoveAll(parent)
		dir = filepath.Join(parent, strings.TrimSuffix(filepath.Base(out), collectedSuffix))
	}
	done := cfg.Progress.Step("collect evidence of " + name)
	index, err := a.collector(cfg, lab).Collect(ctx, r, dir, evidence.Reason{Why: "`lab collect` was asked for it"})
	if err == nil && dir != out {
		err = packUp(dir, out)
	}
	done(err)
	return index, out, err
}

// packUp writes a directory and what is in it as one file, or nothing.
func packUp(dir, out string) (err error) {
	f, err := os.OpenFile(filepath.Join(filepath.Dir(dir), "archive"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write %s: %w", out, err)
	}
	press, err := zstd.NewWriter(f)
	if err == nil {
		pack := tar.NewWriter(press)
		err = errors.Join(add(pack, dir), pack.Close(), press.Close(), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), out)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", out, err)
	}
	return nil
}

// add puts a directory's files into an archive, below its name.
func add(pack *tar.Writer, dir string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		header, err := tar.FileInfoHeader(info, "")
		if err != nil {
			return err
		}
		name, err := filepath.Rel(filepath.Dir(dir), path)
		if err != nil {
			return err
		}
		header.Name = filepath.ToSlash(name)
		if err := pack.WriteHeader(header); err != nil || e.IsDir() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(pack, f)
		return err
	})
}

// showCollected says what is there, and what is not.
func (a *app) showCollected(x evidence.Index, where string) error {
	var bytes int64
	files := 0
	for _, e := range x.Entries {
		if e.File != "" {
			files, bytes = files+1, bytes+e.Bytes
		}
	}
	begin := where + "/index.md"
	if strings.HasSuffix(where, collectedSuffix) {
		begin = "index.md in " + where
	}
	fmt.Fprintf(a.Out, "%s, %d KiB; begin with %s\n", cli.Count(files, "file"), bytes>>10, begin)
	if missing := x.Missing(); len(missing) > 0 {
		fmt.Fprintf(a.Err, "%s could not be had; the index says why\n", cli.Count(len(missing), "piece"))
	}
	return nil
}

// describer is a hypervisor that tells how it was told to make a machine.
type describer struct {
	machine.Hypervisor
	describe func(ctx context.Context, name string) (string, error)
}

// Description is evidence.Hypervisor's.
func (d describer) Description(ctx context.Context, name string) (string, error) {
	return d.describe(ctx, name)
}

// realHere runs commands on this machine.
type realHere struct{}

// Run is evidence.Here's.
func (realHere) Run(ctx context.Context, out io.Writer, command ...string) error {
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Stdout, c.Stderr = out, out
	return c.Run()
}
