package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
)

// A frame is one record on disk, all numbers little-endian:
//
//	 0  magic    4 bytes  "mhR1"; the digit is the version of the frame
//	 4  kind     2 bytes
//	 6  index    2 bytes  in the journal: which record of one append it is, from 0
//	 8  length   4 bytes  of the payload
//	12  seq      8 bytes  rises by one with each record, never reused
//	20  check    4 bytes  CRC-32C of bytes 0 to 19
//	24  payload           JSON; members may be added, never change meaning
//	    check    4 bytes  CRC-32C of everything before it
//
// The header is checked by itself so that a frame with a damaged payload is
// stepped over exactly, and a reader that lost its place finds the next frame.
// The index tells damage from an append that never ended, of which a disk may
// hold any part: only behind the last frame of index 0 is the end unfinished.
const (
	magic      = "mhR1"
	headerSize = 24
	frameExtra = headerSize + 4
	maxPayload = 64 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type frame struct {
	kind    uint16
	index   uint16
	seq     uint64
	payload []byte
}

func (f frame) size() int { return frameExtra + len(f.payload) }

// appendFrame writes f at the end of b.
func appendFrame(b []byte, f frame) []byte {
	start := len(b)
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint16(b, f.kind)
	b = binary.LittleEndian.AppendUint16(b, f.index)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(f.payload)))
	b = binary.LittleEndian.AppendUint64(b, f.seq)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
	b = append(b, f.payload...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// scanned is what reading a file of frames gave.
type scanned struct {
	frames []frame
	bad    []span // damaged stretches that others were written behind
	torn   int    // bytes at the end of an append that never ended
}

// span is a damaged stretch of a file.
type span struct {
	offset, length int
	kind           uint16 // of the one frame it was, where its header is good; else 0
	seq            uint64
}

func (s span) String() string {
	if s.kind != 0 {
		return fmt.Sprintf("record %d at byte %d", s.seq, s.offset)
	}
	return fmt.Sprintf("%d bytes at byte %d", s.length, s.offset)
}

// scan reads every good frame of b, in one pass. Payloads alias b.
func scan(b []byte) scanned {
	var out scanned
	began := 0       // where the last append begins whose first frame is good
	var starts []int // of the frames
	for at := 0; at < len(b); {
		head, ok := header(b[at:])
		end := at + frameExtra + len(head.payload)
		switch {
		case !ok:
			next := nextHeader(b, at+1)
			out.bad = append(out.bad, span{offset: at, length: next - at})
			at = next
		case sum(b[at:end-4]) != binary.LittleEndian.Uint32(b[end-4:]):
			out.bad = append(out.bad, span{offset: at, length: end - at, kind: head.kind, seq: head.seq})
			at = end
		default:
			if head.index == 0 {
				began = at
			}
			out.frames, starts = append(out.frames, head), append(starts, at)
			at = end
		}
	}
	for i, s := range out.bad {
		if s.offset > began || len(out.frames) == 0 {
			// What stands behind it in the same append counts no more than it does.
			good, _ := slices.BinarySearch(starts, s.offset)
			out.bad, out.frames, out.torn = out.bad[:i], out.frames[:good], len(b)-s.offset
			break
		}
	}
	return out
}

func sum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// header reads the header at the start of b; it is good only if the whole frame
// it announces is there.
func header(b []byte) (frame, bool) {
	if len(b) < frameExtra || string(b[:4]) != magic || sum(b[:20]) != binary.LittleEndian.Uint32(b[20:]) {
		return frame{}, false
	}
	length := int(binary.LittleEndian.Uint32(b[8:]))
	if length > maxPayload || length > len(b)-frameExtra {
		return frame{}, false
	}
	return frame{
		kind:    binary.LittleEndian.Uint16(b[4:]),
		index:   binary.LittleEndian.Uint16(b[6:]),
		seq:     binary.LittleEndian.Uint64(b[12:]),
		payload: b[headerSize : headerSize+length],
	}, true
}

// nextHeader finds the first good header at or after from; len(b) if none.
func nextHeader(b []byte, from int) int {
	for from < len(b) {
		i := bytes.Index(b[from:], []byte(magic))
		if i < 0 {
			break
		}
		from += i
		if _, ok := header(b[from:]); ok {
			return from
		}
		from++
	}
	return len(b)
}
