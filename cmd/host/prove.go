package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"mesh/host/agent"
	"mesh/host/declaration"
	"mesh/host/store"
	"mesh/host/system"
	"mesh/host/upgrade"
)

// trialTime is how long a version has to run until it is taken for healthy.
const trialTime = time.Minute

// Delays around a trial.
const (
	// firstPassTime is how long the first pass may take: it may wait for a lock, or
	// install packages.
	firstPassTime = 30 * time.Minute
	keepAgain     = time.Minute // until keeping what proved itself is tried again
)

// self is this program, whatever lies at its path by now.
const self = "/proc/self/exe"

// proving is what this run of the program has to show before the program is
// taken for one that works.
type proving struct {
	machine  machine
	hand     *agent.Hand
	log      *slog.Logger
	standing upgrade.Standing
	unfit    bool // it is not to be kept
	proved   bool
}

// begin finds out how this program stands, and makes it read and look at
// everything once if it has not proved itself. An error ends the run.
func (p *proving) begin(ctx context.Context) error {
	digest, err := digestOf(self)
	if err == nil {
		p.standing, err = p.machine.keeper.Standing(digest)
	}
	if err != nil {
		p.log.Warn("it is not known whether this version is on trial; it is taken for one that is not", "err", err)
		p.standing, p.unfit = upgrade.First, true
	}
	if p.standing != upgrade.OnTrial {
		p.ready()
	}
	if p.standing == upgrade.Known || p.unfit {
		return nil
	}
	err = p.hand.Rehearse(ctx)
	switch {
	case err == nil || ctx.Err() != nil:
	case p.standing == upgrade.First:
		p.log.Warn("this version cannot prove itself", "err", err)
		p.unfit = true
	default:
		return p.end(fmt.Errorf("run: %w", err))
	}
	if p.standing == upgrade.OnTrial {
		if err := system.NotifyDelay(firstPassTime); err != nil {
			p.log.Warn("a long first pass may be taken for a failure", "err", err)
		}
	}
	return nil
}

// end notes why this run ends, if it is on trial and does not end well, and returns
// err. prove has returned by then.
func (p *proving) end(err error) error {
	if err == nil || p.proved || p.standing != upgrade.OnTrial {
		return err
	}
	p.log.Error("this version does not work on this machine", "version", version, "err", err)
	if failed := p.machine.keeper.Failed(err.Error()); failed != nil {
		p.log.Warn("the reason could not be kept", "err", failed)
	}
	return err
}

// prove waits until the first pass is over and this version ran long enough, and
// keeps it then.
func (p *proving) prove(ctx context.Context, passed <-chan struct{}, least time.Duration) {
	if p.standing == upgrade.Known || p.unfit {
		return
	}
	timer := time.NewTimer(least)
	defer timer.Stop()
	for tries := 0; ; tries++ {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-passed:
		}
		if tries == 0 && p.standing == upgrade.OnTrial {
			p.ready()
		}
		p.proved = true
		err := p.keep()
		if err == nil {
			p.log.Info("this version is healthy, and is kept to be put back when a later one is not", "version", version)
			return
		}
		p.log.Warn("this version is healthy and cannot be kept; it is tried again", "version", version, "err", err)
		timer.Reset(keepAgain)
	}
}

func (p *proving) ready() {
	if err := system.NotifyReady(); err != nil {
		p.log.Warn("the service manager does not know that this program has started", "err", err)
	}
}

func (p *proving) keep() error {
	defer debug.FreeOSMemory()
	program, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	pkg, err := p.cameIn()
	if err != nil {
		return err
	}
	return p.machine.keeper.Keep(program, pkg)
}

// cameIn is the digest of the package that this version came in, if it was
// declared, or fetched by apt, and is still there; it is among what is kept then.
func (p *proving) cameIn() (string, error) {
	view, _, err := store.Read(p.hand.Store.Directory, nil)
	if err != nil {
		return "", err
	}
	follows, err := agent.Follows(view.Accepted)
	if err != nil {
		return "", err
	}
	if follows != nil {
		for _, r := range follows.Resources {
			if k := r.Package; k != nil && k.Name == packageName && k.Blob != nil && k.Version == version && p.machine.HasContent(k.Blob.Digest) {
				return k.Blob.Digest, nil
			}
		}
	}
	data, err := p.machine.Fetched(packageName, version)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case p.machine.RoomFor(int64(len(data))) != nil:
		return "", nil // the program is kept all the same
	}
	return p.machine.KeepContent(data)
}

func digestOf(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// telling closes a channel when the first pass is over.
type telling struct {
	agent.Passer
	once   *sync.Once
	passed chan struct{}
}

func (t telling) Pass(ctx context.Context, accept *store.Accepted) (*store.Accepted, declaration.Outcome, error) {
	defer t.once.Do(func() { close(t.passed) })
	return t.Passer.Pass(ctx, accept)
}
