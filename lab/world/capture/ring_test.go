package capture_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/world/capture"
)

// frames reads a file as its format's description has it.
func frames(t *testing.T, path string) (all []string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) < 24 || binary.LittleEndian.Uint32(data) != 0xa1b2c3d4 || binary.LittleEndian.Uint32(data[20:]) != 1 {
		t.Fatalf("%s does not begin as it should: %x", path, data[:min(24, len(data))])
	}
	for data = data[24:]; len(data) > 0; {
		kept := binary.LittleEndian.Uint32(data[8:])
		all = append(all, fmt.Sprintf("%d.%06d %q of %d", binary.LittleEndian.Uint32(data), binary.LittleEndian.Uint32(data[4:]),
			data[16:16+kept], binary.LittleEndian.Uint32(data[12:])))
		data = data[16+kept:]
	}
	return all
}

// TestRing keeps the last frames in two files that stay small, and what an
// earlier ring kept.
func TestRing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lan.pcap")
	at := time.Unix(1_800_000_000, 123_456_000)
	add := func(words ...string) {
		t.Helper()
		r, err := capture.NewRing(path, 2*100)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range words {
			if err := r.Add(at, []byte(w), 9000); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	word := func(w string) string { return fmt.Sprintf("1800000000.123456 %q of 9000", w) }
	add("one", "two", "three", "four", "five", "six", "seven")
	for file, want := range map[string][]string{path: {word("seven")}, path + ".0": {word("four"), word("five"), word("six")}} {
		if diff := cmp.Diff(want, frames(t, file)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
		if info, err := os.Stat(file); err != nil || info.Size() > 100 {
			t.Errorf("%s has %d bytes, %v", file, info.Size(), err)
		}
	}
	add("later")
	if diff := cmp.Diff([]string{word("seven")}, frames(t, path+".0")); diff != "" {
		t.Errorf("after a new beginning (-want +got):\n%s", diff)
	}
}
