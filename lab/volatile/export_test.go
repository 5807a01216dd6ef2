package volatile

// PageSize is what is written whole or not at all.
const PageSize = pageSize

// Cache is the cache of one disk.
type Cache struct{ *cache }

// NewCache is newCache.
func NewCache(under backing, size, limit int64) Cache { return Cache{newCache(under, size, limit)} }

func (c Cache) Unflushed() int64                   { return c.unflushed() }
func (c Cache) Zero(off, n int64, grow bool) error { return c.zero(off, n, grow) }
func (c Cache) Truncate(size int64) error          { return c.truncate(size) }
func (c Cache) Flush() error                       { return c.flush() }
func (c Cache) Forget(survives func() bool) error  { return c.forget(survives) }
