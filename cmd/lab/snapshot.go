package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/lab/images"
	"mesh/lab/lifecycle"
	"mesh/lab/snapshot"
)

// snapshots makes the snapshots that a command works with.
func (a *app) snapshots() *snapshot.Snapshots {
	cfg, lab := a.lab()
	return snapshot.New(snapshot.Config{
		Lab: lab, Ports: cfg, Images: a.images(a).List, NewRun: a.newRun,
		NewID:   newID,
		Entropy: func() []byte { return randomBytes(64) },
	})
}

// newID makes 32 hex digits that nobody else has.
func newID() string { return hex.EncodeToString(randomBytes(16)) }

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

func newSnapshot(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "snapshot",
		Short: "Take, list and remove snapshots of whole scenarios, with memory",
		Long: `Take, list and remove snapshots of whole scenarios, with memory.

A snapshot is one consistent cut: all machines pause at one moment, their memory
is written, their disks are frozen, and they run on. The world is part of it,
and so are faults in force. "lab restore" goes back to it, "lab fork" goes on
from it beside. Snapshots stay when the scenario is destroyed, and restoring one
raises it again. They form a tree; disks are shared and never copied.`,
		Example: `  lab snapshot take trio before-upgrade
  lab snapshot list trio --tree
  lab restore trio before-upgrade
  lab snapshot remove trio before-upgrade`,
	}
	c.AddCommand(newSnapshotTake(a), newSnapshotList(a), newSnapshotShow(a), newSnapshotVerify(a), newSnapshotRemove(a))
	return c
}

func newSnapshotTake(a *app) *cobra.Command {
	var about string
	var asJSON bool
	c := &cobra.Command{
		Use:   "take NAME [SNAPSHOT]",
		Short: "Take a snapshot of a raised scenario, which runs on",
		Long: `Take a snapshot of a raised scenario, which runs on. Without a name for it the
snapshot is called s1, s2, … How far apart the machines paused is measured and
told. If anything fails, all machines run on and there is no snapshot.`,
		Example: `  lab snapshot take trio
  lab snapshot take trio enrolled --about "all three are nodes"`,
		Args:              cli.UsageArgs(cobra.RangeArgs(1, 2)),
		ValidArgsFunction: a.completeRaised(1),
		RunE: func(c *cobra.Command, args []string) error {
			begun := time.Now()
			m, err := a.snapshots().Take(c.Context(), args[0], append(args, "")[1], about)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.JSON(a.Out, a.snapshotRow(m, nil))
			}
			_, err = fmt.Fprintf(a.Out, "snapshot %s of %s: %s, paused within %.0f ms of each other, %s, in %.1f s\n",
				m.Name, m.Scenario, cli.Count(len(m.Machines), "machine"), m.SkewSeconds*1000, size(m.Bytes()), time.Since(begun).Seconds())
			return err
		},
	}
	c.Flags().StringVar(&about, "about", "", "a line about it, shown in lists")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// snapshotRow is a snapshot as lists show it.
type snapshotRow struct {
	Scenario    string    `json:"scenario"`
	Name        string    `json:"name"`
	ID          string    `json:"id"`
	About       string    `json:"about,omitempty"`
	Parent      string    `json:"parent,omitempty"` // id of the nearest ancestor that is there
	Current     bool      `json:"current"`          // the scenario comes of this one, and of none later
	Taken       time.Time `json:"taken"`
	SkewSeconds float64   `json:"skew_seconds"`
	Bytes       int64     `json:"bytes"` // its own, without layers of disks, which are shared
	Machines    []string  `json:"machines"`
	Accelerator string    `json:"accelerator"`
}

