package libvirt

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"mesh/lab/machine"
)

// A memory image is what libvirt writes, struct _virQEMUSaveHeader in
// src/qemu/qemu_saveimage.h, with a seal of the lab's after its end: a header,
// the domain's document ended by NUL, libvirt's cookie ended by NUL, padding,
// and the state of the machine as QEMU streams it.
const (
	saveMagic    = "LibvirtQemudSave"
	partialMagic = "LibvirtQemudPart" // libvirt has not come to its end
	saveVersion  = 2
	saveRaw      = 0 // the state is neither compressed nor sparse
	headerSize   = 92
	// maxDocument bounds document, cookie and padding; libvirt pads by 64 KiB.
	maxDocument = 4 << 20
)

// saveHeader is libvirt's, little-endian as on every x86.
type saveHeader struct {
	Magic      [16]byte
	Version    uint32
	DataLen    uint32 // of document, cookie and padding
	WasRunning uint32
	Format     uint32
	Cookie     uint32 // where it begins, from the end of the header; 0: none
	_          [14]uint32
}

// saveImage is what stands before the machine's state.
type saveImage struct {
	running bool // before it was saved
	xml     string
	cookie  string
	state   int64 // where the state begins
}

// foreign is an error that wraps machine.ErrForeign.
func foreign(format string, args ...any) error {
	return fmt.Errorf("%w: %s", machine.ErrForeign, fmt.Sprintf(format, args...))
}

// readSaveImage reads the beginning of a memory image. ErrForeign where it is
// not exactly what is known.
func readSaveImage(r io.ReaderAt) (saveImage, error) {
	raw := make([]byte, headerSize)
	if n, err := r.ReadAt(raw, 0); n < headerSize {
		if err != io.EOF {
			return saveImage{}, fmt.Errorf("read memory image: %w", err)
		}
		return saveImage{}, foreign("it has %d bytes, less than a header", n)
	}
	var h saveHeader
	if _, err := binary.Decode(raw, binary.LittleEndian, &h); err != nil {
		return saveImage{}, fmt.Errorf("read memory image: %w", err)
	}
	switch magic := string(h.Magic[:]); {
	case magic == partialMagic:
		return saveImage{}, foreign("it was never finished")
	case magic != saveMagic:
		return saveImage{}, foreign("it begins with %q, not with %q", magic, saveMagic)
	case h.Version != saveVersion:
		return saveImage{}, foreign("it is of version %d, only %d is known", h.Version, saveVersion)
	case h.Format != saveRaw:
		return saveImage{}, foreign("its state is stored in form %d, only %d (raw) is known", h.Format, saveRaw)
	case h.DataLen == 0 || h.DataLen > maxDocument:
		return saveImage{}, foreign("its document is said to have %d bytes", h.DataLen)
	case h.Cookie > h.DataLen:
		return saveImage{}, foreign("its cookie is said to be at byte %d of %d", h.Cookie, h.DataLen)
	}
	data := make([]byte, h.DataLen)
	if n, err := r.ReadAt(data, headerSize); n < len(data) {
		if err != io.EOF {
			return saveImage{}, fmt.Errorf("read memory image: %w", err)
		}
		return saveImage{}, foreign("it is cut short within its document")
	}
	s := saveImage{running: h.WasRunning != 0, state: headerSize + int64(h.DataLen)}
	document := data
	if h.Cookie != 0 {
		document = data[:h.Cookie]
		cookie, _, ended := bytes.Cut(data[h.Cookie:], []byte{0})
		if !ended {
			return saveImage{}, foreign("its cookie has no end")
		}
		s.cookie = string(cookie)
	}
	document, _, ended := bytes.Cut(document, []byte{0})
	if !ended {
		return saveImage{}, foreign("its document has no end")
	}
	s.xml = string(document)
	return s, nil
}

// header is s as bytes, all that stands before the state.
func (s saveImage) header() []byte {
	h := saveHeader{Version: saveVersion, Format: saveRaw, DataLen: uint32(len(s.xml) + 1)}
	copy(h.Magic[:], saveMagic)
	if s.running {
		h.WasRunning = 1
	}
	if s.cookie != "" {
		h.Cookie = h.DataLen
		h.DataLen += uint32(len(s.cookie) + 1)
	}
	var b bytes.Buffer
	_ = binary.Write(&b, binary.LittleEndian, h) // a buffer takes everything
	b.WriteString(s.xml)
	b.WriteByte(0)
	if s.cookie != "" {
		b.WriteString(s.cookie)
		b.WriteByte(0)
	}
	return b.Bytes()
}
