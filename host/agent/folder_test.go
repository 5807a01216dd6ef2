package agent_test

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	"mesh/host/store"
)

// memory is a Folder that shows its content as text.
type memory struct {
	mu     sync.Mutex
	files  map[string][]byte
	locked map[string]bool
	broken error // what Replace says
}

func newMemory() *memory { return &memory{files: map[string][]byte{}, locked: map[string]bool{}} }

func (m *memory) Read(name string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.files[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return bytes.Clone(b), nil
}

func (m *memory) Replace(name string, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken != nil {
		return m.broken
	}
	m.files[name] = bytes.Clone(data)
	return nil
}

func (m *memory) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.files, name)
	return nil
}

func (m *memory) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locked[name] {
		return nil, fmt.Errorf("%s: %w", name, store.ErrLocked)
	}
	m.locked[name] = true
	if _, there := m.files[name]; !there {
		m.files[name] = []byte{}
	}
	return unlock(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.locked, name)
	}), nil
}

type unlock func()

func (u unlock) Close() error { u(); return nil }

func (m *memory) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var s strings.Builder
	for _, name := range slices.Sorted(maps.Keys(m.files)) {
		fmt.Fprintf(&s, "%s: %s\n", name, m.files[name])
	}
	return s.String()
}
