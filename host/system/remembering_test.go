package system_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"mesh/host/system"
)

// TestRemembering asks again when anything that the answer depends on changed.
func TestRemembering(t *testing.T) {
	state, failed := "a", exec.Command("false").Run() // as dpkg-query says that it does not know a name
	s := &script{t: t, answers: []answer{
		{"dpkg-query one", "1", nil}, {"dpkg-query two", "2", failed}, {"dpkg-query one", "3", nil},
		{"dpkg-query one", "4", nil}, {"dpkg-query one", "5", nil},
	}}
	r := system.Remembering(s, func() string { return state })
	ask := func(name, want string) {
		t.Helper()
		if got, _ := r.Run(t.Context(), "dpkg-query", name); got != want {
			t.Errorf("%s: %q instead of %q", name, got, want)
		}
	}
	ask("one", "1")
	ask("two", "2")
	ask("one", "1")
	ask("two", "2")
	state = "b"
	ask("one", "3")
	state = "" // not known: asked every time
	ask("one", "4")
	ask("one", "5")
}

// tick returns when files get another time than before: they are as coarse as the
// kernel's clock.
func tick(t *testing.T) {
	t.Helper()
	p := filepath.Join(t.TempDir(), "tick")
	written := func() time.Time {
		t.Helper()
		if err := os.WriteFile(p, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		return st.ModTime()
	}
	for first := written(); written().Equal(first); {
	}
}

// TestStateOf: no change of a file, a directory or what a link leads to is missed.
func TestStateOf(t *testing.T) {
	root, beside := base(t), filepath.Join(base(t), "beside")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(p, content string) func() {
		return func() { must(os.WriteFile(p, []byte(content), 0o644)) }
	}
	write(beside, "x")()
	seen := map[string]string{system.StateOf(root, "/nowhere"): "nothing"}
	if len(seen) != 1 || seen[""] != "" {
		t.Fatalf("%q", seen)
	}
	for _, change := range []struct {
		what string
		do   func()
	}{
		{"a file", write(root+"/f", "one")},
		{"its content, with its time", func() {
			st, err := os.Stat(root + "/f")
			must(err)
			write(root+"/f", "two")()
			must(os.Chtimes(root+"/f", time.Time{}, st.ModTime()))
		}},
		{"a directory", func() { must(os.Mkdir(root+"/d", 0o755)) }},
		{"a file in it", write(root+"/d/f", "")},
		{"a link", func() { must(os.Symlink(beside, root+"/l")) }},
		{"what it leads to", write(beside, "yy")},
		{"a dangling link", func() { must(os.Remove(beside)) }},
		{"a name", func() { must(os.Rename(root+"/f", root+"/g")) }},
		{"gone", func() { must(os.Remove(root + "/g")) }},
	} {
		tick(t)
		change.do()
		state := system.StateOf(root, "/nowhere")
		if before, twice := seen[state]; twice {
			t.Errorf("%s looks as %s", change.what, before)
		}
		seen[state] = change.what
		if state != system.StateOf(root, "/nowhere") {
			t.Errorf("%s: it looks otherwise the second time", change.what)
		}
	}
}

// killed is a Runner whose first command is killed before it answers.
type killed struct{ ran int }

func (k *killed) Run(ctx context.Context, _ ...string) (string, error) {
	if k.ran++; k.ran == 1 {
		return "", exec.CommandContext(ctx, "sh", "-c", "kill -9 $$").Run()
	}
	return "answer", nil
}

// TestKilledIsNoAnswer: what the kernel ended for want of memory is asked again.
func TestKilledIsNoAnswer(t *testing.T) {
	k := &killed{}
	r := system.Remembering(k, func() string { return "the same" })
	for i := range 3 {
		if out, err := r.Run(t.Context(), "dpkg-query"); (err == nil) != (i > 0) || k.ran != min(i+1, 2) {
			t.Errorf("time %d: %q, %v; it ran %d times", i+1, out, err, k.ran)
		}
	}
}

// TestStateBehindALink: a directory that is a link is seen through where it is the
// one that was named; behind another nobody looks, so nothing is known.
func TestStateBehindALink(t *testing.T) {
	dir := t.TempDir()
	apt, lists := filepath.Join(dir, "apt"), filepath.Join(dir, "elsewhere")
	if err := errors.Join(os.Mkdir(lists, 0o755), os.WriteFile(filepath.Join(lists, "a"), nil, 0o644), os.Symlink(lists, apt)); err != nil {
		t.Fatal(err)
	}
	before := system.StateOf(apt)
	if err := os.WriteFile(filepath.Join(lists, "b"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if after := system.StateOf(apt); before == "" || after == before {
		t.Errorf("%q, %q", before, after)
	}
	if state := system.StateOf(dir); state != "" {
		t.Errorf("behind a link in it: %q", state)
	}
}
