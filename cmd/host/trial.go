package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/host/declaration"
	"mesh/host/resource"
	"mesh/host/system"
	"mesh/host/upgrade"
)

// packageName is the Debian package this program comes in, and programPath where
// that puts it.
const (
	packageName = "mesh-host"
	programPath = "/usr/bin/mesh-host"
)

// programBelow is where in the state directory lies what is kept of this program.
const programBelow = "program"

func (h *host) keeper(s *system.System) *upgrade.Keeper {
	return upgrade.New(upgrade.Config{
		Files: s.Files, Directory: filepath.Join(h.state, programBelow), Program: h.program, Version: version, Now: time.Now,
	})
}

// machine is this machine, with what is known of the versions of this program.
type machine struct {
	*system.System
	keeper *upgrade.Keeper
}

func (h *host) machine(s *system.System) machine { return machine{s, h.keeper(s)} }

// Broken implements resource.Trials. The package of the version that works is
// installed in place of one that does not, if it is kept: so dpkg knows of no
// other version than the one that is there.
func (m machine) Broken(name string) ([]resource.Broken, error) {
	if name != packageName {
		return nil, nil
	}
	s, err := m.keeper.Read()
	if err != nil {
		return nil, err
	}
	var instead *declaration.Package
	if k := s.Kept; k != nil && k.Package != "" && m.HasContent(k.Package) {
		instead = &declaration.Package{Name: packageName, Version: k.Version, Blob: &declaration.Blob{Digest: k.Package}}
	}
	var all []resource.Broken
	for _, b := range s.Broken {
		if b.Version != "" {
			all = append(all, resource.Broken{Version: b.Version, Why: b.String(), Instead: instead})
		}
	}
	return all, nil
}

// prune takes away the contents that keep does not want, but for the package of
// the version that is kept.
func (m machine) prune(keep func(digest string) bool) error {
	s, err := m.keeper.Read()
	if err != nil {
		return err
	}
	return m.PruneContents(func(digest string) bool { return keep(digest) || s.Kept != nil && s.Kept.Package == digest })
}

func (h *host) newTrial() *cobra.Command {
	c := &cobra.Command{
		Use:   "trial",
		Short: "Watch over another version of this program, and let one be tried again",
		Long: `Another version of this program is on trial until it is healthy: it read this
machine's record, looked at everything it holds, and ran for a minute. None of
that needs the network. One that is not healthy in three starts is replaced by
the version before, and not tried again: "mesh-host status" shows it and why.`,
		Args: cli.UsageArgs(cobra.NoArgs),
	}
	c.AddCommand(h.newTrialBegin(), h.newTrialEnd(), &cobra.Command{
		Use:   "forget VERSION",
		Short: "Let a version that is known to be broken be tried again",
		Args:  cli.UsageArgs(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := h.prepare(); err != nil {
				return err
			}
			if err := h.keeper(h.system()).Forget(args[0]); err != nil {
				return err
			}
			_, err := fmt.Fprintf(h.Out, "version %s may be tried again\n", args[0])
			return err
		},
	})
	return c
}

// The unit of every later version calls the two below, on the version that is
// kept when that one comes: their names and what they take never change.

func (h *host) newTrialBegin() *cobra.Command {
	return &cobra.Command{
		Use:    "begin",
		Short:  "Called by mesh-host.service before each start, on the version that is kept",
		Hidden: true,
		Args:   cli.UsageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			s := h.system()
			said, err := h.keeper(s).Begin(func() string { return installed(c.Context(), s) })
			if said != "" {
				fmt.Fprintln(h.Err, "mesh-host: "+said)
			}
			return err
		},
	}
}

func (h *host) newTrialEnd() *cobra.Command {
	return &cobra.Command{
		Use:    "end",
		Short:  "Called by mesh-host.service after each end, on the version that is kept",
		Hidden: true,
		Args:   cli.UsageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			return h.keeper(h.system()).End(os.Getenv("SERVICE_RESULT"), os.Getenv("EXIT_CODE"), os.Getenv("EXIT_STATUS"))
		},
	}
}

// askingTime bounds how long dpkg is waited for: nothing before a start of this
// program may stand in its way.
const askingTime = 10 * time.Second

// installed is the version of this program's package that dpkg knows of.
func installed(ctx context.Context, s *system.System) string {
	ctx, cancel := context.WithTimeout(ctx, askingTime)
	defer cancel()
	known, err := s.Installed(ctx, []string{packageName})
	if err != nil {
		return ""
	}
	return known[packageName].Version
}
