package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/lab/lifecycle"
)

// sshPort is where machines listen.
const sshPort = "22"

func newSSHConfig(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "ssh-config [NAME]",
		Short: "Print OpenSSH configuration for the machines that are raised",
		Long: `Print configuration that OpenSSH reads: a host NAME.MACHINE for each machine of
one scenario, or of all; of one, MACHINE alone too. Each scenario has a key of
its own, and each machine is known by its own.

ssh, scp, sftp, rsync and everything else that is built on OpenSSH can use it.
The way in is "lab forward": it needs root, and opens no port on this machine.`,
		Example: `  lab ssh-config first-node > config
  ssh -F config one
  scp -F config two:/etc/os-release .
  rsync -e 'ssh -F config' -a ./site/ one:/srv/site/`,
		Args:              cli.UsageArgs(cobra.MaximumNArgs(1)),
		ValidArgsFunction: a.completeRaised(1),
		RunE: func(_ *cobra.Command, args []string) error {
			_, lab := a.lab()
			names := args
			if len(args) == 0 {
				var err error
				if names, err = lab.Names(); err != nil {
					return err
				}
			}
			if len(names) == 0 {
				fmt.Fprintln(a.Err, "nothing is raised; `lab raise SCENARIO` raises one")
			}
			for _, name := range names {
				r, err := lab.Record(name)
				if err != nil {
					return err
				}
				for _, m := range r.Plan.Machines {
					host := name + "." + m.Name
					if len(args) > 0 {
						host += " " + m.Name
					}
					options, err := a.sshOptions(r, m.Name)
					if err != nil {
						return err
					}
					fmt.Fprintf(a.Out, "Host %s\n  %s\n\n", host, strings.Join(options, "\n  "))
				}
			}
			return nil
		},
	}
}

func newSSH(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "ssh NAME MACHINE [-- COMMAND...]",
		Short: "Log in to a machine by SSH, or run a command there",
		Long: `Log in to a machine by SSH as root, or run a command there as ssh(1) does: by a
shell, which reads the words once more. It is the installed ssh with what "lab
ssh-config" prints. "lab exec" needs no SSH in the machine.`,
		Example: `  lab ssh first-node one
  lab ssh first-node one -- journalctl -fu mesh-host`,
		DisableFlagsInUseLine: true,

		Args:              cli.UsageArgs(cobra.MinimumNArgs(2)),
		ValidArgsFunction: a.completeCommand,
		RunE: func(c *cobra.Command, args []string) error {
			command := args[2:]
			if len(command) > 0 && command[0] == "--" {
				command = command[1:]
			}
			return a.ssh(c.Context(), args[0], args[1], command)
		},
	}
	c.Flags().SetInterspersed(false) // the command's flags are its own
	return c
}

// ssh runs the installed ssh and makes its outcome that of this process.
func (a *app) ssh(ctx context.Context, name, machineName string, command []string) error {
	_, lab := a.lab()
	r, m, err := lab.Find(name, machineName)
	if err != nil {
		return err
	}
	options, err := a.sshOptions(r, m.Name)
	if err != nil {
		return err
	}
	program, err := exec.LookPath("ssh")
	if err != nil {
		return cli.WithCode(cli.Prerequisite, errors.New("ssh is not installed on this machine; `apt-get install openssh-client`, or use `lab exec`"))
	}
	words := []string{"-F", "none"}
	for _, o := range options {
		words = append(words, "-o", o)
	}
	c := exec.CommandContext(ctx, program, append(append(words, m.Name), command...)...)
	c.Stdin, c.Stdout, c.Stderr = a.In, a.Out, a.Err
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 5 * time.Second
	err = c.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		return status(exit.ExitCode())
	}
	if ctx.Err() != nil {
		return status(cli.Interrupted)
	}
	return err
}

// sshOptions are lines of ssh_config(5) by which a machine is reached.
func (a *app) sshOptions(r lifecycle.Record, machineName string) ([]string, error) {
	s := r.Plan.SSH
	if s.Key == "" {
		return nil, &lifecycle.Error{
			What: "machine " + machineName + " of " + r.Plan.Name + " has no SSH key", Why: "it was raised by an earlier lab",
			Next: "raise it again, or use `lab exec`", Code: cli.Failed,
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	way := []string{self, "--store", a.store, "--runtime", a.runtime, "forward", "--stdio", r.Plan.Name, machineName, sshPort}
	for i := range way {
		way[i] = shellWord(way[i])
	}
	return []string{
		"HostName " + machineName,
		"User root",
		"HostKeyAlias " + machineName,
		"UserKnownHostsFile " + sshPath(s.KnownHosts),
		"StrictHostKeyChecking yes",
		"IdentityFile " + sshPath(s.Key),
		"IdentitiesOnly yes",
		"PreferredAuthentications publickey",
		"ProxyCommand " + strings.ReplaceAll(strings.Join(way, " "), "%", "%%"),
	}, nil
}

// shellWord makes a text one word of a shell.
func shellWord(text string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+:=@", r)
	}
	if text != "" && strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// sshPath makes a path one argument of an option in which % has a meaning.
func sshPath(path string) string {
	path = strings.ReplaceAll(path, "%", "%%")
	if strings.ContainsAny(path, " \t#'\"\\") {
		path = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(path) + `"`
	}
	return path
}
