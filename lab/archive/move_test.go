package archive_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/archive"
	"mesh/lab/images"
	"mesh/lab/lifecycle"
	"mesh/lab/snapshot"
)

// beside is a bed as a target. What is named in fails fails; what is named in
// late fails when it has been done; before or after what is named in killed, the
// process is.
type beside struct {
	*bed
	fails, late, killed string
	meanwhile           map[string]func() // happens before what it is named
}

func (b *beside) try(what string, do func() error) error {
	b.dieAt("before " + what)
	if happens := b.meanwhile[what]; happens != nil {
		happens()
	}
	if b.fails == what {
		return errors.New(what + " failed")
	}
	err := do()
	b.dieAt("after " + what)
	if b.late == what {
		err = errors.Join(err, errors.New(what+" failed late"))
	}
	return err
}

func (b *beside) dieAt(moment string) {
	if b.killed == moment {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func (b *beside) String() string { return "beside" }

func (b *beside) Look(context.Context) (s archive.Sight, err error) {
	err = b.try("look", func() error {
		built, err := images.Store{Dir: b.store}.List()
		for _, image := range built {
			s.Contents = append(s.Contents, image.Content)
		}
		if err == nil {
			s.Raised, err = b.lab.Names()
		}
		return err
	})
	return s, err
}

func (b *beside) Import(ctx context.Context, r io.Reader) error {
	return b.try("import", func() error {
		_, err := b.archive.Import(ctx, r, archive.ImportOptions{})
		return err
	})
}

func (b *beside) Restore(ctx context.Context, scenario, name string) error {
	return b.try("restore", func() error {
		_, err := b.snapshots.Restore(ctx, snapshot.RestoreOptions{Scenario: scenario, Snapshot: name})
		return err
	})
}

func (b *beside) Answering(context.Context, string) error {
	return b.try("answering", func() error { return nil })
}

func (b *beside) ComesOf(_ context.Context, scenario string) (string, error) {
	r, err := b.lab.Record(scenario)
	if err != nil || len(r.Snapshots) == 0 {
		return "", nil
	}
	return r.Snapshots[0], nil
}

func (b *beside) Destroy(ctx context.Context, scenario string) error {
	_, err := b.lab.Destroy(ctx, scenario)
	return err
}

func (b *beside) Forget(_ context.Context, scenario, name string) error {
	return b.try("forget", func() error {
		err := b.snapshots.Remove(scenario, name)
		if errors.Is(err, snapshot.ErrAbsent) {
			return nil
		}
		return err
	})
}

// stands lists what is raised, and which snapshots there are.
func (b *bed) stands(t *testing.T) (all []string) {
	t.Helper()
	raised, err := b.lab.Names()
	must(t, err)
	listed, err := b.snapshots.Store().List("")
	must(t, err)
	for _, m := range listed {
		all = append(all, m.Scenario+"@"+m.Name)
	}
	return slices.Sorted(slices.Values(append(all, raised...)))
}

// What is moved runs there and no longer here; its other snapshots stay. Images
// go over only where they are not there.
func TestMove(t *testing.T) {
	for _, disk := range []string{"", "a disk", "another disk"} {
		from, to := newBed(t, "a disk"), &beside{bed: newBed(t, disk)}
		from.raised(t, "a", "s1")
		moved, err := from.archive.Move(t.Context(), "a", to)
		must(t, err)
		if moved.Bytes == 0 || moved.Target != "beside" {
			t.Errorf("%+v", moved)
		}
		if diff := cmp.Diff([]string{"a@s1"}, from.stands(t)); diff != "" {
			t.Errorf("here:\n%s", diff)
		}
		if diff := cmp.Diff([]string{"a"}, to.stands(t)); diff != "" {
			t.Errorf("there:\n%s", diff)
		}
	}
}

// The source is kept until the target answers: whatever fails, it runs on, and
// nothing is left there.
func TestMoveFails(t *testing.T) {
	for _, what := range []string{"look", "import", "restore", "answering"} {
		for _, late := range []bool{false, true} {
			from, to := newBed(t, "a disk"), &beside{bed: newBed(t, "")}
			if to.fails = what; late {
				to.fails, to.late = "", what
			}
			from.raised(t, "a", "s1")
			if _, err := from.archive.Move(t.Context(), "a", to); err == nil || !strings.Contains(err.Error(), what+" failed") {
				t.Fatalf("%s: %v", what, err)
			}
			if diff := cmp.Diff([]string{"a", "a@s1"}, from.stands(t)); diff != "" {
				t.Errorf("%s fails, late %v; here:\n%s", what, late, diff)
			}
			if there := to.stands(t); len(there) != 0 {
				t.Errorf("%s fails, late %v; there are %q", what, late, there)
			}
		}
	}
}

func TestMoveToATakenName(t *testing.T) {
	from, to := newBed(t, "a disk"), &beside{bed: newBed(t, "a disk")}
	from.raised(t, "a", "s1")
	to.raised(t, "a", "theirs")
	_, err := from.archive.Move(t.Context(), "a", to)
	wantRefused(t, err, 2, "one of that name is raised there")
	if diff := cmp.Diff([]string{"a", "a@theirs"}, to.stands(t)); diff != "" {
		t.Error(diff)
	}
}

// One move of a scenario goes on at a time.
func TestMoveWhileMoved(t *testing.T) {
	from, to := newBed(t, "a disk"), &beside{bed: newBed(t, "a disk")}
	from.raised(t, "a", "s1")
	to.meanwhile = map[string]func(){"answering": func() {
		_, err := from.archive.Move(t.Context(), "a", to)
		wantRefused(t, err, 2, "another lab command moves it")
	}}
	_, err := from.archive.Move(t.Context(), "a", to)
	must(t, err)
	if diff := cmp.Diff([]string{"a"}, to.stands(t)); diff != "" {
		t.Errorf("there:\n%s", diff)
	}
}

// What has the name by the time that the scenario runs there is another, and stays.
func TestMoveLeavesAnotherOfThatName(t *testing.T) {
	from, to := newBed(t, "a disk"), &beside{bed: newBed(t, "a disk")}
	from.raised(t, "a", "s1")
	to.meanwhile = map[string]func(){"answering": func() {
		_, err := from.lab.Destroy(t.Context(), "a")
		must(t, err)
		from.raised(t, "a", "s2")
	}}
	_, err := from.archive.Move(t.Context(), "a", to)
	must(t, err)
	if diff := cmp.Diff([]string{"a", "a@s1", "a@s2"}, from.stands(t)); diff != "" {
		t.Errorf("here:\n%s", diff)
	}
}

func TestParseRemote(t *testing.T) {
	for text, want := range map[string]archive.Remote{
		"qemu+ssh://two":                      {Host: "two"},
		"qemu+ssh://root@two.example/system":  {Host: "root@two.example"},
		"qemu+ssh://root@[2001:db8::1]:2222/": {Host: "root@2001:db8::1", Port: "2222"},
	} {
		want.Shell, want.Lab = []string{"ssh"}, []string{"lab"}
		got, err := archive.ParseRemote(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", text, err, diff)
		}
	}
	for _, text := range []string{
		"", "two", "ssh://two", "qemu:///system", "qemu+tls://two/system", "qemu+ssh://", "qemu+ssh://two/session",
		"qemu+ssh://two/system?keyfile=x", "qemu+ssh://a:b@two", "qemu+ssh://-oProxyCommand=x", "qemu+ssh://-x@two", "%",
	} {
		_, err := archive.ParseRemote(text)
		wantRefused(t, err, 2, "no lab machine to move to")
	}
}

// A remote lab is asked in words of a shell, whose quoting holds.
func TestRemoteAsksThroughAShell(t *testing.T) {
	dir := t.TempDir()
	script := `#!/bin/sh
shift # the host
eval "set -- $*"
echo "$*" >>` + dir + `/asked
case "$2 $3" in
"list --json") echo '[{"name":"it'\''s raised"}]' ;;
"image list") echo '{"images":[{"image":null},{"image":{"content":"c"}}]}' ;;
"snapshot list") echo '[{"name":"s1","id":"1"},{"name":"s2","id":"2","current":true}]' ;;
"status a") echo '{"machines":[{"name":"one","state":"running","agent":true},{"name":"two","state":"running","agent":false}]}' ;;
"import -") cat >` + dir + `/imported ;;
*) echo "no such thing" >&2; exit 4 ;;
esac
`
	must(t, os.WriteFile(filepath.Join(dir, "shell"), []byte(script), 0o755))
	r := archive.Remote{Host: "two", Shell: []string{filepath.Join(dir, "shell")}, Lab: []string{"my lab"}}
	sight, err := r.Look(t.Context())
	must(t, err)
	if diff := cmp.Diff(archive.Sight{Raised: []string{"it's raised"}, Contents: []string{"c"}}, sight); diff != "" {
		t.Error(diff)
	}
	must(t, r.Import(t.Context(), strings.NewReader("an archive")))
	if got, err := os.ReadFile(filepath.Join(dir, "imported")); err != nil || string(got) != "an archive" {
		t.Errorf("imported %q, %v", got, err)
	}
	if err := r.Answering(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "machine two is running on two and does not answer") {
		t.Errorf("answering: %v", err)
	}
	if err := r.Restore(t.Context(), "a", "s; rm"); err == nil || !strings.Contains(err.Error(), "no such thing") {
		t.Errorf("restore: %v", err)
	}
	if of, err := r.ComesOf(t.Context(), "a"); of != "2" || err != nil {
		t.Errorf("it comes of %q, %v", of, err)
	}
	asked, err := os.ReadFile(filepath.Join(dir, "asked"))
	must(t, err)
	if want := fmt.Sprintln("my lab restore a s; rm"); !strings.Contains(string(asked), want) {
		t.Errorf("asked %q", asked)
	}
}

// What was moved already, by a move that was killed while it removed the scenario
// here, is left alone there: nobody is told to destroy it.
func TestMoveOfWhatHasBeenMoved(t *testing.T) {
	from, to := newBed(t, "a disk"), &beside{bed: newBed(t, "a disk")}
	from.raised(t, "a", "s1")
	_, err := from.archive.Move(t.Context(), "a", to)
	must(t, err)
	from.raised(t, "a", "s2")
	held, err := from.lab.Hold("a")
	must(t, err)
	must(t, held.Update(func(r *lifecycle.Record) { r.Phase = lifecycle.Destroying }))
	held.Release()
	_, err = from.archive.Move(t.Context(), "a", to)
	if err == nil || !strings.Contains(err.Error(), "the scenario is not raised, or only in part") {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff([]string{"a"}, to.stands(t)); diff != "" {
		t.Errorf("there:\n%s", diff)
	}
}
