package figures_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"mesh/specs/figures"
)

var (
	hostBin   = flag.String("host", "", "path of the mesh-host program; empty skips its benchmark, which runs as root and writes files")
	hostDir   = flag.String("dir", "/var/tmp", "directory on the disk that is to be measured")
	hostFiles = flag.Int("files", 1000, "files of 4 KiB that each program keeps")
	slowFiles = flag.Int("slow-files", 100, "files that Ansible keeps: with 1,000 in a loop it takes nine minutes for each line")
	rest      = flag.Duration("rest", 10*time.Minute, "how long an idle mesh-host is watched; 0: it is not")
)

// many is the number of files that mesh-host alone is tried with, too.
const many = 10_000

// comparison is one run of the benchmark of the host.
type comparison struct {
	t     *testing.T
	dir   string
	sheet figures.Sheet
	goals []figures.Goal
	notes []string
}

// TestHost is `make bench-host`.
func TestHost(t *testing.T) {
	if *hostBin == "" {
		t.Skip("writes thousands of files as root and watches an idle host; run it with `make bench-host`")
	}
	if os.Getuid() != 0 {
		t.Fatal("the files it makes belong to root: run it as root")
	}
	dir, err := os.MkdirTemp(*hostDir, "mesh-figures-")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	// Not before the end: for minutes after many files were removed, ext4 takes long
	// to make new ones.
	t.Cleanup(func() { _ = errors.Join(os.RemoveAll(dir), os.RemoveAll(runtimeBase())) })
	if err := os.Mkdir(runtimeBase(), 0o700); err != nil {
		t.Fatal(err)
	}
	c := &comparison{t: t, dir: dir}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		c.notes = append(c.notes, "load of the machine when it began: "+strings.TrimSpace(string(load)))
	}
	var there []contender
	for _, x := range contenders(*hostBin) {
		if !x.installed() {
			c.sheet.Line(phases[0].what, x.name).Missing = true
			c.notes = append(c.notes, fmt.Sprintf("%s is not installed: there is no `%s`", x.name, x.program))
			continue
		}
		c.notes = append(c.notes, fmt.Sprintf("%s: %s", x.name, x.said()))
		there = append(there, x)
	}
	ctx := t.Context()
	c.sideBySide(ctx, there)
	c.cuts(ctx, there)
	c.many(ctx)
	c.idle(ctx)
	c.judge()
	c.report()
}

// ground makes an empty one and what the contender is told.
func (c *comparison) ground(x contender, name string) (ground, error) {
	g := ground{work: filepath.Join(c.dir, name, "work"), tree: filepath.Join(c.dir, name, "at", "tree"), files: *hostFiles}
	if x.slow {
		g.files = *slowFiles
	}
	if err := errors.Join(os.MkdirAll(g.work, 0o700), os.MkdirAll(filepath.Dir(g.tree), 0o755)); err != nil {
		return g, err
	}
	return g, x.prepare(g)
}

// sideBySide runs all phases of all programs, in turns.
func (c *comparison) sideBySide(ctx context.Context, all []contender) {
	for n := range *runs {
		for _, x := range all {
			if n > 0 && x.slow {
				continue
			}
			c.t.Logf("run %d of %d: %s", n+1, *runs, x.name)
			if err := c.once(ctx, x, fmt.Sprintf("run%d-%s", n, filepath.Base(x.program))); err != nil {
				c.t.Errorf("%s: %v", x.name, err)
			}
		}
	}
}

// once is all phases of one program, each from where the one before ended.
func (c *comparison) once(ctx context.Context, x contender, name string) error {
	g, err := c.ground(x, name)
	if err != nil {
		return err
	}
	for _, p := range phases {
		if p.drifts {
			if err := g.drift(); err != nil {
				return err
			}
		}
		line := c.sheet.Line(p.what, x.name)
		line.Files = g.files
		m, err := measure(ctx, g.work, x.env(g), append([]string{x.program}, x.command(g, p.to)...)...)
		if whole := g.check(p.to, 0, g.files); err == nil && whole != g.files {
			err = fmt.Errorf("%s: %d of %d files are as declared", p.what, whole, g.files)
		}
		if err != nil {
			line.Failed = append(line.Failed, err.Error())
			return err // what follows begins with this
		}
		line.Runs = append(line.Runs, m)
		c.t.Logf("  %s: %.3f s", p.what, m.Time.Seconds())
	}
	return nil
}

