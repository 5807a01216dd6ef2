package companion_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mesh/lab/companion"
)

// TestKeep kills what a kept program left behind: it is gone at once, not when
// init gets to it, and the keeper with it. It is no zombie, which a signal reaches.
func TestKeep(t *testing.T) {
	dir := t.TempDir()
	keeper, err := startIn(t, "keeping", dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "number"))
	if err != nil {
		t.Fatal(err)
	}
	left, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if !keeper.Alive() {
		t.Fatal("nobody keeps what was left")
	}
	if err := unix.Kill(left, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	within(t, "gone", func() bool { return errors.Is(unix.Kill(left, 0), unix.ESRCH) })
	if took := time.Since(killed); took > time.Second {
		t.Errorf("it was reaped after %v", took)
	}
	within(t, "nothing to keep", func() bool { return !keeper.Alive() })
	_, _ = unix.Wait4(keeper.PID, nil, 0, nil)
}

func TestKeepOfWhatDoesNotStart(t *testing.T) {
	_, err := startIn(t, "keeping nothing", t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "this is why") || !strings.Contains(err.Error(), "exit status 3") {
		t.Error(err)
	}
	if found, err := companion.Find("accompany", "keeping nothing"); err != nil || len(found) > 0 {
		t.Errorf("%v, %v are left", found, err)
	}
}

// within looks until something is so.
func within(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(10 * time.Second)
	for !is() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("not %s after 10 s", what)
		}
	}
}
