package volatile_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"mesh/lab/volatile"
)

// file is a file in memory; failing lets its writes fail after so many.
type file struct {
	data    []byte
	failing int // writes until they fail; 0: never
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	if off >= int64(len(f.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	if f.failing > 0 {
		if f.failing--; f.failing == 0 {
			f.failing = 1
			return 0, errors.New("no space")
		}
	}
	f.data = resized(f.data, max(int64(len(f.data)), off+int64(len(p))))
	return copy(f.data[off:], p), nil
}

func (f *file) Truncate(size int64) error {
	f.data = resized(f.data, size)
	return nil
}

// resized is a copy of data with another length, zeros behind.
func resized(data []byte, size int64) []byte {
	b := make([]byte, size)
	copy(b, data)
	return b
}

// Within room the property test begins to write; no more than most pages come of it.
const (
	room = 4 * volatile.PageSize
	most = 8
)

// TestCache lets a cache and a model do the same at random. What is read is what
// was written; what was flushed is there after a cut, whatever the cut takes; and
// each page of what is there then is one that was there at some time since.
func TestCache(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		behind := &file{data: random(t, "before", rapid.IntRange(0, room).Draw(t, "size"))}
		limit := rapid.SampledFrom([]int64{1, 3 * volatile.PageSize, 1 << 30}).Draw(t, "limit")
		c := volatile.NewCache(behind, int64(len(behind.data)), limit)
		m := newModel(behind.data)
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if got := all(t, c); !bytes.Equal(got, m.now) {
					t.Fatalf("it reads other than was written, first at byte %d of %d and %d", differ(got, m.now), len(got), len(m.now))
				}
				if c.Unflushed() > max(limit, volatile.PageSize) {
					t.Fatalf("%d bytes wait, %d may", c.Unflushed(), limit)
				}
			},
			"write": func(t *rapid.T) {
				off := rapid.IntRange(0, room).Draw(t, "off")
				p := random(t, "data", rapid.IntRange(1, 2*volatile.PageSize+100).Draw(t, "n"))
				if n, err := c.WriteAt(p, int64(off)); n != len(p) || err != nil {
					t.Fatal(n, err)
				}
				m.set(resized(m.now, int64(max(len(m.now), off+len(p)))))
				copy(m.now[off:], p)
				m.remember()
			},
			"zero": func(t *rapid.T) {
				off, n := rapid.IntRange(0, room).Draw(t, "off"), rapid.IntRange(1, 3*volatile.PageSize).Draw(t, "n")
				grow := rapid.Bool().Draw(t, "grow")
				if err := c.Zero(int64(off), int64(n), grow); err != nil {
					t.Fatal(err)
				}
				size := len(m.now)
				if grow {
					size = max(size, off+n)
				}
				m.set(resized(m.now, int64(size)))
				clear(m.now[min(off, size):min(off+n, size)])
				m.remember()
			},
			"truncate": func(t *rapid.T) {
				size := rapid.Int64Range(0, room).Draw(t, "size")
				if err := c.Truncate(size); err != nil {
					t.Fatal(err)
				}
				m.set(resized(m.now, size))
				m.remember()
			},
			"flush": func(t *rapid.T) {
				if err := c.Flush(); err != nil {
					t.Fatal(err)
				}
				m = newModel(m.now)
				if !bytes.Equal(behind.data, m.now) {
					t.Fatalf("flushed is other than written, first at byte %d", differ(behind.data, m.now))
				}
			},
			"fail": func(t *rapid.T) {
				behind.failing = rapid.IntRange(1, 4).Draw(t, "after")
				_ = c.Flush() // some of it is durable then, or all
				behind.failing = 0
			},
			"cut": func(t *rapid.T) {
				luck := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
				share := rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(t, "survive")
				if err := c.Forget(func() bool { return luck.Float64() < share }); err != nil {
					t.Fatal(err)
				}
				m.possible(t, behind.data)
				m = newModel(behind.data)
			},
		})
	})
}

// model is what a disk may hold: each page is one of those that were there since
// the last flush.
type model struct {
	now  []byte
	past map[int][][]byte // page → what it was, the flushed first
	size []int
}

func newModel(flushed []byte) *model {
	m := &model{now: bytes.Clone(flushed), past: map[int][][]byte{}}
	m.remember()
	return m
}

func (m *model) set(now []byte) { m.now = now }

func (m *model) remember() {
	m.size = append(m.size, len(m.now))
	for page := range most {
		m.past[page] = append(m.past[page], pageOf(m.now, page))
	}
}

// pageOf is a page as it reads: zeros behind the end.
func pageOf(data []byte, page int) []byte {
	b := make([]byte, volatile.PageSize)
	if at := page * volatile.PageSize; at < len(data) {
		copy(b, data[at:])
	}
	return b
}

// possible fails unless each page of after was there at some time.
func (m *model) possible(t *rapid.T, after []byte) {
	for page := range most {
		is, ok := pageOf(after, page), false
		for _, was := range m.past[page] {
			// A file may end in the middle of a page that has more in memory.
			end := max(0, min(volatile.PageSize, len(after)-page*volatile.PageSize))
			ok = ok || bytes.Equal(is[:end], was[:end])
		}
		if !ok {
			t.Fatalf("page %d is one that never was", page)
		}
	}
}

func all(t *rapid.T, c volatile.Cache) []byte {
	b := make([]byte, most*volatile.PageSize)
	n, err := c.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return b[:n]
}

// random is cheap to draw: its bytes come from a seed.
func random(t *rapid.T, label string, n int) []byte {
	source := rand.NewChaCha8([32]byte{byte(rapid.IntRange(0, 255).Draw(t, label))})
	b := make([]byte, n)
	source.Read(b)
	return b
}

func differ(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
