package lifecycle_test

import (
	"strings"
	"testing"

	"mesh/lab/lifecycle"
)

// Memory that was promised to a scenario of one store is not given to one of
// another store on the same lab machine, until that is destroyed.
func TestPromisesOfOtherStores(t *testing.T) {
	dir := t.TempDir()
	b := newBed(t, dir)
	other := newBed(t, dir)
	other.store += "-2"
	other.Lab = other.lab()
	b.raise(t, "a")
	must(t, b.Cut(t.Context(), "a", "one")) // what it was promised is free now
	must(t, b.Cut(t.Context(), "a", "two"))
	other.MemoryBytes = 2000 << 20
	_, err := other.Raise(t.Context(), other.plan(t, "b"), lifecycle.RaiseOptions{Files: files})
	if err == nil || exitCode(err) != 4 || !strings.Contains(err.Error(), "promised to a") {
		t.Errorf("exit code %d, %v", exitCode(err), err)
	}
	if names, err := other.Names(); err != nil || len(names) > 0 {
		t.Errorf("the other store holds %v, %v", names, err)
	}
	_, err = b.Destroy(t.Context(), "a")
	must(t, err)
	other.raise(t, "b")
	_, err = other.Destroy(t.Context(), "b")
	must(t, err)
	b.wantNothingLeft(t)
}
