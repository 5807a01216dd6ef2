package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/host/agent"
	"mesh/host/bundle"
	"mesh/host/declaration"
	"mesh/host/store"
	"mesh/host/system"
)

func (h *host) newReconcile() *cobra.Command {
	var asJSON, dryRun bool
	var contents string
	c := &cobra.Command{
		Use:   "reconcile BUNDLE",
		Short: "Bring this machine to a bundle, before it is a member of a mesh",
		Long: `Apply the resources in the file BUNDLE, in their order, and own them from then
on. The file is read strictly: what is not understood is refused as a whole,
before anything is touched. With "-" it is read from standard input.

This is how the first node is raised, before any plane exists. A machine that is
a member of a mesh follows its plane and takes no bundle. Once enrolled, what
the bundle raised passes to the plane as it stands.

With --dry-run nothing is touched: what would be done is said, and why, as
"mesh-host plan BUNDLE" does.`,
		Example: `  mesh-host reconcile --dry-run bundle.json    say what it would do
  mesh-host reconcile bundle.json              do it`,
		Args:              cli.UsageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: completeBundle,
		RunE: func(c *cobra.Command, args []string) error {
			text, err := readDocument(h.In, args[0])
			if err != nil {
				return cli.WithCode(cli.Usage, err)
			}
			defer bounded(len(text))()
			if dryRun {
				return h.plan(c.Context(), text, asJSON, false)
			}
			if contents == "" {
				contents = filepath.Join(filepath.Dir(args[0]), "content")
			}
			return h.reconcile(c, text, contents, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "answer with one JSON document")
	c.Flags().StringVar(&contents, "content", "", `directory with what the bundle names by digest, in files named by their SHA-256 (default "content" beside the bundle)`)
	c.Flags().BoolVar(&dryRun, "dry-run", false, "touch nothing and say what would be done")
	return c
}

// bounded has the collector begin not before memory is as much as a bundle of size
// bytes may take: a few times its size. Below that a command that soon ends needs no
// collector; one that needs more waits for it. The function returned puts it back.
func bounded(size int) func() {
	percent := debug.SetGCPercent(-1)
	limit := debug.SetMemoryLimit(10<<20 + 6*int64(size))
	return func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}
}

// Contents are taken over so many at once, which bounds what is in memory and the
// files that are open.
const (
	contentsAtOnce = 256
	bytesAtOnce    = 8 << 20
)

// takeContents takes over what a bundle names by digest, from the directory it
// came with. What is not there is waited for; what is something else is refused.
func takeContents(s *system.System, list []declaration.Resource, from string) error {
	var came [][]byte
	size := int64(0)
	keep := func() error {
		if len(came) == 0 {
			return nil
		}
		err := s.RoomFor(size)
		if err == nil {
			err = s.KeepContents(came)
		}
		if err != nil {
			return fmt.Errorf("take over what the bundle names: %w", err)
		}
		came, size = nil, 0
		return nil
	}
	blobs := declaration.Blobs(list)
	digests := make([]string, len(blobs))
	for i, blob := range blobs {
		digests[i] = blob.Digest
	}
	has := s.HasContents(digests)
	for i, blob := range blobs {
		if has[i] {
			continue
		}
		data, err := readContent(filepath.Join(from, blob.Digest), blob)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		came, size = append(came, data), size+blob.Bytes
		if len(came) < contentsAtOnce && size < bytesAtOnce {
			continue
		}
		if err := keep(); err != nil {
			return err
		}
	}
	return keep()
}

// readContent reads a file that has to be what the blob says.
func readContent(path string, blob declaration.Blob) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read what the bundle names: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, blob.Bytes+1))
	if err == nil && (int64(len(data)) != blob.Bytes || declaration.Digest(data) != blob.Digest) {
		err = cli.WithCode(cli.Usage, fmt.Errorf("it is not the %d bytes of digest %s", blob.Bytes, declaration.Digest(data)))
	}
	if err != nil {
		return nil, fmt.Errorf("take over %s: %w", path, err)
	}
	return data, nil
}

// readDocument reads a file, or in for "-", and no more of it than a reader of
// documents would look at.
func readDocument(in io.Reader, path string) ([]byte, error) {
	var size int64
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("read bundle: %w", err)
		}
		defer file.Close()
		in = file
		if st, err := file.Stat(); err == nil {
			size = min(st.Size(), declaration.MaxBytes)
		}
	}
	text := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead)) // for all of it, most times
	if _, err := text.ReadFrom(io.LimitReader(in, declaration.MaxBytes+1)); err != nil {
		return nil, fmt.Errorf("read bundle: %w", err)
	}
	return text.Bytes(), nil
}

func (h *host) reconcile(c *cobra.Command, text []byte, contents string, asJSON bool) error {
	s := h.system()
	ahead := store.ReadAhead(s.StateDirectory(h.state)) // takes as long as to read the bundle
	accepted, err := bundle.Accept(text, time.Now())
	if err != nil {
		return err // whoever it is that runs this
	}
	if err := h.prepare(); err != nil {
		return err
	}
	cfg, err := h.bundling(s)
	if err != nil {
		return err
	}
	hand, err := h.hand(s, slog.New(slog.NewTextHandler(h.Err, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		return err
	}
	if err := takeContents(s, accepted.Resources, contents); err != nil {
		return err
	}
	hand.Once, hand.Store.Ahead = true, ahead
	hand.Waiting = func() { fmt.Fprintln(h.Err, "waiting for a pass of mesh-host that is going on") }
	cfg.Hand = hand
	outcome, err := bundle.Reconcile(c.Context(), cfg, accepted)
	if len(outcome.Results) > 0 || err == nil {
		if writeErr := h.writeOutcome(outcome, asJSON); writeErr != nil {
			return writeErr
		}
	}
	switch {
	case err != nil:
		return err
	case !agent.Converged(outcome):
		return errors.New("not everything could be done; mesh-host tries again as long as it runs, see `mesh-host status`")
	}
	return nil
}

// bundling is what taking a bundle rests on, but for a hand.
func (h *host) bundling(s *system.System) (bundle.Config, error) {
	cfg := bundle.Config{Now: time.Now}
	member, err := agent.ReadMembership(h.identity(s))
	if member != nil {
		cfg.Mesh, cfg.Node = member.Mesh, member.Node
	}
	return cfg, err
}

func (h *host) writeOutcome(o declaration.Outcome, asJSON bool) error {
	if asJSON {
		return cli.JSON(h.Out, o)
	}
	rows := make([][]string, 0, len(o.Results))
	for _, r := range o.Results {
		rows = append(rows, []string{r.ID, string(r.Kind), r.Where, withReason(r.Status, r.Reason)})
	}
	if len(rows) > 0 {
		if err := cli.Table(h.Out, []string{"RESOURCE", "KIND", "WHERE", "STATUS"}, rows); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(h.Out, summary(o.Results))
	return err
}
