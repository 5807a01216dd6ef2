package evidence

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"mesh/lab/guest"
	"mesh/lab/lifecycle"
)

// gather is one collection.
type gathering struct {
	*Collector
	record  lifecycle.Record
	dir     string
	secrets []string

	mu   sync.Mutex
	left int64 // bytes that may still be written
}

// gather fills dir, and writes the index when all else is there.
func (c *Collector) gather(ctx context.Context, r lifecycle.Record, dir string, why Reason) (Index, error) {
	begun := c.cfg.Now()
	if why.Why == "" {
		why.Why = "somebody asked for it"
	}
	index := Index{
		Format: 1, Name: r.Plan.Name, Scenario: r.Plan.Scenario, Source: r.Plan.Source, Run: r.Plan.Run,
		Phase: r.Phase, Accelerator: string(r.Accelerator), Lab: c.cfg.Version, Why: why.Why,
		Collected: begun.UTC().Truncate(time.Second), Entries: []Entry{},
	}
	bounded, cancel := context.WithTimeoutCause(ctx, c.cfg.All, errors.New("time for collecting was up"))
	defer cancel()
	g := &gathering{Collector: c, record: r, dir: dir, secrets: why.Secrets, left: c.cfg.Bytes}
	for _, entries := range g.all(bounded, Pieces(r)) {
		index.Entries = append(index.Entries, entries...)
	}
	index.Seconds = float64(c.cfg.Now().Sub(begun).Milliseconds()) / 1000
	index.Why = redacted(index.Why, why.Secrets)
	text, err := index.json()
	return index, errors.Join(err,
		os.WriteFile(filepath.Join(dir, indexJSON), text, 0o600),
		os.WriteFile(filepath.Join(dir, indexMarkdown), []byte(index.Markdown()), 0o600))
}

// all gathers pieces: machines side by side, and what is not of one beside them;
// one after the other of each, since an agent does one thing at a time.
func (g *gathering) all(ctx context.Context, pieces []Piece) [][]Entry {
	results := make([][]Entry, len(pieces))
	chains := map[string][]int{}
	for i, p := range pieces {
		chains[p.Machine] = append(chains[p.Machine], i)
	}
	var gathering sync.WaitGroup
	for _, chain := range chains {
		gathering.Go(func() {
			var silent error // why the machine is asked nothing more
			for _, i := range chain {
				results[i], silent = g.one(ctx, pieces[i], silent)
			}
		})
	}
	gathering.Wait()
	return results
}

// one gathers one piece and tells whether its machine is silent.
func (g *gathering) one(ctx context.Context, p Piece, silent error) ([]Entry, error) {
	if p.kind == command && silent != nil {
		return []Entry{p.missing(fmt.Errorf("not asked: %v", silent))}, silent
	}
	ctx, cancel := context.WithTimeoutCause(ctx, g.cfg.Each, fmt.Errorf("not within %s", g.cfg.Each))
	defer cancel()
	if p.kind == binary {
		return g.files(ctx, p), nil
	}
	err := g.write(p, func(out io.Writer) error { return g.read(ctx, p, out) })
	if err.fatal != nil && p.kind == command {
		silent = err.fatal
	}
	return []Entry{err.entry}, silent
}

// written is what came of writing a file.
type written struct {
	entry Entry
	fatal error // the source gave nothing
}

// write makes the file of a piece out of what read gives.
func (g *gathering) write(p Piece, read func(io.Writer) error) written {
	path := filepath.Join(g.dir, filepath.FromSlash(p.File))
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	}
	if err != nil {
		return written{p.missing(err), nil}
	}
	out := &bounded{out: f, left: g.allow(p.Limit)}
	granted := out.left
	clean := io.WriteCloser(newRedactor(out, g.secrets))
	if p.kind == binary {
		clean = plain{out}
	}
	err = read(clean)
	problem := errors.Join(clean.Close(), f.Close())
	g.giveBack(granted - out.wrote)
	entry := Entry{File: p.File, What: p.What, Machine: p.Machine, From: p.From, Bytes: out.wrote, Cut: out.cut}
	exit := (*exitError)(nil)
	if err != nil && out.wrote == 0 || problem != nil {
		_ = os.Remove(path)
		entry = p.missing(errors.Join(err, problem))
	} else if err != nil {
		entry.Problem = err.Error()
	}
	entry.Problem = redacted(entry.Problem, g.secrets)
	if errors.As(err, &exit) {
		err = nil // it answered
	}
	return written{entry, err}
}

