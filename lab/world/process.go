package world

import (
	"context"
	"errors"
	"fmt"

	"mesh/lab/companion"
	"mesh/lab/world/namespace"
)

// Process is the process of a world, or another one of the lab.
type Process = companion.Process

// ProcessOf identifies the process that has a number now.
func ProcessOf(pid int) (Process, error) { return companion.ProcessOf(pid) }

// Start writes c to configPath, makes the world's namespace and starts
// `exe world --config configPath` in it: in a session of its own, with no
// terminal, with its error output in c's log, so that it outlives the caller. It
// returns when the world is ready. If it does not become ready, it is ended, what
// Start made is removed, and the error holds the end of what the process wrote.
//
// A world whose process is gone is started anew over its standing network with
// the same call; one that answers is refused.
func Start(ctx context.Context, exe, configPath string, c Config) (Process, error) {
	if err := WriteConfig(configPath, c); err != nil {
		return Process{}, err
	}
	created, err := namespace.Create(c.Underlay.Namespace)
	if err != nil {
		return Process{}, err
	}
	p, err := companion.Start(ctx, companion.Command{
		Exe: exe, Args: []string{"world", "--config", configPath}, Log: c.Log,
		In: func(start func() error) error { return namespace.Do(c.Underlay.Namespace, start) },
	})
	if err != nil {
		err = fmt.Errorf("start world of run %s: %w", c.Underlay.Run, err)
		if created {
			err = errors.Join(err, Remove(context.WithoutCancel(ctx), c, p))
		}
		return Process{}, err
	}
	return p, nil
}
