package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/lab/archive"
	"mesh/lab/images"
)

// archiveSuffix ends the names of exported files.
const archiveSuffix = ".meshlab"

func (a *app) archive() *archive.Archive {
	cfg, lab := a.lab()
	return archive.New(archive.Config{
		Lab: lab, Ports: cfg, Snapshots: a.snapshots(), Images: images.Store{Dir: a.store}, Disks: archive.Qcow2{}, NewID: newID,
	})
}

func newExport(a *app) *cobra.Command {
	var o archive.ExportOptions
	var output string
	c := &cobra.Command{
		Use:   "export NAME SNAPSHOT",
		Short: "Write a snapshot and all that it stands on into one file",
		Long: `Write a snapshot and all that it stands on into one file, which "lab import"
takes in on another lab machine, under another user, into another store. Its
beginning says what it takes to restore it: QEMU, machine type, CPU and
accelerator.

The file holds the memory of the machines, and so their secrets.`,
		Example: `  lab export trio enrolled                       trio-enrolled.meshlab
  lab export trio enrolled -o - | ssh other lab import -
  lab export trio enrolled --without-images  where the image is the same`,
		Args:              cli.UsageArgs(cobra.ExactArgs(2)),
		ValidArgsFunction: a.completeSnapshot(2),
		RunE: func(c *cobra.Command, args []string) error {
			o.Scenario, o.Snapshot = args[0], args[1]
			if output == "" {
				output = args[0] + "-" + args[1] + archiveSuffix
			}
			return a.export(c, o, output)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "the file; - is standard output (default: NAME-SNAPSHOT"+archiveSuffix+")")
	c.Flags().BoolVar(&o.WithoutImages, "without-images", false, "leave out machine images, which are most of it")
	return c
}

// export writes the file whole or not at all.
func (a *app) export(c *cobra.Command, o archive.ExportOptions, output string) error {
	begun := time.Now()
	if output == "-" {
		_, err := a.archive().Export(c.Context(), o, a.Out)
		return err
	}
	var x archive.Index
	var size int64
	err := writeFile(output, 0o600, func(w io.Writer) (err error) {
		file := &counted{w: w}
		x, err = a.archive().Export(c.Context(), o, file)
		size = file.n
		return err
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Out, "snapshot %s of %s is in %s: %d MiB, of %d MiB, in %.1f s\n",
		o.Snapshot, o.Scenario, output, size>>20, x.Bytes()>>20, time.Since(begun).Seconds())
	return err
}

func newImport(a *app) *cobra.Command {
	var o archive.ImportOptions
	var asJSON bool
	c := &cobra.Command{
		Use:   "import FILE",
		Short: "Take in a snapshot that was exported",
		Long: `Take in a snapshot that was exported; "lab restore" then makes it run on. That
it can be restored here is checked before anything is stored; then every content
is compared with its digest. What is in the file is run as it is: take in what
you would run.`,
		Example: `  lab import trio-enrolled.meshlab
  lab import trio-enrolled.meshlab --as theirs
  lab import trio-enrolled.meshlab --dry-run     what is in it; does it fit?`,
		Args: cli.UsageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			in := a.In
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return cli.WithCode(cli.Usage, err)
				}
				defer f.Close()
				in = f
			}
			x, err := a.archive().Import(c.Context(), in, o)
			if err != nil {
				return err
			}
			return a.showImported(x, o.DryRun, asJSON)
		},
	}
	c.Flags().StringVar(&o.As, "as", "", "the scenario's name here (default: as it was)")
	c.Flags().BoolVar(&o.DryRun, "dry-run", false, "only tell what is in it, and whether it fits here")
	c.Flags().BoolVar(&asJSON, "json", false, "print the file's index")
	return c
}

func (a *app) showImported(x archive.Index, dry, asJSON bool) error {
	m := x.Snapshot
	if asJSON {
		return cli.JSON(a.Out, x)
	}
	if dry {
		if err := a.showSnapshot(m); err != nil {
			return err
		}
		_, err := fmt.Fprintf(a.Out, "\nit can be restored here; %d MiB\n", x.Bytes()>>20)
		return err
	}
	_, err := fmt.Fprintf(a.Out, "snapshot %s of %s is here; it runs on with: lab restore %s %s\n", m.Name, m.Scenario, m.Scenario, m.Name)
	return err
}

func newMove(a *app) *cobra.Command {
	var rsh, program string
	var asJSON bool
	c := &cobra.Command{
		Use:   "move NAME qemu+ssh://HOST",
		Short: "Move a raised scenario to another lab machine, where it runs on",
		Long: `Move a raised scenario to another lab machine, where it runs on from the instant
of a snapshot: machines with their memory, world and faults, over ssh, in
libvirt's form of a hypervisor behind it. The lab has to be installed there, for
a user who is root. Here the scenario runs until all its machines answer there,
and is then destroyed; its snapshots stay. If anything fails it runs on here;
what a move left that was killed, the next one to the same HOST removes.

Its world is a new one there, whose issuer has a new root
(see lab restore --as).`,
		Example: `  lab move trio qemu+ssh://root@two.example
  lab move trio qemu+ssh://root@two.example --rsh "ssh -i /root/.ssh/lab"
  lab move trio qemu+ssh://two --lab "sudo lab --store /srv/lab"`,
		Args:              cli.UsageArgs(cobra.ExactArgs(2)),
		ValidArgsFunction: a.completeRaised(1),
		RunE: func(c *cobra.Command, args []string) error {
			to, err := archive.ParseRemote(args[1])
			if err != nil {
				return err
			}
			to.Shell, to.Lab = strings.Fields(rsh), strings.Fields(program)
			if len(to.Shell) == 0 || len(to.Lab) == 0 {
				return cli.WithCode(cli.Usage, errors.New("--rsh and --lab name a program"))
			}
			moved, err := a.archive().Move(c.Context(), args[0], to)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.JSON(a.Out, moved)
			}
			_, err = fmt.Fprintf(a.Out, "scenario %s runs on %s; %d MiB went over, in %.1f s\n", moved.Scenario, moved.Target, moved.Bytes>>20, moved.Seconds)
			return err
		},
	}
	c.Flags().StringVar(&rsh, "rsh", "ssh", "program, with its flags, that is given HOST and a command to run there")
	c.Flags().StringVar(&program, "lab", "lab", "the lab there, with flags for all its commands")
	c.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	return c
}