func (a *app) snapshotRow(m snapshot.Manifest, all []snapshot.Manifest) snapshotRow {
	row := snapshotRow{
		Scenario: m.Scenario, Name: m.Name, ID: m.ID, About: m.About, Taken: m.Taken.Truncate(time.Millisecond),
		SkewSeconds: m.SkewSeconds, Bytes: m.Bytes(), Accelerator: string(m.Platform.Accelerator),
	}
	for _, one := range m.Machines {
		row.Machines = append(row.Machines, one.Name)
	}
	if parent, ok := m.Parent(all); ok {
		row.Parent = parent.ID
	}
	_, lab := a.lab()
	r, err := lab.Record(m.Scenario)
	row.Current = err == nil && len(r.Snapshots) > 0 && r.Snapshots[0] == m.ID
	return row
}

// snapshotsOn lists the snapshots with a machine whose disk stands on an image.
func (a *app) snapshotsOn(image images.Image) (users []string, err error) {
	all, err := a.snapshots().Store().List("")
	for _, m := range all {
		for _, digest := range m.Images {
			if digest == image.Digest {
				users = append(users, "snapshot "+m.Name+" of "+m.Scenario)
			}
		}
	}
	return users, err
}

func newSnapshotList(a *app) *cobra.Command {
	var tree, asJSON bool
	c := &cobra.Command{
		Use:   "list [NAME]",
		Short: "List snapshots, of one scenario or of all",
		Long: `List snapshots, of one scenario or of all. "*" marks the one that a raised
scenario comes of. SIZE is what removing the snapshot frees for certain; layers
of disks are shared and go when nothing stands on them.`,
		Example: `  lab snapshot list
  lab snapshot list trio --tree
  lab snapshot list --json | jq '.[].name'`,
		Args:              cli.UsageArgs(cobra.MaximumNArgs(1)),
		ValidArgsFunction: a.completeSnapshot(1),
		RunE: func(c *cobra.Command, args []string) error {
			scenario := append(args, "")[0]
			if scenario != "" {
				if err := lifecycle.CheckName(scenario); err != nil {
					return err
				}
			}
			all, broken := a.snapshots().Store().List(scenario)
			var err error
			switch {
			case asJSON:
				rows := []snapshotRow{}
				for _, m := range all {
					rows = append(rows, a.snapshotRow(m, all))
				}
				err = cli.JSON(a.Out, rows)
			case tree:
				err = snapshot.WriteTree(a.Out, snapshot.Tree(all), a.snapshotLabel)
			default:
				err = a.snapshotTable(all)
			}
			return errors.Join(err, broken)
		},
	}
	c.Flags().BoolVar(&tree, "tree", false, "draw which comes of which")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (a *app) snapshotTable(all []snapshot.Manifest) error {
	var rows [][]string
	for _, m := range all {
		row := a.snapshotRow(m, all)
		rows = append(rows, []string{
			m.Scenario, m.Name + mark(row), m.Taken.Format("2006-01-02 15:04:05 UTC"), size(row.Bytes),
			fmt.Sprintf("%.0f ms", m.SkewSeconds*1000), strings.Join(row.Machines, " "), m.About,
		})
	}
	return cli.Table(a.Out, []string{"SCENARIO", "SNAPSHOT", "TAKEN", "SIZE", "SKEW", "MACHINES", "ABOUT"}, rows)
}

func (a *app) snapshotLabel(m snapshot.Manifest) string {
	row := a.snapshotRow(m, nil)
	label := m.Scenario + " " + m.Name + mark(row) + "  " + m.Taken.Format("2006-01-02 15:04:05 UTC")
	if m.About != "" {
		label += "  " + m.About
	}
	return label
}

func mark(row snapshotRow) string {
	if row.Current {
		return " *"
	}
	return ""
}

// size is a number of bytes for people.
func size(bytes int64) string { return fmt.Sprintf("%d MiB", (bytes+1<<19)>>20) }

func newSnapshotShow(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "show NAME SNAPSHOT",
		Short: "Show what a snapshot consists of",
		Example: `  lab snapshot show trio enrolled
  lab snapshot show trio enrolled --json | jq .platform`,
		Args:              cli.UsageArgs(cobra.ExactArgs(2)),
		ValidArgsFunction: a.completeSnapshot(2),
		RunE: func(c *cobra.Command, args []string) error {
			m, err := a.snapshots().Store().Get(args[0], args[1])
			if err != nil {
				return err
			}
			if asJSON {
				return cli.JSON(a.Out, m)
			}
			return a.showSnapshot(m)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print its manifest")
	return c
}

func (a *app) showSnapshot(m snapshot.Manifest) error {
	fmt.Fprintf(a.Out, "snapshot %s of %s (id %s)\n", m.Name, m.Scenario, m.ID)
	if m.About != "" {
		fmt.Fprintf(a.Out, "about     %s\n", m.About)
	}
	fmt.Fprintf(a.Out, "taken     %s, machines paused within %.0f ms of each other\n", m.Taken.Format(time.RFC3339), m.SkewSeconds*1000)
	fmt.Fprintf(a.Out, "platform  %s, %s, CPU %s, %s\n", m.Platform.Emulator, m.Platform.MachineType, m.Platform.CPU, m.Platform.Accelerator)
	for _, f := range m.Faults {
		fmt.Fprintf(a.Out, "fault     %s (%s)\n", f.Name, f.Kind)
	}
	fmt.Fprintln(a.Out)
	layers, files := map[string]int64{}, map[string]int64{}
	for _, l := range m.Layers {
		layers[l.ID] = l.Bytes
	}
	for _, f := range m.Files {
		files[f.Path] = f.Bytes
	}
	var rows [][]string
	for i, one := range m.Machines {
		state, disk := "running", int64(0)
		switch {
		case one.Memory == "":
			state = "off"
		case one.Paused:
			state = "paused"
		}
		for _, id := range m.Plan.Machines[i].Layers {
			disk += layers[id]
		}
		rows = append(rows, []string{
			one.Name, m.Plan.Machines[i].Image, state, size(files[one.Memory]),
			size(disk) + " in " + cli.Count(len(m.Plan.Machines[i].Layers), "layer"),
		})
	}
	return cli.Table(a.Out, []string{"MACHINE", "IMAGE", "STATE", "MEMORY", "DISK"}, rows)
}

func newSnapshotVerify(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "verify NAME SNAPSHOT",
		Short:             "Read a snapshot whole, and tell whether it is as it was",
		Args:              cli.UsageArgs(cobra.ExactArgs(2)),
		ValidArgsFunction: a.completeSnapshot(2),
		RunE: func(c *cobra.Command, args []string) error {
			if err := a.snapshots().Verify(c.Context(), args[0], args[1]); err != nil {
				return err
			}
			_, err := fmt.Fprintf(a.Out, "snapshot %s of %s is whole\n", args[1], args[0])
			return err
		},
	}
}

func newSnapshotRemove(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME SNAPSHOT...",
		Short: "Remove snapshots; all that come of them stay whole",
		Example: `  lab snapshot remove trio enrolled
  lab destroy trio --snapshots         the scenario and all of its snapshots`,
		Args:              cli.UsageArgs(cobra.MinimumNArgs(2)),
		ValidArgsFunction: a.completeSnapshot(-1),
		RunE: func(c *cobra.Command, args []string) error {
			s := a.snapshots()
			var problems []error
			for _, name := range args[1:] {
				problems = append(problems, s.Remove(args[0], name))
			}
			return errors.Join(problems...)
		},
	}
}

// completeSnapshot offers scenarios that have snapshots, and then those, for the
// first n arguments or, below zero, for all.
func (a *app) completeSnapshot(n int) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) (words []string, _ cobra.ShellCompDirective) {
		_ = a.absolute()
		store := a.snapshots().Store()
		switch {
		case n >= 0 && len(args) >= n:
		case len(args) == 0:
			words, _ = store.Scenarios()
		default:
			all, _ := store.List(args[0])
			for _, m := range all {
				words = append(words, m.Name)
			}
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}
