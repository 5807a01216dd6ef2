package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"mesh/lab/lifecycle"
	"mesh/lab/snapshot"
)

// Target is the lab of another lab machine.
type Target interface {
	// String names it for people.
	String() string
	// Look tells what is raised there, and the contents of the images it has.
	Look(ctx context.Context) (Sight, error)
	// Import takes in an archive, as Archive.Import does.
	Import(ctx context.Context, archive io.Reader) error
	// Restore makes a snapshot run on.
	Restore(ctx context.Context, scenario, snapshot string) error
	// Answering is nil when every machine of a scenario answers that is to.
	Answering(ctx context.Context, scenario string) error
	// ComesOf tells of which snapshot a scenario comes that is raised there: its id,
	// or nothing.
	ComesOf(ctx context.Context, scenario string) (string, error)
	// Destroy ends a scenario. Nothing there is success.
	Destroy(ctx context.Context, scenario string) error
	// Forget removes a snapshot. Nothing there is success.
	Forget(ctx context.Context, scenario, snapshot string) error
}

// Sight is what a Target is seen to have.
type Sight struct {
	Raised   []string // names
	Contents []string // of images
}

// Moved is what came of a move.
type Moved struct {
	Scenario string  `json:"scenario"`
	Target   string  `json:"target"`
	Bytes    int64   `json:"bytes"` // that went over, compressed
	Seconds  float64 `json:"seconds"`
}

// undoLimit bounds what is done after a failure or an interruption.
const undoLimit = 2 * time.Minute

// Move brings a raised scenario to another lab machine, where it runs on from the
// instant of a snapshot. Here it runs until all its machines answer there, and is
// then destroyed with that snapshot; its others stay. On an error, an
// interruption and a kill it runs on here; what a kill left, here and there, is
// removed by the next move to the same target. One move of a scenario goes on at a
// time.
func (a *Archive) Move(ctx context.Context, scenario string, to Target) (Moved, error) {
	begun := a.cfg.Ports.Now()
	release, err := a.cfg.Lab.HoldMove(scenario)
	if err != nil {
		return Moved{}, err
	}
	defer release()
	sight, err := to.Look(ctx)
	if err != nil {
		return Moved{}, fmt.Errorf("look at %s: %w", to, err)
	}
	runs := a.runs(scenario) // if not, taking the snapshot says so
	if runs {
		if err := a.clear(ctx, scenario, to, &sight); err != nil {
			return Moved{}, fmt.Errorf("remove what a move that was killed left on %s: %w", to, err)
		}
	}
	if runs && slices.Contains(sight.Raised, scenario) {
		return Moved{}, &lifecycle.Error{
			What: fmt.Sprintf("scenario %s cannot be moved to %s", scenario, to), Why: "one of that name is raised there",
			Next: "destroy that one, or raise this one under another name", Code: codeUsage,
		}
	}
	m, err := a.cfg.Snapshots.Take(ctx, scenario, movePrefix+a.cfg.NewID()[:8], aboutMove(to))
	if err != nil {
		return Moved{}, err
	}
	sent, err := a.handOver(ctx, m, to, sight)
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	if err != nil {
		// What cannot be removed there now, the next move to there does, which knows of
		// it by the snapshot here.
		err = errors.Join(err, a.clearOne(undo, m, to, &sight))
		return Moved{}, &lifecycle.Error{
			What: fmt.Sprintf("scenario %s was not moved to %s", scenario, to), Why: err.Error(),
			Next: "it runs on here", Code: exitCode(ctx), Cause: err,
		}
	}
	a.cfg.Ports.Progress.Note("all machines answer on %s; removing the scenario here", to)
	// For as long as the snapshot is here the move counts as cut short, and what
	// runs there as a copy to be removed. So it goes when nothing is left to be
	// done there, and before anything is undone here.
	err = to.Forget(undo, scenario, m.Name)
	err = errors.Join(err, a.cfg.Snapshots.Remove(scenario, m.Name))
	if r, absent := a.cfg.Lab.Record(scenario); absent == nil && slices.Contains(r.Snapshots, m.ID) { // else it is another of that name
		_, destroyed := a.cfg.Lab.Destroy(undo, scenario)
		err = errors.Join(err, destroyed)
	}
	if err != nil {
		err = fmt.Errorf("scenario %s runs on %s; not all of it could be removed here: %w", scenario, to, err)
	}
	return Moved{
		Scenario: scenario, Target: to.String(), Bytes: sent,
		Seconds: float64(a.cfg.Ports.Now().Sub(begun).Milliseconds()) / 1000,
	}, err
}

