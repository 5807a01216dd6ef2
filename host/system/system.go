// Package system is the only one that touches the machine: its files, systemd,
// and its packages.
package system

import (
	"log/slog"

	"mesh/host/store"
)

// Config is what a System needs.
type Config struct {
	Log *slog.Logger // nil means discard
}

// System is this machine.
type System struct{}

// New makes a System; it touches nothing.
func New(cfg Config) *System { return &System{} }

// StateDirectory is where the store of this machine lies.
func (s *System) StateDirectory(path string) store.Directory { return nil }
