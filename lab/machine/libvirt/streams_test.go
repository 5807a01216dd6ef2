package libvirt_test

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/png"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/machine/libvirt"
)

// What packets are: an answer, and pieces of a stream that go on, are the end, or
// are an error.
const (
	answered, stream       = 1, 3
	isOK, isError, isGoing = 0, 1, 2
)

func packet(procedure, kind uint32, serial int32, status uint32, carries ...byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(28+len(carries)))
	for _, word := range []uint32{0x20008086, 1, procedure, kind, uint32(serial), status} {
		b = binary.BigEndian.AppendUint32(b, word)
	}
	return append(b, carries...)
}

// read is a connection of which only what comes is of interest.
type read struct {
	net.Conn
	io.Reader
}

func (r read) Read(b []byte) (int, error) { return r.Reader.Read(b) }

// Nothing comes of a stream after its end, however it ended.
func TestStreamsEnd(t *testing.T) {
	before := slices.Concat(packet(211, answered, 5, isOK), packet(211, stream, 5, isGoing, 'a', 'b'))
	late := slices.Concat(packet(211, stream, 5, isError, 'e'), packet(211, stream, 5, isOK))
	after := slices.Concat(packet(66, answered, 6, isError, 'x'), packet(211, stream, 7, isGoing, 'c'), packet(211, stream, 7, isOK))
	for name, end := range map[string][]byte{
		"nothing": packet(211, stream, 5, isGoing),
		"good":    packet(211, stream, 5, isOK),
		"bad":     packet(211, stream, 5, isError, 'e', 'r'),
	} {
		got, err := io.ReadAll(libvirt.Streams(read{Reader: bytes.NewReader(slices.Concat(before, end, late, after))}))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(slices.Concat(before, end, after), got); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
	}
}

// Nothing comes of a call after what the library takes for its end: an answer that
// is an error, and one that comes behind the beginning of its stream.
func TestStreamsEndWithTheirCall(t *testing.T) {
	late := slices.Concat(packet(211, stream, 5, isGoing), packet(211, stream, 5, isOK), packet(211, answered, 5, isOK))
	after := slices.Concat(packet(66, answered, 6, isOK), packet(316, 2, 0, isOK, 'e'))
	for name, call := range map[string][]byte{
		"error":       packet(211, answered, 5, isError, 'e'),
		"early":       slices.Concat(packet(211, stream, 5, isGoing, 'a'), packet(211, answered, 5, isOK, 'm')),
		"early end":   slices.Concat(packet(211, stream, 5, isOK), packet(211, answered, 5, isOK, 'm')),
		"early error": packet(211, stream, 5, isError, 'e'),
	} {
		got, err := io.ReadAll(libvirt.Streams(read{Reader: bytes.NewReader(slices.Concat(call, late, after))}))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(slices.Concat(call, after), got); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
	}
}

// A screenshot comes to its end though the daemon then calls the end of its stream
// an unexpected one. The library alone waits for ever, one time in a few.
func TestScreenshotOfADaemonThatGoesOn(t *testing.T) {
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 3, 2))); err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	socket, end := sessions(t, func(conn net.Conn) { showing(conn, picture.Bytes(), asked.Add(1)%2 == 0) })
	done := make(chan error, 1)
	go func() {
		h := libvirt.At(socket)
		for range 60 {
			if _, err := h.Screenshot(t.Context(), "one"); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits for ever") // nothing ends it, so nobody is waited for
	}
	end()
}

// showing is a daemon's session with one machine, whose display shows a picture. An
// early one begins with the first picture before it has answered.
func showing(conn net.Conn, picture []byte, early bool) {
	defer conn.Close()
	const describe, screenshot = 14, 211
	for {
		header, ok := question(conn)
		if !ok {
			return
		}
		procedure, serial := binary.BigEndian.Uint32(header[12:]), int32(binary.BigEndian.Uint32(header[20:]))
		carries := replies[procedure]
		if procedure == describe {
			carries = []byte("\x00\x00\x00\x09<domain/>\x00\x00\x00")
		}
		all := packet(procedure, answered, serial, isOK, carries...)
		if procedure == screenshot {
			shown := packet(procedure, stream, serial, isGoing, picture...)
			if all = slices.Concat(all, shown); early {
				all = slices.Concat(shown, packet(procedure, answered, serial, isOK, carries...))
			}
			early = false
			all = slices.Concat(all, packet(procedure, stream, serial, isGoing), packet(procedure, stream, serial, isOK))
		}
		if _, err := conn.Write(all); err != nil {
			return
		}
	}
}

// Whatever comes, what is handed out is whole packets of it, in order, and a part
// of one is an error.
func FuzzStreams(f *testing.F) {
	f.Add(slices.Concat(packet(211, answered, 5, isOK), packet(211, stream, 5, isGoing, 'a'), packet(211, stream, 5, isGoing), packet(211, stream, 5, isOK)))
	f.Add(packet(66, answered, 1, isOK, 0, 0, 0, 1)[:30])
	f.Add([]byte{0, 0, 0, 4})
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := io.ReadAll(libvirt.Streams(read{Reader: bytes.NewReader(data)}))
		for rest := data; len(got) > 0; {
			if len(rest) < 28 {
				t.Fatalf("%x was not in what came", got)
			}
			n := binary.BigEndian.Uint32(rest)
			if bytes.HasPrefix(got, rest[:n]) {
				got = got[n:]
			}
			rest = rest[n:]
			if len(got) == 0 && err == nil && len(rest) > 0 && len(rest) < 28 {
				t.Fatalf("nobody is told that %x is cut short", rest)
			}
		}
	})
}
