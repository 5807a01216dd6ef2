package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"mesh/lab/underlay"
	"mesh/lab/volatile"
	"mesh/lab/world"
)

// realWorld is the world as a process of this very program.
type realWorld struct{}

// Start writes the world's configuration beside its log.
func (realWorld) Start(ctx context.Context, c world.Config) (world.Process, error) {
	exe, err := os.Executable()
	if err != nil {
		return world.Process{}, fmt.Errorf("find this program: %w", err)
	}
	return world.Start(ctx, exe, filepath.Join(filepath.Dir(c.Log), "world.json"), c)
}

func (realWorld) Remove(ctx context.Context, c world.Config, p world.Process) error {
	return world.Remove(ctx, c, p)
}

func (realWorld) Attach(_ context.Context, u underlay.Underlay, tap string) error {
	return world.Attach(u, tap)
}

func (realWorld) Status(ctx context.Context, c world.Config) (world.Status, error) {
	return world.NewClient(c.Control).Status(ctx)
}

func (realWorld) Roots(ctx context.Context, c world.Config) ([]byte, error) {
	return world.NewClient(c.Control).RootCertificates(ctx)
}

func (realWorld) State(ctx context.Context, c world.Config) (json.RawMessage, error) {
	return world.NewClient(c.Control).State(ctx)
}

func (realWorld) Whole(ctx context.Context, c world.Config) (json.RawMessage, error) {
	return world.NewClient(c.Control).Whole(ctx)
}

func (realWorld) SetState(ctx context.Context, c world.Config, state json.RawMessage) error {
	return world.NewClient(c.Control).SetState(ctx, state)
}

// realDiskFaults asks the process that serves a scenario's disks.
type realDiskFaults struct{}

func (realDiskFaults) SetFault(ctx context.Context, control, disk string, f volatile.Fault) error {
	return volatile.NewClient(control).SetFault(ctx, disk, f)
}
