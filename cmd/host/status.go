package main

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
)

func (h *host) newStatus() *cobra.Command {
	var asJSON, check bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Say what state this machine is in, offline",
		Long: `Say whether this machine is hosted, enrolled or disconnected and since when,
which declaration it follows, what became of each resource, and what is owed or
lost. It asks nobody and changes nothing.`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := h.inspection().Status()
			if err != nil {
				return readable(err)
			}
			if asJSON {
				err = cli.JSON(h.Out, s)
			} else {
				err = writeStatus(h.Out, s, time.Now())
			}
			if err == nil && check && !s.Converged {
				return cli.WithCode(cli.Differs, errors.New("this machine is not as declared"))
			}
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "answer with one JSON document")
	c.Flags().BoolVar(&check, "check", false, "exit with 3 unless everything is as declared and nothing is owed")
	return c
}

func (h *host) newWhy() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "why PATH|PACKAGE|UNIT|CONTAINER|IMAGE",
		Short: "Say why something on this machine is as it is, offline",
		Long: `Say which resource declared a path, a package, a unit or a container, or brought
an image, which is named with its digest; since when the host owns it, what the
last pass did about it, and which restarts it owes or caused.`,
		Args: cli.UsageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := h.inspection().Status()
			if err != nil {
				return readable(err)
			}
			s = s.About(args[0])
			if asJSON {
				return writeWhyJSON(h.Out, s)
			}
			return writeWhy(h.Out, s, args[0])
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "answer with one JSON document")
	return c
}

func (h *host) newMayRemove() *cobra.Command {
	return &cobra.Command{
		Use:   "may-remove",
		Short: "Say whether the host can be removed without leaving behind what it owns",
		Long: `Exit with 0 when this machine's host owns nothing, else with 1 and the reasons;
with 4 when its record may not be read. The package asks this before it is removed.`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error { return h.mayRemove() },
	}
}

// mayRemove says why the host cannot go yet, as an error.
func (h *host) mayRemove() error {
	reasons, err := h.inspection().MayRemove()
	if err != nil {
		return readable(err)
	}
	if len(reasons) == 0 {
		return nil
	}
	const most = 20
	for i, line := range reasons {
		if i == most {
			fmt.Fprintf(h.Err, "  and %d more\n", len(reasons)-most)
			break
		}
		fmt.Fprintln(h.Err, "  "+line)
	}
	return fmt.Errorf("the host owns something on this machine, which would stay and be nobody's: let the plane declare nothing for it first")
}

// readable says what to do about a record that may not be read.
func readable(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return cli.WithCode(cli.Prerequisite, fmt.Errorf("%w; run this as root", err))
	}
	return err
}

// ago says how long before now t was, in words.
func ago(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case d < 0:
		return "in the future, by this machine's clock"
	case d < 2*time.Minute:
		return cli.Count(int(d/time.Second), "second") + " ago"
	case d < 2*time.Hour:
		return cli.Count(int(d/time.Minute), "minute") + " ago"
	case d < 48*time.Hour:
		return cli.Count(int(d/time.Hour), "hour") + " ago"
	}
	return cli.Count(int(d/(24*time.Hour)), "day") + " ago"
}

func at(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") }
