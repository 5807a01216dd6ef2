package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/host/agent"
	"mesh/host/apply"
	"mesh/host/store"
)

func (h *host) newOrphans() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "orphans",
		Short: "List what is here because of the host, and would stay",
		Long: `List what the host had its hand in and would not take away when it is no longer
declared: what stood as declared when the host first saw it, what its record knows
from before a loss, and what it left behind. "mesh-host adopt" takes such a place,
"mesh-host release" gives up another. Answered from this machine alone.`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			orphans, err := h.inspection().Orphans(c.Context(), h.system())
			if err != nil {
				return readable(err)
			}
			if asJSON {
				return cli.JSON(h.Out, map[string]any{"orphans": slices.Concat([]apply.Orphan{}, orphans)})
			}
			return writeOrphans(h.Out, orphans)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "answer with one JSON document")
	return c
}

func writeOrphans(w io.Writer, orphans []apply.Orphan) error {
	if len(orphans) == 0 {
		_, err := fmt.Fprintln(w, "everything the host had its hand in is its own, or gone")
		return err
	}
	rows := make([][]string, 0, len(orphans))
	for _, o := range orphans {
		adopts := "yes"
		if !o.Adopts {
			adopts = "no: " + o.But
		}
		rows = append(rows, []string{o.Where, string(o.Kind), o.ID, map[bool]string{true: "yes", false: "no"}[o.Declared], o.Why, adopts})
	}
	return cli.Table(w, []string{"WHERE", "KIND", "RESOURCE", "DECLARED", "WHY IT WOULD STAY", "CAN BE ADOPTED"}, rows)
}

func (h *host) newAdopt() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "adopt PATH|UNIT|PACKAGE|CONTAINER...",
		Short: "Take as the host's own what it would leave otherwise",
		Long: `Take places that "mesh-host orphans" lists as if the host had made them. Nothing
is touched now. Once a place is not declared any more it is taken away, by the same
rules as everything else: a file if it is still the same, a directory if it is empty.
A directory is taken by itself, without what is in it.`,
		Example: "  mesh-host adopt /etc/demo.conf nginx",
		Args:    cli.UsageArgs(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			return h.owning(func(a *apply.Applier, d *apply.Desired) error {
				taken, err := a.Adopt(c.Context(), d, args)
				if err != nil {
					return err
				}
				return writeAdopted(h.Out, taken, asJSON)
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "answer with one JSON document")
	return c
}

func writeAdopted(w io.Writer, taken []apply.Orphan, asJSON bool) error {
	if asJSON {
		return cli.JSON(w, map[string]any{"adopted": taken})
	}
	for _, o := range taken {
		then := ""
		if !o.Declared {
			then = "; it is not declared, so the next pass takes it away"
		}
		if _, err := fmt.Fprintf(w, "%s %s is the host's%s\n", o.Kind, o.Where, then); err != nil {
			return err
		}
	}
	return nil
}

func (h *host) newRelease() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "release PATH|UNIT|PACKAGE|CONTAINER...",
		Short: "Give up what the host owns, and leave it as it is",
		Long: `Give up places, which stay as they are. One that is still declared is kept as
declared, and left when it is not any more.`,
		Args: cli.UsageArgs(cobra.MinimumNArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			return h.owning(func(a *apply.Applier, _ *apply.Desired) error {
				keys, err := a.Release(args)
				if err != nil {
					return err
				}
				return writeReleased(h.Out, keys, asJSON)
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "answer with one JSON document")
	return c
}

func writeReleased(w io.Writer, keys []store.Key, asJSON bool) error {
	if asJSON {
		return cli.JSON(w, map[string]any{"released": keys})
	}
	for _, key := range keys {
		if _, err := fmt.Fprintf(w, "%s is nobody's\n", key); err != nil {
			return err
		}
	}
	return nil
}

// owning opens the record for a change of what is owned.
func (h *host) owning(do func(*apply.Applier, *apply.Desired) error) (err error) {
	if err := h.prepare(); err != nil {
		return err
	}
	s := h.system()
	record, _, err := store.Open(h.record(s, slog.New(slog.DiscardHandler)))
	if errors.Is(err, store.ErrLocked) {
		return errors.New("mesh-host is at work on this machine; try again when its pass is over")
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, record.Close()) }()
	a := apply.New(apply.Config{Machine: s, Store: record, Now: time.Now})
	if _, err := a.Recover(context.Background()); err != nil {
		return err
	}
	held, err := record.Held()
	if err != nil {
		return err
	}
	desired, err := agent.Follows(held)
	if err != nil {
		return err
	}
	return do(a, desired)
}
