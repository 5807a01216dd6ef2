package main

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/host/store"
)

func (h *host) newAcknowledge() *cobra.Command {
	return &cobra.Command{
		Use:   "acknowledge",
		Short: "Say that what is lost of this machine's record is known",
		Long: `End the listing of what is lost of this machine's record, which "mesh-host
status" shows. What the host still knows to own from before a loss is trusted
again, and removed once it is no longer declared; what it has no record of stays
and is nobody's.`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			if err := h.prepare(); err != nil {
				return err
			}
			n, err := h.acknowledge()
			if err != nil {
				return fmt.Errorf("acknowledge: %w", err)
			}
			fmt.Fprintln(h.Out, cli.Count(n, "loss")+" acknowledged")
			return nil
		},
	}
}

// acknowledge ends the listing of losses and counts them.
func (h *host) acknowledge() (n int, err error) {
	record, _, err := store.Open(h.record(h.system(), slog.New(slog.DiscardHandler)))
	if errors.Is(err, store.ErrLocked) {
		return 0, errors.New("mesh-host is at work on this machine; try again when its pass is over")
	}
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, record.Close()) }()
	if n = len(record.View().Losses); n == 0 {
		return 0, nil
	}
	return n, record.Append(store.Acknowledged{Time: time.Now().UTC()})
}
