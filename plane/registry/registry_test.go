package registry_test

import (
	"testing"

	"mesh/host/declaration"
	"mesh/plane/registry"
)

func TestCount(t *testing.T) {
	var results []declaration.Result
	for _, s := range []declaration.Status{
		declaration.StatusInSync, declaration.StatusChanged, declaration.StatusRemoved,
		declaration.StatusKept, declaration.StatusWaiting, declaration.StatusFailed, declaration.StatusFailed, "from the future",
	} {
		results = append(results, declaration.Result{Status: s})
	}
	got := registry.Count(results)
	if want := (registry.Counts{InSync: 2, Kept: 1, Waiting: 1, Failed: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := got.String(), "2 in sync, 1 kept, 1 waiting, 2 failed"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := (registry.Counts{}).String(); got != "0 in sync" {
		t.Errorf("got %q", got)
	}
}
