package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"mesh/cmd/internal/cli"
	"mesh/lab/guest"
	"mesh/lab/lifecycle"
)

func newConsole(a *app) *cobra.Command {
	var log, follow bool
	c := &cobra.Command{
		Use:   "console NAME MACHINE",
		Short: "Sit at a machine's serial console, or read what it wrote there",
		Long: `Sit at a machine's serial console; root is logged in there. Ctrl-] leaves, and
nothing else does. One person at a time can sit there.`,
		Example: `  lab console first-node one
  lab console first-node one --log       everything it ever wrote
  lab console first-node one --log -f    and what it writes from now on`,
		Args:              cli.UsageArgs(cobra.ExactArgs(2)),
		ValidArgsFunction: a.completeMachine,
		RunE: func(c *cobra.Command, args []string) error {
			_, lab := a.lab()
			_, m, err := lab.Find(args[0], args[1])
			if err != nil {
				return err
			}
			if log || follow {
				return a.file(c.Context(), m.Spec.ConsoleLog, follow)
			}
			return a.sit(c.Context(), args[0], m)
		},
	}
	c.Flags().BoolVar(&log, "log", false, "print the recorded console")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "print the recorded console, and go on with what comes")
	return c
}

func newLogs(a *app) *cobra.Command {
	var journal, follow bool
	c := &cobra.Command{
		Use:   "logs NAME [MACHINE]",
		Short: "Print the world's log, a machine's console, or its journal",
		Example: `  lab logs first-node                 the world: leases, names, certificates
  lab logs first-node two             the machine's recorded console
  lab logs first-node two --journal   its journal since it booted`,
		Args:              cli.UsageArgs(cobra.RangeArgs(1, 2)),
		ValidArgsFunction: a.completeMachine,
		RunE: func(c *cobra.Command, args []string) error {
			_, lab := a.lab()
			if len(args) == 1 {
				if journal {
					return cli.WithCode(cli.Usage, errors.New("--journal needs a machine"))
				}
				r, err := lab.Record(args[0])
				if err != nil {
					return err
				}
				return a.file(c.Context(), r.Plan.World.Log, follow)
			}
			if journal {
				command := []string{"journalctl", "--no-pager", "--boot"}
				if follow {
					return cli.WithCode(cli.Usage, errors.New("--journal and --follow exclude each other; `lab console` sees what comes"))
				}
				return a.execWith(c.Context(), args[0], args[1], guest.Command{Args: command})
			}
			_, m, err := lab.Find(args[0], args[1])
			if err != nil {
				return err
			}
			return a.file(c.Context(), m.Spec.ConsoleLog, follow)
		},
	}
	c.Flags().BoolVar(&journal, "journal", false, "the machine's journal since it booted")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what comes")
	return c
}

// followEvery is how often a followed file is looked at.
const followEvery = 200 * time.Millisecond

// file prints a file and, when it follows, what is added to it until ctx ends.
func (a *app) file(ctx context.Context, path string, follow bool) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("nothing was recorded yet: %w", err)
	}
	defer f.Close()
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		if _, err := io.Copy(a.Out, f); err != nil {
			return fmt.Errorf("print %s: %w", path, err)
		}
		if !follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return status(cli.Interrupted)
		case <-tick.C:
		}
	}
}

// leave is Ctrl-], which ends a sitting.
const leave = 0x1d

// sit connects the terminal with a machine's console until Ctrl-] or the
// machine's end.
func (a *app) sit(ctx context.Context, name string, m lifecycle.Machine) error {
	in, ok := a.In.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return cli.WithCode(cli.Usage, fmt.Errorf("a console needs a terminal; `lab console %s %s --log` prints what was recorded", name, m.Name))
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", m.Spec.ConsoleSock)
	if err != nil {
		return silent(name, m.Name, err)
	}
	defer conn.Close()
	fmt.Fprintf(a.Err, "console of %s; Ctrl-] leaves\r\n", m.Name)
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return fmt.Errorf("set up the terminal: %w", err)
	}
	defer fmt.Fprint(a.Err, "\r\n")
	defer term.Restore(int(in.Fd()), before)

	ended := make(chan struct{})
	var copying sync.WaitGroup
	copying.Go(func() {
		defer close(ended)
		_, _ = io.Copy(a.Out, conn) // ends with the connection
	})
	err = typed(ctx, in, conn, ended)
	conn.Close()
	copying.Wait()
	return err
}

// typed passes on what is typed until Ctrl-], or until ended or ctx is done.
func typed(ctx context.Context, in *os.File, to io.Writer, ended <-chan struct{}) error {
	buf := make([]byte, 256)
	for {
		select {
		case <-ended:
			return errors.New("the console was closed: the machine ended")
		case <-ctx.Done():
			return status(cli.Interrupted)
		default:
		}
		// A read of a terminal cannot be broken off, so none is begun before there is something.
		poll := []unix.PollFd{{Fd: int32(in.Fd()), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, 100); n == 0 || errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return fmt.Errorf("wait for the terminal: %w", err)
		}
		n, err := in.Read(buf)
		at := bytes.IndexByte(buf[:n], leave)
		if at >= 0 {
			n = at
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return fmt.Errorf("write to the console: %w", err)
		}
		if at >= 0 || errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the terminal: %w", err)
		}
	}
}
