package system_test

import (
	"testing"

	"mesh/host/declaration"
	"mesh/host/system"
	"mesh/host/system/systemtest"
)

// TestKeepContents: what is kept together lasts, and so does where it lies.
func TestKeepContents(t *testing.T) {
	m := systemtest.New()
	m.Disk.Put("/var/lib/mesh-host", systemtest.Thing{Type: system.TypeDirectory, Mode: 0o700})
	all := [][]byte{[]byte("one"), []byte("two"), []byte("three")}
	if err := m.KeepContents(all); err != nil {
		t.Fatal(err)
	}
	after := m.PowerCut(systemtest.Loss{Keeps: func(int, int) bool { return false }})
	for _, want := range all {
		got, err := after.ReadContent(declaration.Digest(want))
		if err != nil || string(got) != string(want) {
			t.Errorf("%q: %q, %v", want, got, err)
		}
	}
	if err := m.KeepContents(all); err != nil {
		t.Errorf("once more: %v", err)
	}
}
