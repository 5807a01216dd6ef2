package stamp_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"mesh/lab/world/stamp"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// TestLines: a line has the time of its first byte, however it comes.
func TestLines(t *testing.T) {
	var out bytes.Buffer
	var l stamp.Lines
	for i, part := range []string{"on", "e\r\n", "\n", "two\nlog", "in: ", "root\r\n"} {
		if err := l.Write(&out, noon.Add(time.Duration(i)*time.Second), []byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	want := `2026-11-30T12:00:00.000Z one
2026-11-30T12:00:02.000Z 
2026-11-30T12:00:03.000Z two
2026-11-30T12:00:03.000Z login: root
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLinesLoseNothing: without stamps, and with lines that are not too long,
// what comes out is what went in, however it was cut.
func TestLinesLoseNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOf(rapid.StringOf(rapid.RuneFrom([]rune("ab \n")))).Draw(t, "parts")
		var out bytes.Buffer
		var l stamp.Lines
		for _, p := range parts {
			if err := l.Write(&out, noon, []byte(p)); err != nil {
				t.Fatal(err)
			}
		}
		_ = l.Flush(&out, false)
		want := strings.Join(parts, "")
		if want != "" && !strings.HasSuffix(want, "\n") {
			want += "\n"
		}
		if got := strings.ReplaceAll(out.String(), "2026-11-30T12:00:00.000Z ", ""); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}

// TestLongLine: one that never ends does not fill the memory.
func TestLongLine(t *testing.T) {
	var out bytes.Buffer
	var l stamp.Lines
	if err := l.Write(&out, noon, bytes.Repeat([]byte("x"), 10<<10)); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out.String(), "\n"); got != 2 {
		t.Errorf("%d lines of 10 KiB without an end, want 2", got)
	}
}

// follow runs Follow in a new directory and gives what waits for a stamped copy
// to hold a text, without stamps.
func follow(t *testing.T, dir string) (stop func(), holds func(name, want string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- stamp.Follow(ctx, dir, func() time.Time { return noon }, slog.New(slog.DiscardHandler))
	}()
	stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	holds = func(name, want string) {
		t.Helper()
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		var got string
		for range 2000 {
			data, _ := os.ReadFile(filepath.Join(dir, name+".console"+stamp.Suffix))
			got = strings.ReplaceAll(string(data), "2026-11-30T12:00:00.000Z ", "")
			if got == want {
				return
			}
			<-tick.C
		}
		t.Fatalf("%s holds %q, want %q", name, got, want)
	}
	return stop, holds
}

// add appends to a file.
func add(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// TestFollow: consoles that were there and that come, one that is renamed as
// virtlogd does, one that is cut, and a process that begins anew.
func TestFollow(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one.console"), filepath.Join(dir, "two.console")
	add(t, one, "first\n")
	stop, holds := follow(t, dir)
	holds("one", "first\n")
	add(t, two, "hello\n")
	holds("two", "hello\n")

	add(t, one, "last of the old\n")
	if err := os.Rename(one, one+".0"); err != nil {
		t.Fatal(err)
	}
	add(t, one+".0", "after its name changed\n")
	add(t, one, "first of the new\n")
	holds("one", "first\nlast of the old\nafter its name changed\nfirst of the new\n")

	if err := os.Truncate(two, 0); err != nil {
		t.Fatal(err)
	}
	add(t, two, "cut\n")
	holds("two", "hello\ncut\n")

	add(t, two, "never ended")
	stop()
	holds("two", "hello\ncut\nnever ended\n")

	stop, holds = follow(t, dir)
	add(t, filepath.Join(dir, "three.console"), "x\n")
	holds("three", "x\n") // it has looked at all of them
	add(t, two, ", but it goes on\n")
	holds("two", "hello\ncut\nnever ended\n, but it goes on\n")
	stop()
}

// TestCopyIsBounded: a console that never stops does not fill the disk.
func TestCopyIsBounded(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "one.console")
	line := strings.Repeat("x", 1023) + "\n"
	add(t, path, strings.Repeat(line, stamp.MaxCopy>>10))
	stop, holds := follow(t, dir)
	defer stop()
	before := path + stamp.Suffix + ".0"
	for range 2000 { // an empty copy alone may be one that was not begun
		if _, err := os.Stat(before); err == nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	add(t, path, "more\n")
	holds("one", "more\n")
	info, err := os.Stat(before)
	if err != nil || info.Size() < stamp.MaxCopy {
		t.Errorf("the copy before: %v, %v", info, err)
	}
}

// TestFollowNothing: a directory that is not there is an error.
func TestFollowNothing(t *testing.T) {
	err := stamp.Follow(t.Context(), filepath.Join(t.TempDir(), "absent"), time.Now, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(fmt.Sprint(err), "absent") {
		t.Errorf("got %v", err)
	}
}
