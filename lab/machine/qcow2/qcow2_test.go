package qcow2_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"mesh/lab/machine/qcow2"
)

// image is a header of a version, with a name at an offset.
func image(version uint32, features, offset uint64, size uint32, name string) []byte {
	b := binary.BigEndian.AppendUint32([]byte("QFI\xfb"), version)
	b = binary.BigEndian.AppendUint64(b, offset)
	b = binary.BigEndian.AppendUint32(b, size)
	b = append(b, make([]byte, 72-len(b))...)
	b = binary.BigEndian.AppendUint64(b, features)
	return append(b, name...)
}

func TestBacking(t *testing.T) {
	for _, c := range []struct {
		name string
		disk []byte
		want string
		says string // of the error; empty: none
	}{
		{"none", image(3, 0, 0, 0, ""), "", ""},
		{"one", image(3, 0, 80, 6, "a.disk"), "a.disk", ""},
		{"of version 2, where features are no features", image(2, 4, 80, 6, "a.disk"), "a.disk", ""},
		{"data elsewhere", image(3, 4, 0, 0, ""), "", "in another file"},
		{"longer than may be", image(3, 0, 80, 1024, strings.Repeat("x", 1024)), "", "1024 bytes"},
		{"far away", image(3, 0, 1<<40, 6, ""), "", "at byte"},
		{"cut short", image(3, 0, 80, 6, "a."), "", "read the name"},
		{"of another version", image(4, 0, 0, 0, ""), "", "no qcow2"},
		{"no image", []byte("hello"), "", "no qcow2"},
		{"nothing", nil, "", "no qcow2"},
	} {
		got, err := qcow2.Backing(bytes.NewReader(c.disk))
		if got != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %q, %v; want %q, %q", c.name, got, err, c.want, c.says)
		}
		if is := errors.Is(err, qcow2.ErrFormat); is != (c.says == "no qcow2") {
			t.Errorf("%s: ErrFormat is %v", c.name, is)
		}
	}
}

func FuzzBacking(f *testing.F) {
	f.Add(image(3, 0, 80, 4, "/a/b"))
	f.Add(image(3, 0, 0, 0, ""))
	f.Add(image(3, 0, 80, 1<<31, "short"))
	f.Add(image(2, 4, 1<<63, 4, ""))
	f.Add([]byte("QFI"))
	f.Fuzz(func(t *testing.T, disk []byte) {
		name, err := qcow2.Backing(bytes.NewReader(disk))
		if err == nil && !bytes.Contains(disk, []byte(name)) {
			t.Errorf("%q out of %q", name, disk)
		}
	})
}
