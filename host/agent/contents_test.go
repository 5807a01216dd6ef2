package agent_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mesh/host/declaration"
	"mesh/host/link"
)

// contents keeps sizes by digest, and what has come of others.
type contents struct {
	mu    sync.Mutex
	kept  map[string]int
	parts map[string][]byte
	full  bool
}

func (c *contents) HasContent(digest string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, there := c.kept[digest]
	return there
}

func (c *contents) FetchedContent(digest string) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64(len(c.parts[digest])), nil
}

func (c *contents) AddToContent(digest string, offset int64, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if offset != 0 && offset != int64(len(c.parts[digest])) {
		return fmt.Errorf("%d bytes are there, not %d", len(c.parts[digest]), offset)
	}
	c.parts[digest] = append(c.parts[digest][:offset], data...)
	return nil
}

func (c *contents) CompleteContent(digest string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	data := c.parts[digest]
	delete(c.parts, digest)
	if declaration.Digest(data) != digest {
		return errors.New("it is something else")
	}
	c.kept[digest] = len(data)
	return nil
}

func (c *contents) RoomFor(int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full {
		return errors.New("it does not fit")
	}
	return nil
}

// naming is a declaration that names content by digest.
func naming(data []byte) declaration.Declaration {
	d := generation(1, 1)
	d.Format = 2
	d.Resources = []declaration.Resource{{ID: "big", File: &declaration.File{
		Path: "/etc/big", Blob: &declaration.Blob{Digest: declaration.Digest(data), Bytes: int64(len(data))}}}}
	return d
}

// asks counts the calls for content.
func asks(p *fakePlane) (n int) {
	for _, line := range p.took() {
		if strings.HasPrefix(line, "blob ") {
			n++
		}
	}
	return n
}

// TestContentIsFetched part by part, kept, and a pass made at once.
func TestContentIsFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		data := bytes.Repeat([]byte("0123456789abcdef"), link.MaxBlobPart/16*2+1)
		r.plane.content[declaration.Digest(data)] = data
		r.hand.status = declaration.StatusWaiting
		r.plane.declare(naming(data))
		r.start()
		defer r.end()
		r.pass(2 * time.Second)
		if n := asks(r.plane); n != 3 || !r.contents.HasContent(declaration.Digest(data)) {
			t.Errorf("%d parts, kept %v", n, r.contents.kept)
		}
		did := r.hand.did()
		if last := did[len(did)-1]; !strings.HasSuffix(last, "pass") || len(did) < 3 { // first, accept, once more with the content
			t.Errorf("%q", did)
		}
	})
}

// TestContentGoesOnWhereItWasCutShort: the link is lost again and again, the host
// is started anew, and no byte is fetched twice.
func TestContentGoesOnWhereItWasCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		data := bytes.Repeat([]byte("0123456789abcdef"), link.MaxBlobPart/16*4+1)
		digest := declaration.Digest(data)
		r.plane.content[digest] = data
		r.plane.cutAt = map[int64]bool{link.MaxBlobPart: true, 3 * link.MaxBlobPart: true}
		r.hand.status = declaration.StatusWaiting
		r.plane.declare(naming(data))
		r.start()
		r.pass(time.Second)
		if came, err := r.contents.FetchedContent(digest); came != link.MaxBlobPart || err != nil {
			t.Fatalf("%d bytes came, %v", came, err)
		}
		r.end()
		r.startPlane()
		r.start()
		defer r.end()
		r.pass(time.Minute)
		var from []string
		for _, line := range r.plane.took() {
			if at, found := strings.CutPrefix(line, "blob "+digest[:8]+" from "); found {
				from = append(from, at)
			}
		}
		want := []string{"0", "1048576", "1048576", "2097152", "3145728", "3145728", "4194304"}
		if d := cmp.Diff(want, from); d != "" || !r.contents.HasContent(digest) {
			t.Errorf("asked for (-want +got):\n%s", d)
		}
	})
}

// TestNewerDeclarationComesBetweenParts of a content that takes long.
func TestNewerDeclarationComesBetweenParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		data := bytes.Repeat([]byte("0123456789abcdef"), link.MaxBlobPart/16*8)
		r.plane.content[declaration.Digest(data)] = data
		r.plane.slow = 20 * time.Second // a part
		r.hand.status = declaration.StatusWaiting
		r.plane.declare(naming(data))
		r.start()
		defer r.end()
		r.pass(50 * time.Second)
		next := generation(1, 2)
		r.plane.declare(next)
		r.pass(25 * time.Second)
		if held := r.hand.holds(); held == nil || held.Generation != 2 {
			t.Errorf("holds generation %d; asked %q", held.Generation, r.plane.took())
		}
		if !r.link().Up {
			t.Errorf("link %+v", r.link())
		}
	})
}

// TestCaseH7ContentThatCannotBeHad is asked for ever more rarely, for a day: it
// is not there, it is something else, or it does not fit. The link stays up.
func TestCaseH7ContentThatCannotBeHad(t *testing.T) {
	data := []byte("what was declared")
	for name, prepare := range map[string]func(r *rig){
		"not there":      func(*rig) {},
		"something else": func(r *rig) { r.plane.content[declaration.Digest(data)] = []byte("what was declarad") },
		"too long":       func(r *rig) { r.plane.content[declaration.Digest(data)] = append(data, "and more"...) },
		"cut short":      func(r *rig) { r.plane.content[declaration.Digest(data)] = data[:5] },
		"no room":        func(r *rig) { r.contents.full = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				prepare(r)
				r.hand.status = declaration.StatusWaiting
				r.plane.declare(naming(data))
				r.start()
				defer r.end()
				r.pass(24 * time.Hour)
				n, most := asks(r.plane), 2*24*6*2+40 // at half of ten minutes the earliest, of two parts each
				if n > most || n == 0 && name != "no room" || n > 0 && name == "no room" {
					t.Errorf("asked %d times, at most %d", n, most)
				}
				if !r.link().Up || len(r.contents.kept) != 0 {
					t.Errorf("link %+v, kept %v", r.link(), r.contents.kept)
				}
				r.plane.mu.Lock()
				r.plane.content[declaration.Digest(data)] = data
				r.plane.mu.Unlock()
				r.contents.mu.Lock()
				r.contents.full = false
				r.contents.mu.Unlock()
				r.pass(12 * time.Minute)
				if !r.contents.HasContent(declaration.Digest(data)) {
					t.Error(fmt.Sprint("it is there by now, and was not fetched: ", r.plane.took()))
				}
			})
		})
	}
}
