package volatile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// disk is one file that is open. Safe for concurrent use.
type disk struct {
	server *Server
	name   string
	file   *os.File

	io      sync.RWMutex // reads side by side, all else alone; guards the following
	cache   *cache
	flushes int64
	dark    bool // its power was cut, and somebody who wrote to it still has it open
	loss    Loss // of that cut

	who     sync.Mutex // guards the following; taken before io where both are
	handles int
	writers map[*handle]struct{}
	idle    chan struct{} // closed when the last writer has gone
}

// handle is one open of a disk.
type handle struct {
	disk   *disk
	writer bool
	holder int // pidfd of the process that opened it to write, -1 where unknown
}

func newDisk(s *Server, name string, file *os.File, size int64) *disk {
	return &disk{
		server: s, name: name, file: file,
		cache: newCache(file, size, s.config.limit()), writers: map[*handle]struct{}{},
	}
}

// open adds a handle. A disk whose power was cut cannot be written to before its
// last writer has gone: EBUSY.
func (d *disk) open(writer bool, holder int) (*handle, error) {
	d.who.Lock()
	defer d.who.Unlock()
	h := &handle{disk: d, writer: writer, holder: holder}
	if writer {
		d.io.RLock()
		dark := d.dark
		d.io.RUnlock()
		if dark {
			return nil, unix.EBUSY
		}
		if len(d.writers) == 0 {
			d.idle = make(chan struct{})
		}
		d.writers[h] = struct{}{}
	}
	d.handles++
	return h, nil
}

// close takes a handle away. With the last writer goes what it did not flush.
// It tells whether that was the last handle.
func (d *disk) close(h *handle) (last bool, err error) {
	d.who.Lock()
	defer d.who.Unlock()
	d.handles--
	if h.writer {
		delete(d.writers, h)
		if h.holder >= 0 {
			_ = unix.Close(h.holder)
		}
		if len(d.writers) == 0 {
			err = d.forget()
			close(d.idle)
		}
	}
	return d.handles == 0, err
}

func (d *disk) forget() error {
	d.io.Lock()
	defer d.io.Unlock()
	loss := d.loss
	d.dark, d.loss = false, Loss{}
	luck := rand.New(rand.NewPCG(loss.Seed, 0))
	return d.cache.forget(func() bool { return loss.Survive > 0 && luck.Float64() < loss.Survive })
}

// cut takes the power away: from now on nothing is written or flushed, and
// whoever has the disk open to write is killed. It returns, once they are gone,
// how many bytes they had not flushed.
func (d *disk) cut(ctx context.Context, loss Loss) (int64, error) {
	lost, idle := d.kill(loss)
	if idle == nil {
		return 0, nil
	}
	select {
	case <-idle:
		return lost, nil
	case <-ctx.Done():
		return lost, fmt.Errorf("cut the power of disk %s: whoever writes to it does not end: %w", d.name, context.Cause(ctx))
	}
}

// kill darkens the disk and kills its writers. There is nobody to wait for where
// idle is nil.
func (d *disk) kill(loss Loss) (lost int64, idle <-chan struct{}) {
	d.who.Lock()
	defer d.who.Unlock()
	if len(d.writers) == 0 {
		return 0, nil
	}
	d.io.Lock()
	defer d.io.Unlock()
	for h := range d.writers {
		if h.holder >= 0 {
			_ = unix.PidfdSendSignal(h.holder, unix.SIGKILL, nil, 0) // gone is as good
		}
	}
	// Only now is anybody told that writing fails, and they will not hear it.
	if !d.dark {
		d.dark, d.loss = true, loss
	}
	return d.cache.unflushed(), d.idle
}

// read gives less than p holds at the end of the disk only.
func (d *disk) read(ctx context.Context, p []byte, off int64) (int, error) {
	fault := d.server.faultOf(d.name)
	if err := suffer(ctx, fault.delay(), fault.Read); err != nil {
		return 0, err
	}
	d.io.RLock()
	defer d.io.RUnlock()
	n, err := d.cache.ReadAt(p, off)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

func (d *disk) write(ctx context.Context, p []byte, off int64) error {
	fault := d.server.faultOf(d.name)
	return d.change(ctx, fault.delay(), fault.Write, func() error {
		_, err := d.cache.WriteAt(p, off)
		return err
	})
}

// zero makes zeros of a range, and with grow lets the disk grow to hold it.
func (d *disk) zero(ctx context.Context, off, n int64, grow bool) error {
	fault := d.server.faultOf(d.name)
	return d.change(ctx, fault.delay(), fault.Write, func() error { return d.cache.zero(off, n, grow) })
}

// extend lets the disk grow to a size, if it is smaller.
func (d *disk) extend(ctx context.Context, size int64) error {
	fault := d.server.faultOf(d.name)
	return d.change(ctx, fault.delay(), fault.Write, func() error {
		d.cache.size = max(d.cache.size, size)
		return nil
	})
}

func (d *disk) truncate(ctx context.Context, size int64) error {
	fault := d.server.faultOf(d.name)
	return d.change(ctx, fault.delay(), fault.Write, func() error { return d.cache.truncate(size) })
}

func (d *disk) flush(ctx context.Context) error {
	fault := d.server.faultOf(d.name)
	return d.change(ctx, fault.delay(), fault.Flush, func() error {
		d.flushes++
		return d.cache.flush()
	})
}

// change does work on the cache unless the disk has no power.
func (d *disk) change(ctx context.Context, delay time.Duration, fault Errno, work func() error) error {
	if err := suffer(ctx, delay, fault); err != nil {
		return err
	}
	d.io.Lock()
	defer d.io.Unlock()
	if d.dark {
		return unix.EIO
	}
	return work()
}

// suffer waits and fails as a fault has it. A request that is given up does not wait.
func suffer(ctx context.Context, delay time.Duration, fault Errno) error {
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return unix.EINTR
		}
	}
	if number := fault.number(); number != 0 {
		return number
	}
	return nil
}

func (d *disk) size() int64 {
	d.io.RLock()
	defer d.io.RUnlock()
	return d.cache.size
}

// status is what is known of the disk, without its fault.
func (d *disk) status() DiskStatus {
	d.who.Lock()
	open := len(d.writers) > 0
	d.who.Unlock()
	d.io.RLock()
	defer d.io.RUnlock()
	return DiskStatus{Name: d.name, Open: open, UnflushedBytes: d.cache.unflushed(), Flushes: d.flushes}
}
