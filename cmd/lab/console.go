package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/lab/guest"
	"mesh/lab/world/stamp"
)

// scrollBack is how many recorded lines somebody sees who sits down at a console.
const scrollBack = 20

// recordedFlags say what of a recorded console is printed.
type recordedFlags struct {
	follow, times bool
	lines         int // below zero: all
}

func newConsole(a *app) *cobra.Command {
	var f recordedFlags
	var log bool
	c := &cobra.Command{
		Use:   "console NAME MACHINE",
		Short: "Sit at a machine's serial console, or read what it wrote there",
		Long: `Sit at a machine's serial console; root is logged in there. What it wrote last
is shown first. Ctrl-] leaves, and nothing else does: when the machine's power
is cut, the console waits until it is back. One person at a time can sit there.

Everything that a machine writes is recorded, with the time at which each line
came: --log prints it, from its first boot on.`,
		Example: `  lab console first-node one
  lab console first-node one --log -t    all that it ever wrote, with times
  lab console first-node one --log -n 50 -f`,
		Args:              cli.UsageArgs(cobra.ExactArgs(2)),
		ValidArgsFunction: a.completeMachine,
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("lines") && f.lines < 0 {
				return cli.WithCode(cli.Usage, fmt.Errorf("--lines %d: it is a number from 0 on", f.lines))
			}
			if log || f.follow || f.times {
				return a.recorded(c.Context(), args[0], args[1], f)
			}
			if f.lines < 0 {
				f.lines = scrollBack
			}
			return a.sit(c.Context(), args[0], args[1], f.lines)
		},
	}
	c.Flags().BoolVar(&log, "log", false, "print the recorded console")
	f.add(c)
	return c
}

// add gives a command the flags.
func (f *recordedFlags) add(c *cobra.Command) {
	c.Flags().BoolVarP(&f.follow, "follow", "f", false, "print what is recorded, and go on with what comes")
	c.Flags().BoolVarP(&f.times, "timestamps", "t", false, "print what is recorded, each line with the time at which it came")
	c.Flags().IntVarP(&f.lines, "lines", "n", -1, "only the last N lines of what is recorded")
}

func newLogs(a *app) *cobra.Command {
	var f recordedFlags
	var journal bool
	c := &cobra.Command{
		Use:   "logs NAME [MACHINE]",
		Short: "Print the world's log, a machine's console, or its journal",
		Example: `  lab logs first-node                 the world: leases, names, certificates
  lab logs first-node two -t          the machine's recorded console
  lab logs first-node two --journal   its journal since it booted`,
		Args:              cli.UsageArgs(cobra.RangeArgs(1, 2)),
		ValidArgsFunction: a.completeMachine,
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case journal && len(args) == 1:
				return cli.WithCode(cli.Usage, errors.New("--journal needs a machine"))
			case f.times && (journal || len(args) == 1):
				return cli.WithCode(cli.Usage, errors.New("--timestamps is for consoles; the world's log and journals have times anyway"))
			case journal && f.follow:
				return cli.WithCode(cli.Usage, errors.New("--journal and --follow exclude each other; `lab console` sees what comes"))
			case journal:
				command := []string{"journalctl", "--no-pager", "--boot"}
				if f.lines >= 0 {
					command = append(command, fmt.Sprintf("--lines=%d", f.lines))
				}
				return a.execWith(c.Context(), args[0], args[1], guest.Command{Args: command})
			case len(args) == 2:
				return a.recorded(c.Context(), args[0], args[1], f)
			}
			_, lab := a.lab()
			r, err := lab.Record(args[0])
			if err != nil {
				return err
			}
			return a.print(c.Context(), r.Plan.World.Log, f)
		},
	}
	c.Flags().BoolVar(&journal, "journal", false, "the machine's journal since it booted")
	f.add(c)
	return c
}

// recorded prints a machine's recorded console.
func (a *app) recorded(ctx context.Context, name, machineName string, f recordedFlags) error {
	_, lab := a.lab()
	_, m, err := lab.Find(name, machineName)
	if err != nil {
		return err
	}
	path := m.Spec.ConsoleLog
	if f.times {
		path += stamp.Suffix
	}
	return a.print(ctx, path, f)
}

// followEvery is how often a followed file is looked at.
const followEvery = 200 * time.Millisecond

// print prints what is recorded in a file and, when it follows, what is added to
// it until ctx ends.
func (a *app) print(ctx context.Context, path string, f recordedFlags) error {
	r, err := guest.Recorded(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("nothing was recorded yet: there is no %s", path)
	}
	if err != nil {
		return err
	}
	defer r.Close()
	if f.lines >= 0 {
		if _, err := a.Out.Write(lastLines(r, f.lines)); err != nil {
			return fmt.Errorf("print %s: %w", path, err)
		}
	}
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		if _, err := io.Copy(a.Out, r); err != nil {
			return fmt.Errorf("print %s: %w", path, err)
		}
		if !f.follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return status(cli.Interrupted)
		case <-tick.C:
		}
	}
}

// lastLines reads to the end and keeps the last n lines, one that has no end
// among them. What cannot be read is met by who reads on.
func lastLines(r io.Reader, n int) []byte {
	var kept []byte
	buf := make([]byte, 64<<10)
	for {
		got, err := r.Read(buf)
		kept = append(kept, buf[:got]...)
		kept = kept[beginOfLast(kept, n):]
		if err != nil {
			return kept
		}
	}
}

// beginOfLast is where the last n lines of a text begin.
func beginOfLast(text []byte, n int) int {
	at := len(text)
	for range n {
		if at == 0 {
			return 0
		}
		at = bytes.LastIndexByte(text[:at-1], '\n') + 1
	}
	return at
}
