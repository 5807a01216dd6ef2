package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/host/agent"
	"mesh/host/identity"
	"mesh/host/store"
	"mesh/host/system"
)

// maxInput bounds what is read as a token: a line, with room for a mistake.
const maxInput = 64 << 10

func (h *host) newEnrol() *cobra.Command {
	var again bool
	c := &cobra.Command{
		Use:   "enrol TOKEN",
		Short: "Become a node of the mesh a token is for",
		Long: `Ask the plane that issued TOKEN for membership, and record it.

Everything about the token but its secret is checked before the network is
touched. The plane is proved by its key, whose fingerprint is in the token, and
by nothing else: this machine's clock may be wrong. The secret is never sent.
On a refusal the machine is as it was.

With "-" the token is read from standard input, where no list of processes shows
it. When the answer of the plane got lost, the same token may be used again.`,
		Example: "  mesh-host enrol - < token",
		Args:    cli.UsageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			text := args[0]
			if text == "-" {
				b, err := io.ReadAll(io.LimitReader(h.In, maxInput))
				if err != nil {
					return fmt.Errorf("read the token from standard input: %w", err)
				}
				text = string(b)
			}
			return h.enrol(c, text, again)
		},
	}
	c.Flags().BoolVar(&again, "again", false, "give up the membership this machine has, once the plane has admitted it anew")
	return c
}

func (h *host) enrol(c *cobra.Command, text string, again bool) error {
	if _, err := identity.ParseToken(text); err != nil {
		return err
	}
	restore := h.restorer()
	if err := h.prepare(); err != nil {
		return err
	}
	s := h.system()
	e := agent.Enrolment{
		Identity: h.identity(s), Facts: facts(), Random: rand.Reader, Now: time.Now, Again: again,
		EnsureRecord: func() error { return h.ensureRecord(s) },
		Note:         func(line string) { fmt.Fprintln(h.Err, line) },
	}
	m, err := e.Run(c.Context(), text)
	if err != nil {
		return errors.Join(err, restore())
	}
	fmt.Fprintf(h.Out, "node %s of mesh %s\n", m.Node, m.Mesh)
	if len(m.Addresses) > 0 {
		fmt.Fprintf(h.Out, "addresses %s\n", strings.Join(m.Addresses, ", "))
	}
	if now, err := h.inspection().Status(); err == nil && !now.Running {
		fmt.Fprintln(h.Err, "mesh-host is not running on this machine; start it with `systemctl start mesh-host` or `mesh-host run`")
	}
	return nil
}

// ensureRecord makes the host's record if there is none. A pass that has it open
// has made it.
func (h *host) ensureRecord(s *system.System) error {
	record, _, err := store.Open(h.record(s, slog.New(slog.DiscardHandler)))
	if errors.Is(err, store.ErrLocked) {
		return nil
	}
	if err != nil {
		return err
	}
	return record.Close()
}