// judge compares what was measured with the figures to reach.
func (c *comparison) judge() {
	ms := func(what string) (float64, bool) {
		d := c.sheet.Line(what, mesh).Median()
		return float64(d.Microseconds()) / 1000, d > 0
	}
	unchanged, known := ms("unchanged")
	c.goals = append(c.goals, figures.AtMost("1,000 files unchanged", unchanged, 60, "ms", known && *hostFiles == 1000))
	ratio, known := c.sheet.Ratio("unchanged", cfengine, mesh)
	c.goals = append(c.goals, figures.AtLeast("… faster than CFEngine", ratio, 8, "times", known))
	cold, known := ms("cold")
	durable := c.sheet.Line("cold", mesh).Durable == allOf(*hostFiles)
	c.goals = append(c.goals, figures.AtMost("1,000 files cold, durable", cold, 400, "ms", known && durable && *hostFiles == 1000))
	ratio, known = c.sheet.Ratio("cold", cfengine, mesh)
	c.goals = append(c.goals, figures.AtLeast("… faster than CFEngine, which is not durable", ratio, 2, "times", known))
	line := c.sheet.Line(manyUnchanged, mesh)
	known = len(line.Runs) > 0
	c.goals = append(c.goals,
		figures.AtMost("10,000 files unchanged", line.Median().Seconds()*1000, 1000, "ms", known),
		figures.AtMost("… peak memory", float64(line.Peak())/1e6, 40, "MB", known))
	if st, err := os.Stat(*hostBin); err == nil {
		c.goals = append(c.goals, figures.AtMost("the program on disk", float64(st.Size())/1e6, 20, "MB", true))
	}
}

// report writes what was measured, for people and for programs.
func (c *comparison) report() {
	c.notes = append(c.notes, "fsyncs are all calls that wait for the disk (fsync, fdatasync, sync, syncfs, sync_file_range), counted by strace in a run of its own that is not timed; "+
		"in that run the program works on an ext4 of its own, which is cut off its disk (EXT4_IOC_SHUTDOWN, its journal not flushed) as soon as the program has ended: what is there after it was mounted again counts as durable")
	var text bytes.Buffer
	fmt.Fprintf(&text, "# What the host costs\n\n%s; %s; %d runs side by side, of Ansible one.\n\n", host(), fileSystem(*hostDir), *runs)
	err := errors.Join(c.sheet.Markdown(&text), func() error {
		fmt.Fprintln(&text, "\n## Figures to reach")
		return figures.Goals(&text, c.goals)
	}())
	fmt.Fprintln(&text, "\n## How it was measured")
	for _, note := range c.notes {
		fmt.Fprintln(&text, "- "+note)
	}
	c.t.Log("\n" + text.String())
	if *outDir == "" {
		return
	}
	doc, jsonErr := json.MarshalIndent(map[string]any{
		"host": host(), "file_system": fileSystem(*hostDir), "runs": *runs, "lines": c.sheet.Lines(), "goals": c.goals, "notes": c.notes,
	}, "", "  ")
	err = errors.Join(err, jsonErr, os.WriteFile(filepath.Join(*outDir, "host.md"), text.Bytes(), 0o644),
		os.WriteFile(filepath.Join(*outDir, "host.json"), append(doc, '\n'), 0o644))
	if err != nil {
		c.t.Error(err)
	}
}

// fileSystem names what a directory is on. https://man7.org/linux/man-pages/man2/statfs.2.html
func fileSystem(dir string) string {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return "an unknown file system"
	}
	known := map[int64]string{0xef53: "ext4", 0x9123683e: "btrfs", 0x58465342: "xfs", 0x01021994: "tmpfs", 0x794c7630: "overlayfs"}
	if name := known[int64(st.Type)]; name != "" {
		return name
	}
	return fmt.Sprintf("file system 0x%x", st.Type)
}
