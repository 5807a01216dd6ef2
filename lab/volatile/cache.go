package volatile

import (
	"errors"
	"io"
	"maps"
	"slices"
)

// pageSize is what a disk writes whole or not at all.
const pageSize = 4096

// backing is where flushed bytes are; an *os.File is one.
type backing interface {
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
}

// cache is the volatile write cache of one disk. Not safe for concurrent use,
// but for reads side by side.
type cache struct {
	under   backing
	durable int64 // bytes that under has
	kept    int64 // bytes of under that are still seen; behind them are zeros
	size    int64 // as the disk is seen
	limit   int   // pages, at most, that wait
	pages   map[int64]*[pageSize]byte
	order   []int64 // of pages, the oldest first; some may have gone since
}

// newCache makes a cache over under, which has size bytes. It keeps at most limit
// bytes of what is written; beyond that the oldest is written through, as disks do.
func newCache(under backing, size, limit int64) *cache {
	return &cache{
		under: under, durable: size, kept: size, size: size,
		limit: int(max(1, limit/pageSize)), pages: map[int64]*[pageSize]byte{},
	}
}

// unflushed is how many bytes would be lost.
func (c *cache) unflushed() int64 { return int64(len(c.pages)) * pageSize }

// ReadAt is io.ReaderAt's.
func (c *cache) ReadAt(p []byte, off int64) (int, error) {
	if off >= c.size {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), c.size-off))
	if err := c.readUnder(p[:n], off); err != nil {
		return 0, err
	}
	if len(c.pages) > 0 {
		each(off, n, func(page int64, from, to, at int) {
			if content := c.pages[page]; content != nil {
				copy(p[at:], content[from:to])
			}
		})
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// readUnder fills p with what is flushed, and with zeros behind it.
func (c *cache) readUnder(p []byte, off int64) error {
	n := max(0, min(int64(len(p)), c.kept-off))
	clear(p[n:])
	if n == 0 {
		return nil
	}
	got, err := c.under.ReadAt(p[:n], off)
	if errors.Is(err, io.EOF) { // somebody cut the file behind: it reads as zeros
		clear(p[got:n])
		return nil
	}
	return err
}

// each calls f for each page that n bytes from off on touch: its number, the
// bytes of it that are touched, and where the first of them is among the n.
func each(off int64, n int, f func(page int64, from, to, at int)) {
	for at := 0; at < n; {
		from := int((off + int64(at)) % pageSize)
		to := min(pageSize, from+n-at)
		f((off+int64(at))/pageSize, from, to, at)
		at += to - from
	}
}

// WriteAt is io.WriterAt's: it keeps p in memory, and writes the oldest pages
// through when there are too many.
func (c *cache) WriteAt(p []byte, off int64) (int, error) {
	return len(p), c.change(off, len(p), func(page *[pageSize]byte, from, to, at int) {
		copy(page[from:to], p[at:])
	})
}

// zero makes n bytes zeros; with grow the disk grows to hold them.
func (c *cache) zero(off, n int64, grow bool) error {
	if inside := max(0, min(n, c.size-off)); inside > 0 {
		err := c.change(off, int(inside), func(page *[pageSize]byte, from, to, _ int) { clear(page[from:to]) })
		if err != nil {
			return err
		}
	}
	if grow {
		c.size = max(c.size, off+n)
	}
	return nil
}

// change lets alter do its work on each page that n bytes from off on touch.
func (c *cache) change(off int64, n int, alter func(page *[pageSize]byte, from, to, at int)) error {
	var failed error
	each(off, n, func(number int64, from, to, at int) {
		page := c.pages[number]
		if page == nil {
			page = new([pageSize]byte)
			if to-from < pageSize {
				failed = errors.Join(failed, c.readUnder(page[:], number*pageSize))
			}
			if failed != nil {
				return
			}
			c.pages[number] = page
			c.order = append(c.order, number)
		}
		alter(page, from, to, at)
	})
	if failed != nil {
		return failed
	}
	c.size = max(c.size, off+int64(n))
	return c.bound()
}

// bound writes the oldest pages through where there are too many.
func (c *cache) bound() error {
	if len(c.pages) <= c.limit {
		return nil
	}
	var oldest []int64
	next := 0
	for ; next < len(c.order) && len(c.pages)-len(oldest) > c.limit*3/4; next++ {
		if c.pages[c.order[next]] != nil {
			oldest = append(oldest, c.order[next])
		}
	}
	if err := c.writeThrough(oldest); err != nil {
		return err
	}
	c.order = slices.Clone(c.order[next:])
	return nil
}

// truncate sets the size. What is cut off reads as zeros when it is back.
func (c *cache) truncate(size int64) error {
	whole := (size + pageSize - 1) / pageSize // pages that are left
	if rest := min(c.size, whole*pageSize) - size; rest > 0 {
		if err := c.zero(size, rest, false); err != nil {
			return err
		}
	}
	maps.DeleteFunc(c.pages, func(number int64, _ *[pageSize]byte) bool { return number >= whole })
	c.order = slices.DeleteFunc(c.order, func(number int64) bool { return number >= whole })
	c.size, c.kept = size, min(c.kept, whole*pageSize)
	return nil
}

// flush makes everything durable. When it fails, what was not made durable waits
// for the next.
func (c *cache) flush() error {
	if err := c.writeThrough(c.numbers()); err != nil {
		return err
	}
	c.order = c.order[:0]
	if err := c.cutOff(); err != nil {
		return err
	}
	if c.durable != c.size {
		if err := c.under.Truncate(c.size); err != nil {
			return err
		}
		c.durable, c.kept = c.size, c.size
	}
	return nil
}

// cutOff cuts off behind what was cut off here, so that it is not seen again when
// the file grows.
func (c *cache) cutOff() error {
	if c.kept == c.durable {
		return nil
	}
	if err := c.under.Truncate(c.kept); err != nil {
		return err
	}
	c.durable = c.kept
	return nil
}

// numbers lists the pages that wait, in order.
func (c *cache) numbers() []int64 {
	return slices.Sorted(maps.Keys(c.pages))
}

// maxRun is how many pages are written at once.
const maxRun = 256

// writeThrough makes some of the pages durable.
func (c *cache) writeThrough(numbers []int64) error {
	if len(numbers) == 0 {
		return nil
	}
	if err := c.cutOff(); err != nil {
		return err
	}
	slices.Sort(numbers)
	numbers = slices.Compact(numbers) // after a failure a page may be in the order twice
	run := make([]byte, 0, min(maxRun, len(numbers))*pageSize)
	for i := 0; i < len(numbers); {
		first := i
		run = run[:0]
		for ; i < len(numbers) && i-first < maxRun && numbers[i] == numbers[first]+int64(i-first); i++ {
			run = append(run, c.pages[numbers[i]][:]...)
		}
		at := numbers[first] * pageSize
		run = run[:min(int64(len(run)), max(c.size, c.durable)-at)]
		if _, err := c.under.WriteAt(run, at); err != nil {
			return err
		}
		c.durable = max(c.durable, at+int64(len(run)))
		c.kept = c.durable
		for _, number := range numbers[first:i] {
			delete(c.pages, number)
		}
	}
	return nil
}

// forget loses what was not flushed, but for the pages that survive.
func (c *cache) forget(survives func() bool) error {
	var luck []int64
	for _, number := range c.numbers() {
		if survives() {
			luck = append(luck, number)
		}
	}
	err := c.writeThrough(luck)
	clear(c.pages)
	c.order = nil
	c.size, c.kept = c.durable, c.durable
	return err
}
