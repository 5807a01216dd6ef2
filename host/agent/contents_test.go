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

	"mesh/host/declaration"
	"mesh/host/link"
)

// contents keeps sizes by digest.
type contents struct {
	mu   sync.Mutex
	kept map[string]int
	full bool
}

func (c *contents) HasContent(digest string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, there := c.kept[digest]
	return there
}

func (c *contents) KeepContent(data []byte) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	digest := declaration.Digest(data)
	c.kept[digest] = len(data)
	return digest, nil
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