// missing is the entry of a piece that could not be had.
func (p Piece) missing(err error) Entry {
	return Entry{What: p.What, Machine: p.Machine, From: p.From, Problem: err.Error()}
}

// exitError says that a command on a machine ended badly.
type exitError struct {
	code int
	said string
}

func (e *exitError) Error() string {
	if e.said == "" {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return fmt.Sprintf("exit code %d: %s", e.code, e.said)
}

// read writes a piece to out.
func (g *gathering) read(ctx context.Context, p Piece, out io.Writer) error {
	switch p.kind {
	case record:
		return document(out, g.record)
	case status:
		s, err := g.cfg.Status(ctx, g.record.Plan.Name)
		if err != nil {
			return err
		}
		return document(out, s)
	case file:
		return tail(p.path, p.Limit, out)
	case console:
		return whole(p.path, out)
	case command:
		return g.ask(ctx, p, out)
	case here:
		return g.cfg.Here.Run(ctx, out, p.command...)
	case diagnose:
		return text(out)(g.cfg.Hypervisor.Diagnosis(ctx, p.domain))
	case describe:
		return text(out)(g.cfg.Hypervisor.Description(ctx, p.domain))
	}
	return fmt.Errorf("no way to collect %s", p.File)
}

func (g *gathering) ask(ctx context.Context, p Piece, out io.Writer) error {
	r, err := g.cfg.Guest.Exec(ctx, p.domain, guest.Command{Args: p.command})
	if err != nil {
		return err
	}
	if _, err := out.Write(r.Stdout); err != nil {
		return err
	}
	if r.ExitCode != 0 {
		return &exitError{r.ExitCode, strings.TrimSpace(string(r.Stderr))}
	}
	return nil
}

// text writes what the hypervisor says; nothing said is an error.
func text(out io.Writer) func(string, error) error {
	return func(said string, err error) error {
		if err == nil && strings.TrimSpace(said) == "" {
			err = errors.New("it says nothing")
		}
		if err != nil {
			return err
		}
		_, err = io.WriteString(out, said)
		return err
	}
}

func document(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// tail writes a file's end. Files of /proc have no size, and are short.
func tail(path string, limit int64, out io.Writer) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > limit {
		if _, err := f.Seek(-limit, io.SeekEnd); err != nil {
			return err
		}
	}
	_, err = io.Copy(out, f)
	return err
}

// whole writes everything that is recorded of a console.
func whole(path string, out io.Writer) error {
	r, err := guest.Recorded(path)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("nothing was recorded")
	}
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(out, r)
	return err
}

// files copies what a pattern finds, each as an entry of its own.
func (g *gathering) files(ctx context.Context, p Piece) []Entry {
	paths, err := filepath.Glob(p.path)
	if err == nil && len(paths) == 0 {
		err = errors.New("there are none")
	}
	if err != nil {
		return []Entry{p.missing(err)}
	}
	var entries []Entry
	for _, path := range paths {
		one := p
		one.File, one.From = p.File+"/"+filepath.Base(path), path
		done := g.write(one, func(out io.Writer) error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = io.Copy(out, f)
			return err
		})
		entries = append(entries, done.entry)
	}
	return entries
}

// allow takes from what may be written in all.
func (g *gathering) allow(want int64) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	granted := min(want, g.left)
	g.left -= granted
	return granted
}

func (g *gathering) giveBack(n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left += n
}

// bounded writes the first bytes and forgets the others, without an error.
type bounded struct {
	out         io.Writer
	left, wrote int64
	cut         bool
}

func (b *bounded) Write(p []byte) (int, error) {
	keep := p[:min(int64(len(p)), b.left)]
	b.cut = b.cut || len(keep) < len(p)
	n, err := b.out.Write(keep)
	b.left -= int64(n)
	b.wrote += int64(n)
	if err != nil {
		return n, err
	}
	return len(p), nil
}

// plain passes everything on as it is.
type plain struct{ io.Writer }

func (plain) Close() error { return nil }

// redacted is a text without what is secret.
func redacted(text string, secrets []string) string {
	var b bytes.Buffer
	r := newRedactor(&b, secrets)
	_, _ = r.Write([]byte(text)) // a buffer takes everything
	_ = r.Close()
	return b.String()
}
