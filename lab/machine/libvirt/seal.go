package libvirt

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"mesh/lab/machine"
)

// sealMagic ends every memory image of the lab's.
const sealMagic = "mesh-memory-seal"

// maxSeal bounds what a seal says, in bytes.
const maxSeal = 4 << 10

// seal stands after the state of a memory image, and is how one that was cut
// short is told from a whole one without reading it: its JSON, the length of
// that as 32 bits little-endian, and sealMagic.
type seal struct {
	Bytes    int64            `json:"bytes"` // of libvirt's image, which it follows
	Platform machine.Platform `json:"platform"`
}

// add writes the seal behind an image that libvirt has finished.
func (s seal) add(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	s.Bytes = info.Size()
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	end := binary.LittleEndian.AppendUint32(text, uint32(len(text)))
	_, err = f.WriteAt(append(end, sealMagic...), s.Bytes)
	return err
}

// readSeal finds the seal at the end of an image of size bytes. ErrForeign where
// there is none.
func readSeal(r io.ReaderAt, size int64) (seal, error) {
	const fixed = 4 + len(sealMagic)
	cut := foreign("it is cut short, or was not written by a lab")
	end := make([]byte, fixed)
	if size < int64(fixed) {
		return seal{}, cut
	}
	if _, err := r.ReadAt(end, size-int64(fixed)); err != nil && err != io.EOF {
		return seal{}, fmt.Errorf("read memory image: %w", err)
	}
	length := int64(binary.LittleEndian.Uint32(end))
	if string(end[4:]) != sealMagic || length > maxSeal || length > size-int64(fixed) {
		return seal{}, cut
	}
	text := make([]byte, length)
	if _, err := r.ReadAt(text, size-int64(fixed)-length); err != nil && err != io.EOF {
		return seal{}, fmt.Errorf("read memory image: %w", err)
	}
	var s seal
	if err := json.Unmarshal(text, &s); err != nil {
		return seal{}, foreign("its seal is unreadable: %v", err)
	}
	if s.Bytes != size-int64(fixed)-length {
		return seal{}, foreign("it has %d bytes of %d", size-int64(fixed)-length, s.Bytes)
	}
	return s, nil
}