// How the snapshot of a move is known.
const movePrefix = "move-"

func aboutMove(to Target) string { return "taken to move the scenario to " + to.String() }

// runs tells whether a scenario runs here, or does once its snapshot is taken.
func (a *Archive) runs(scenario string) bool {
	r, err := a.cfg.Lab.Record(scenario)
	return err == nil && (r.Phase == lifecycle.Raised || r.Phase == lifecycle.Snapshotting)
}

// clear removes what moves of a scenario to the same target left that were killed:
// their snapshots, here and there, and what was raised of them there. The scenario
// has to run here.
func (a *Archive) clear(ctx context.Context, scenario string, to Target, sight *Sight) error {
	all, err := a.cfg.Snapshots.Store().List(scenario)
	for _, m := range all {
		if !strings.HasPrefix(m.Name, movePrefix) || m.About != aboutMove(to) {
			continue
		}
		done := a.cfg.Ports.Progress.Step("remove what a move that was killed left on " + to.String())
		err := a.clearOne(ctx, m, to, sight)
		done(err)
		if err != nil {
			return err
		}
	}
	return err
}

func (a *Archive) clearOne(ctx context.Context, m snapshot.Manifest, to Target, sight *Sight) error {
	of, err := to.ComesOf(ctx, m.Scenario)
	if err == nil && of == m.ID {
		err = to.Destroy(ctx, m.Scenario)
		sight.Raised = slices.DeleteFunc(sight.Raised, func(name string) bool { return name == m.Scenario })
	}
	if err == nil {
		err = to.Forget(ctx, m.Scenario, m.Name)
	}
	if err == nil { // last, since it is what tells of the others
		err = a.cfg.Snapshots.Remove(m.Scenario, m.Name)
	}
	return err
}

// handOver makes a snapshot run there, and returns how much went over.
func (a *Archive) handOver(ctx context.Context, m snapshot.Manifest, to Target, sight Sight) (sent int64, err error) {
	has, err := a.hasImages(m, sight)
	if err != nil {
		return 0, err
	}
	step := func(what string, do func() error) {
		if err == nil {
			done := a.cfg.Ports.Progress.Step(what)
			err = do()
			done(err)
		}
	}
	step("bring it to "+to.String(), func() (err error) {
		sent, err = a.send(ctx, ExportOptions{Scenario: m.Scenario, Snapshot: m.Name, WithoutImages: has}, to)
		return err
	})
	step("run on there", func() error { return to.Restore(ctx, m.Scenario, m.Name) })
	step("wait for its machines to answer", func() error { return to.Answering(ctx, m.Scenario) })
	return sent, err
}

// hasImages tells whether a target has all images of a snapshot.
func (a *Archive) hasImages(m snapshot.Manifest, sight Sight) (bool, error) {
	built, err := a.cfg.Images.List()
	for _, image := range built {
		if m.Images[image.Name] == image.Digest && !slices.Contains(sight.Contents, image.Content) {
			return false, nil
		}
	}
	return err == nil, err
}

// send exports into a target's import.
func (a *Archive) send(ctx context.Context, o ExportOptions, to Target) (int64, error) {
	r, w := io.Pipe()
	var sent counter
	exported := make(chan error, 1)
	go func() {
		_, err := a.Export(ctx, o, io.MultiWriter(w, &sent))
		exported <- err
		w.CloseWithError(err) // the reader's end, where it is nil
	}()
	err := to.Import(ctx, r)
	r.CloseWithError(errRefused) // nothing more is wanted, whatever came of it
	if failed := <-exported; failed != nil && !errors.Is(failed, errRefused) {
		err = errors.Join(failed, err)
	}
	return int64(sent), err
}

// errRefused ends an export that the target has stopped reading.
var errRefused = errors.New("the target wants no more")

// counter counts what is written.
type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

func exitCode(ctx context.Context) int {
	if errors.Is(ctx.Err(), context.Canceled) {
		return codeInterrupted
	}
	return codeFailed
}

// firstLines shortens what a program said.
func firstLines(text string, n int) string {
	lines := strings.SplitN(strings.TrimSpace(text), "\n", n+1)
	return strings.Join(lines[:min(n, len(lines))], "\n")
}
