package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/host/agent"
	"mesh/host/store"
	"mesh/host/system"
)

func (h *host) newPurge() *cobra.Command {
	var leave bool
	c := &cobra.Command{
		Use:   "purge",
		Short: "Forget everything this machine's host knows, once it owns nothing",
		Long: `Take away the host's record, its identity and what it keeps, and nothing else.
Refused while the host owns something, which nobody would know of any more, and
while it runs. A member of a mesh is retired at its plane first; where there is no
plane any more, --leave gives the membership up.`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error { return h.purge(leave) },
	}
	c.Flags().BoolVar(&leave, "leave", false, "give up the membership this machine has, without its plane")
	return c
}

// files are the names of what lies in the host's directories.
var (
	recordFiles   = regexp.MustCompile(`^(journal|snapshot)(\.damaged)?$|^lock$`)
	identityFiles = regexp.MustCompile(`^(identity|lock)$`)
	programFiles  = regexp.MustCompile(`^(good|state|lock)$`)
	runtimeFiles  = regexp.MustCompile(`^(link\.json|pass\.json|outcome\.json|packages\.log|agent\.lock|lock)$`)
)

func (h *host) purge(leave bool) error {
	if err := h.prepare(); err != nil {
		return err
	}
	s := h.system()
	running, err := h.runtimeFolder(s).Lock("agent.lock")
	if errors.Is(err, store.ErrLocked) {
		return errors.New("purge: mesh-host runs on this machine; stop it first: systemctl stop mesh-host")
	}
	if err != nil {
		return err
	}
	defer running.Close()
	member, err := agent.ReadMembership(h.identity(s))
	if err == nil && member != nil && !leave {
		return fmt.Errorf("purge: this machine is node %s of mesh %s: retire it at its plane, or give the membership up with --leave", member.Node, member.Mesh)
	}
	if err := h.mayRemove(); err != nil {
		return err
	}
	return h.dissolve(s)
}

// dissolve takes the directories away, the record last: while it is there, what
// is gone already is not missed.
func (h *host) dissolve(s *system.System) error {
	var left []string
	for _, d := range []struct {
		path  string
		known *regexp.Regexp
	}{{h.content(), system.ContentNames}, {h.identity(s).path, identityFiles}, {filepath.Join(h.state, programBelow), programFiles}, {h.runtime, runtimeFiles}, {h.state, recordFiles}} {
		stays, err := s.StateDirectory(d.path).Dissolve(d.known.MatchString)
		if err != nil {
			return fmt.Errorf("purge: %w", err)
		}
		left = append(left, stays...)
	}
	if len(left) > 0 {
		return fmt.Errorf("purge: what the host does not know stays: %q", left)
	}
	_, err := fmt.Fprintf(h.Out, "nothing of mesh-host is left in %s and %s\n", h.state, h.runtime)
	return err
}
