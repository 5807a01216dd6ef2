package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"mesh/cmd/internal/cli"
	"mesh/host/agent"
	"mesh/host/system"
)

// least bounds how often a machine may be looked at for nothing.
const least = time.Second

func (h *host) newRun() *cobra.Command {
	var interval, trial time.Duration
	c := &cobra.Command{
		Use:   "run",
		Short: "Keep this machine as declared, until told to stop",
		Long: `Apply what is held, keep the link to the plane, take what it declares, and put
right what changed, again and again. This is what mesh-host.service runs.

Nothing here waits for the network. The plane is dialled with growing delays of
at most ten seconds, so a plane that comes back is found within that time. An
enrolment is noticed while this runs. When the program on disk is replaced, this
ends by itself, so that its supervisor starts the new one. A version that is new
here is on trial for a minute (see "mesh-host trial").

Under systemd what it does is in the journal with fields that can be searched for:
` + "`journalctl MESH_RESOURCE=welcome/page`" + `, MESH_WHERE=/etc/demo.conf,
MESH_GENERATION=7, MESH_EVENT=failed.`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if interval < least {
				return cli.WithCode(cli.Usage, fmt.Errorf("--interval is %s, which is less than %s", interval, least))
			}
			return h.run(c.Context(), interval, trial)
		},
	}
	c.Flags().DurationVar(&interval, "interval", agent.DefaultInterval, "how often this machine is looked at when nothing happens")
	c.Flags().DurationVar(&trial, "trial", trialTime, "how long a version that is new here has to run until it is taken for healthy")
	return c
}

// logHandler writes lines, or to the journal where that is what standard error is.
func (h *host) logHandler(stream string) slog.Handler {
	lines := slog.NewTextHandler(h.Err, nil)
	if file, is := h.Err.(*os.File); is && system.IsJournal(stream, file) {
		return system.NewJournal(system.JournalSocket, lines)
	}
	return lines
}

func (h *host) run(ctx context.Context, interval, trial time.Duration) error {
	if err := h.prepare(); err != nil {
		return err
	}
	log := slog.New(h.logHandler(os.Getenv("JOURNAL_STREAM")))
	s := h.system()
	s.Remember(system.NewMemory(time.Now))
	hand, err := h.hand(s, log)
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	pace := newPace()
	hand.Whole = pace.work
	proof := &proving{machine: h.machine(s), hand: hand, log: log}
	if err := proof.begin(ctx); err != nil {
		return err
	}
	changed, watch, err := watchIdentity(filepath.Join(h.state, identityBelow))
	if err != nil {
		log.Warn("an enrolment is noticed after an interval only", "err", err)
	}
	passer := telling{hand, new(sync.Once), make(chan struct{})}
	a := agent.New(agent.Config{
		Identity: h.identity(s), Runtime: h.runtimeFolder(s), Hand: passer, Contents: s, Facts: facts(), Process: hand.Process,
		Changed: changed, Replaced: replaced(), Interval: interval, Now: time.Now, Log: log,
		Spent: pace.idle,
	})
	// The watcher ends with the agent, whichever way that ends.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group errgroup.Group
	if watch != nil {
		group.Go(func() error { return watch(ctx) })
	}
	group.Go(func() error {
		proof.prove(ctx, passer.passed, trial)
		return nil
	})
	group.Go(func() error {
		defer cancel()
		return a.Run(ctx)
	})
	return proof.end(group.Wait())
}

// watchIdentity tells when something in a directory may have changed. The
// function returned does the watching and ends with its context.
func watchIdentity(directory string) (<-chan struct{}, func(context.Context) error, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, nil, err
	}
	if err := watcher.Add(directory); err != nil {
		return nil, nil, errors.Join(err, watcher.Close())
	}
	changed := make(chan struct{}, 1)
	return changed, func(ctx context.Context) error {
		defer watcher.Close()
		for {
			select {
			case <-ctx.Done():
				return nil
			case _, ok := <-watcher.Events:
				if !ok {
					return nil
				}
			case _, ok := <-watcher.Errors: // events were lost; look
				if !ok {
					return nil
				}
			}
			select {
			case changed <- struct{}{}:
			default: // it knows
			}
		}
	}, nil
}
