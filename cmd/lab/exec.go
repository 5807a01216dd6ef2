package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/lab/guest"
	"mesh/lab/lifecycle"
)

func newExec(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "exec NAME MACHINE -- COMMAND...",
		Short: "Run a command on a machine, as root",
		Long: `Run a command on a machine, as root. It is no shell: for one, run it. What is
piped in becomes the command's input; its output, its errors and its exit code
become those of this command.`,
		Example: `  lab exec first-node one -- mesh-host status
  lab exec first-node one -- sh -c 'journalctl -b | tail'
  echo hello | lab exec first-node one -- cat`,
		DisableFlagsInUseLine: true,

		Args:              cli.UsageArgs(cobra.MinimumNArgs(3)),
		ValidArgsFunction: a.completeCommand,
		RunE: func(c *cobra.Command, args []string) error {
			command := args[2:]
			if command[0] == "--" {
				command = command[1:]
			}
			if len(command) == 0 {
				return cli.WithCode(cli.Usage, fmt.Errorf("no command to run (usage: %s)", c.UseLine()))
			}
			return a.exec(c.Context(), args[0], args[1], command)
		},
	}
	c.Flags().SetInterspersed(false) // the command's flags are its own
	return c
}

func (a *app) exec(ctx context.Context, name, machineName string, command []string) error {
	var stdin []byte
	if a.piped() {
		var err error
		if stdin, err = io.ReadAll(a.In); err != nil {
			return fmt.Errorf("read input: %w", err)
		}
	}
	return a.execWith(ctx, name, machineName, guest.Command{Args: command, Stdin: stdin})
}

// execWith runs a command on a machine and makes its outcome that of this process.
func (a *app) execWith(ctx context.Context, name, machineName string, command guest.Command) error {
	cfg, lab := a.lab()
	_, m, err := lab.Find(name, machineName)
	if err != nil {
		return err
	}
	out, err := cfg.Guest.Exec(ctx, m.Spec.Name, command)
	if err != nil {
		return silent(name, machineName, err)
	}
	_, errOut := a.Out.Write(out.Stdout)
	_, errErr := a.Err.Write(out.Stderr)
	switch {
	case errOut != nil:
		return fmt.Errorf("write output: %w", errOut)
	case errErr != nil:
		return fmt.Errorf("write errors: %w", errErr)
	case out.ExitCode != 0:
		return status(out.ExitCode)
	}
	return nil
}

// silent explains that nothing could be done on a machine.
func silent(name, machineName string, err error) error {
	return &lifecycle.Error{
		What: fmt.Sprintf("machine %s of %s", machineName, name), Why: err.Error(),
		Next: fmt.Sprintf("`lab status %[1]s` tells whether it runs; `lab console %[1]s %[2]s --log` what it said last", name, machineName),
		Code: cli.Failed, Cause: err,
	}
}

func newCopy(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "copy SOURCE DESTINATION",
		Short: "Copy a file to or from a machine",
		Long: `Copy a file to or from a machine. A file on a machine is NAME:MACHINE:/PATH. A
destination that ends with a slash is a directory.`,
		Example: `  lab copy ./plane.yaml first-node:one:/etc/mesh-plane/
  lab copy first-node:one:/var/log/dpkg.log .`,
		Args:              cli.UsageArgs(cobra.ExactArgs(2)),
		ValidArgsFunction: a.completeRemote,
		RunE: func(c *cobra.Command, args []string) error {
			from, fromMachine := parseRemote(args[0])
			to, toMachine := parseRemote(args[1])
			switch {
			case fromMachine && !toMachine:
				return a.copyOut(c.Context(), from, args[1])
			case toMachine && !fromMachine:
				return a.copyIn(c.Context(), args[0], to)
			}
			return cli.WithCode(cli.Usage, fmt.Errorf("one of %q and %q must be a file on a machine, NAME:MACHINE:/PATH, and the other one a file here", args[0], args[1]))
		},
	}
}

// remote is a file on a machine.
type remote struct{ name, machine, path string }

var remoteForm = regexp.MustCompile(`^([a-z][a-z0-9-]*):([a-z][a-z0-9-]*):(/.*)$`)

func parseRemote(arg string) (remote, bool) {
	m := remoteForm.FindStringSubmatch(arg)
	if m == nil {
		return remote{}, false
	}
	return remote{m[1], m[2], m[3]}, true
}

func (a *app) copyIn(ctx context.Context, from string, to remote) error {
	f, err := os.Open(from)
	if err != nil {
		return cli.WithCode(cli.Usage, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = cli.WithCode(cli.Usage, fmt.Errorf("%s is not a regular file", from))
	}
	if err != nil {
		return err
	}
	if strings.HasSuffix(to.path, "/") {
		to.path = path.Join(to.path, filepath.Base(from))
	}
	cfg, lab := a.lab()
	_, m, err := lab.Find(to.name, to.machine)
	if err != nil {
		return err
	}
	if err := cfg.Guest.CopyIn(ctx, m.Spec.Name, f, to.path, info.Mode().Perm()); err != nil {
		return silent(to.name, to.machine, err)
	}
	return nil
}

func (a *app) copyOut(ctx context.Context, from remote, to string) error {
	if info, err := os.Stat(to); err == nil && info.IsDir() || strings.HasSuffix(to, "/") {
		to = filepath.Join(to, path.Base(from.path))
	}
	cfg, lab := a.lab()
	_, m, err := lab.Find(from.name, from.machine)
	if err != nil {
		return err
	}
	return writeFile(to, 0o644, func(w io.Writer) error {
		if err := cfg.Guest.CopyOut(ctx, m.Spec.Name, from.path, w); err != nil {
			return silent(from.name, from.machine, err)
		}
		return nil
	})
}
