// Package capture keeps the last frames of each segment in files that every
// program for packets reads (pcap): a ring of two files for each segment,
// PATH and the one before it, PATH.0.
//
// It costs nothing while nothing is sent. Frames are cut to what an Ethernet
// frame holds; their real length is kept. It needs no program of the lab machine.
//
// Only lab/world imports it.
package capture

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// snapLength is how much of a frame is kept: all of it, unless a card was to cut
// it up.
const snapLength = 1600

// Ring writes frames to a file, which it replaces when it is full. Make it with
// NewRing. Not safe for concurrent use.
type Ring struct {
	path  string
	limit int64 // bytes of one of the two files
	file  *os.File
	out   *bufio.Writer
	size  int64
}

// NewRing makes a ring of at most limit bytes at path. What an earlier one left
// there is kept as the file before the first. Close must be called.
func NewRing(path string, limit int64) (*Ring, error) {
	r := &Ring{path: path, limit: limit / 2}
	return r, r.begin()
}

// begin makes a new file; the last one becomes the one before it.
func (r *Ring) begin() error {
	if err := os.Rename(r.path, r.path+".0"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keep frames: %v", err)
	}
	f, err := os.OpenFile(r.path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("keep frames: %v", err)
	}
	r.file, r.out = f, bufio.NewWriterSize(f, 64<<10)
	// https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-06.html, section 4
	head := make([]byte, 24)
	binary.LittleEndian.PutUint32(head[0:], 0xa1b2c3d4) // times in microseconds
	binary.LittleEndian.PutUint16(head[4:], 2)
	binary.LittleEndian.PutUint16(head[6:], 4)
	binary.LittleEndian.PutUint32(head[16:], snapLength)
	binary.LittleEndian.PutUint32(head[20:], 1) // LINKTYPE_ETHERNET
	_, err = f.Write(head)
	r.size = int64(len(head))
	return err
}

// Add adds a frame that was seen at a time and had length bytes; of more than is
// kept, frame is the beginning.
func (r *Ring) Add(at time.Time, frame []byte, length int) error {
	const head = 16
	if r.size+head+int64(len(frame)) > r.limit {
		if err := errors.Join(r.Close(), r.begin()); err != nil {
			return err
		}
	}
	record := make([]byte, head, head+len(frame))
	binary.LittleEndian.PutUint32(record[0:], uint32(at.Unix()))
	binary.LittleEndian.PutUint32(record[4:], uint32(at.Nanosecond()/1000))
	binary.LittleEndian.PutUint32(record[8:], uint32(len(frame)))
	binary.LittleEndian.PutUint32(record[12:], uint32(length))
	n, err := r.out.Write(append(record, frame...))
	r.size += int64(n)
	return err
}

// Buffered tells whether frames were added that Flush has not written yet.
func (r *Ring) Buffered() bool { return r.out.Buffered() > 0 }

// Flush writes what was added to the file.
func (r *Ring) Flush() error { return r.out.Flush() }

// Close flushes and closes the file.
func (r *Ring) Close() error { return errors.Join(r.out.Flush(), r.file.Close()) }
