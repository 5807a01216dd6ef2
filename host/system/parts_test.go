package system_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"mesh/host/declaration"
	"mesh/host/system"
	"mesh/host/system/systemtest"
)

// fetch gets content in parts of two bytes, from where it was cut short.
func fetch(c *system.Contents, content string) error {
	digest := declaration.Digest([]byte(content))
	at, err := c.FetchedContent(digest)
	for err == nil && at < int64(len(content)) {
		part := content[at:min(int(at)+2, len(content))]
		err = c.AddToContent(digest, at, []byte(part))
		at += int64(len(part))
	}
	if err != nil {
		return err
	}
	return c.CompleteContent(digest)
}

// TestContentInParts goes on where it was cut short, and keeps nothing but what
// was asked for.
func TestContentInParts(t *testing.T) {
	dir := base(t)
	if os.Getuid() != 0 {
		t.Skip("what is kept belongs to root: run it as root")
	}
	c := system.NewContents(system.NewFiles(&system.Linux{}, 1), filepath.Join(dir, "content"))
	const content = "content"
	digest := declaration.Digest([]byte(content))
	if at, err := c.FetchedContent(digest); at != 0 || err != nil {
		t.Errorf("before anything came: %d, %v", at, err)
	}
	if err := errors.Join(c.AddToContent(digest, 0, []byte("con")), c.AddToContent(digest, 3, []byte("te"))); err != nil {
		t.Fatal(err)
	}
	if at, err := c.FetchedContent(digest); at != 5 || err != nil || c.HasContent(digest) {
		t.Errorf("%d bytes, %v", at, err)
	}
	if err := c.AddToContent(digest, 3, []byte("te")); err == nil || !strings.Contains(err.Error(), "5 bytes of it are there, and this part comes behind 3") {
		t.Error(err)
	}
	if err := c.PruneContents(func(name string) bool { return name == digest }); err != nil {
		t.Error(err)
	}
	if err := fetch(c, content); err != nil {
		t.Error(err)
	}
	if got, err := c.ReadContent(digest); string(got) != content || err != nil {
		t.Errorf("%q, %v", got, err)
	}

	other := declaration.Digest([]byte("other"))
	if err := errors.Join(c.AddToContent(other, 0, []byte("another")), c.CompleteContent(other)); !errors.Is(err, system.ErrChanged) {
		t.Errorf("what came is another: %v", err)
	}
	if at, err := c.FetchedContent(other); at != 0 || err != nil || c.HasContent(other) {
		t.Errorf("it is kept: %d, %v", at, err)
	}
	if err := errors.Join(c.AddToContent(other, 0, []byte("o")), c.PruneContents(func(string) bool { return false })); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "content")); len(left) != 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestContentComesAmidPasses that take away what is not wanted.
func TestContentComesAmidPasses(t *testing.T) {
	dir := base(t)
	if os.Getuid() != 0 {
		t.Skip("what is kept belongs to root: run it as root")
	}
	c := system.NewContents(system.NewFiles(&system.Linux{}, 1), filepath.Join(dir, "content"))
	over := make(chan struct{})
	var passes sync.WaitGroup
	passes.Go(func() {
		for {
			if err := c.PruneContents(func(string) bool { return true }); err != nil {
				t.Error(err)
			}
			select {
			case <-over:
				return
			default:
			}
		}
	})
	for i := range 30 {
		if err := fetch(c, fmt.Sprint("content ", i)); err != nil {
			t.Errorf("content %d: %v", i, err)
		}
	}
	close(over)
	passes.Wait()
}

// TestContentInPartsCut cuts the power at every operation, with everything that
// may be lost lost: what has its name is whole, what was said to be kept is
// there, and the rest comes again.
func TestContentInPartsCut(t *testing.T) {
	const content = "content"
	digest := declaration.Digest([]byte(content))
	random := rand.New(rand.NewPCG(1, 2))
	points := 0
	for n := 1; ; n++ {
		m := systemtest.New()
		m.Disk.Put("/var/lib/mesh-host", systemtest.Thing{Type: system.TypeDirectory, Mode: 0o700})
		m.Hook(systemtest.CutAt(n))
		err := fetch(m.Contents, content)
		for _, loss := range systemtest.Losses(m.Pending(), random) {
			points++
			check := func() error {
				up := m.PowerCut(loss)
				if got, readErr := up.ReadContent(digest); up.HasContent(digest) && (string(got) != content || readErr != nil) {
					return fmt.Errorf("%q, %v", got, readErr)
				}
				if err == nil && !up.HasContent(digest) {
					return errors.New("it was kept and is lost")
				}
				if again := fetch(up.Contents, content); again != nil && !errors.Is(again, system.ErrChanged) {
					return again
				} else if again != nil {
					if again = fetch(up.Contents, content); again != nil {
						return again
					}
				}
				if got, readErr := up.ReadContent(digest); string(got) != content || readErr != nil || strings.Contains(up.Disk.String(), ".part") {
					return fmt.Errorf("%q, %v\n%s", got, readErr, up.Disk)
				}
				return nil
			}
			if bad := check(); bad != nil {
				t.Errorf("cut at %d, %s: %v", n, loss.Name, bad)
			}
		}
		if !m.Off() {
			t.Logf("%d points", points)
			return
		}
	}
}
