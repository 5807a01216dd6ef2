package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/lab/install"
)

func newInstall(a *app) *cobra.Command {
	var dryRun, yes bool
	c := &cobra.Command{
		Use:   "install",
		Short: "Make this Debian or Ubuntu machine a lab machine",
		Long: `Make this machine, a Debian from 12 or an Ubuntu from 24.04 on, a lab machine:
say which packages it lacks and what for, install them with apt-get, and verify
what it can do then. Where nothing is missing nothing is installed.

It asks before it installs, unless --yes is given. Packages are not taken away
again by the lab.`,
		Example: "  lab install --dry-run\n  sudo lab install --yes",
		Args:    cli.UsageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			p, err := planInstall(c.Context())
			if err != nil {
				return err
			}
			fmt.Fprint(a.Out, p)
			if dryRun {
				return nil
			}
			if len(p.Commands) > 0 {
				if err := a.install(c.Context(), p, yes); err != nil {
					return err
				}
			}
			return a.verify(c.Context(), false)
		},
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be done")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

// planInstall looks at this machine.
func planInstall(ctx context.Context) (install.Plan, error) {
	release, err := os.ReadFile("/etc/os-release")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return install.Plan{}, fmt.Errorf("find out which system this is: %w", err)
	}
	p, err := install.NewPlan(string(release), "")
	if err != nil {
		return p, err
	}
	installed, err := exec.CommandContext(ctx, "dpkg-query", "--show", "--showformat", `${db:Status-Status} ${Package}\n`).Output()
	if err != nil {
		return p, fmt.Errorf("ask which packages are installed: %w", err)
	}
	return install.NewPlan(string(release), string(installed))
}

// install carries a plan out, once it is agreed to.
func (a *app) install(ctx context.Context, p install.Plan, yes bool) error {
	if os.Geteuid() != 0 {
		return cli.WithCode(cli.Prerequisite, errors.New("installing packages needs root: sudo lab install"))
	}
	if !yes {
		fmt.Fprint(a.Err, "install them? [y/N] ")
		answer, _ := bufio.NewReader(a.In).ReadString('\n')
		if word := strings.ToLower(strings.TrimSpace(answer)); word != "y" && word != "yes" {
			return cli.WithCode(cli.Usage, errors.New("nothing was installed; `lab install --yes` does not ask"))
		}
	}
	for _, words := range p.Commands {
		cmd := exec.CommandContext(ctx, words[0], words[1:]...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		cmd.Stdout, cmd.Stderr = a.Err, a.Err
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w\n  next:  see what apt-get said above; is the network up, and /etc/apt/sources.list right?", strings.Join(words[:2], " "), err)
		}
	}
	return nil
}
