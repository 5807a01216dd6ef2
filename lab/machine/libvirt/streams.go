package libvirt

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
)

// streams is a connection on which nothing comes of a call after the library has
// taken it for ended. A daemon goes on: it may call the end that it has told of an
// unexpected one, or begin with a stream before it has answered the call, and the
// library takes the first packet for the answer then, and the answer for the end.
// What comes for a call that nobody waits for lets the library's reader and who
// asked wait for each other for ever. One call at a time is made on it.
type streams struct {
	net.Conn
	packet []byte // that is being handed out: what is left of it
	begun  int32  // the call that the library has taken a packet of, at last; 0: none
	ended  int32  // the call that it has taken for ended, at last; 0: none
}

// What a packet is, of libvirt's virnetprotocol.x: its length, that of the length
// included, program, version, procedure, type, serial and status, of four bytes
// each, and then what it carries.
const (
	packetHead   = 28
	packetMost   = 64 << 20 // VIR_NET_MESSAGE_MAX is half of that
	typeAnswer   = 1
	typeStream   = 3
	statusError  = 1
	statusGoesOn = 2
)

func (s *streams) Read(b []byte) (int, error) {
	for len(s.packet) == 0 {
		packet, err := readPacket(s.Conn)
		if err != nil {
			return 0, err
		}
		if s.wanted(packet) {
			s.packet = packet
		}
	}
	n := copy(b, s.packet)
	s.packet = s.packet[n:]
	return n, nil
}

// wanted tells whether the library waits for a packet. It takes the first one of a
// call for its answer, which is all if it is an error; the others are of a stream,
// which ends with one that says how it ended, or goes on with nothing.
func (s *streams) wanted(packet []byte) bool {
	word := func(at int) uint32 { return binary.BigEndian.Uint32(packet[at:]) }
	kind, serial, status := word(16), int32(word(20)), word(24)
	if kind != typeAnswer && kind != typeStream {
		return true // an event
	}
	if serial == s.ended {
		return false
	}
	last := status == statusError
	if serial == s.begun {
		last = status != statusGoesOn || len(packet) == packetHead
	}
	if s.begun = serial; last {
		s.ended = serial
	}
	return true
}

// readPacket reads one packet whole.
func readPacket(r io.Reader) ([]byte, error) {
	var head [packetHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(head[:])
	if length < packetHead || length > packetMost {
		return nil, fmt.Errorf("the daemon sends a packet of %d bytes", length)
	}
	packet := make([]byte, length)
	copy(packet, head[:])
	_, err := io.ReadFull(r, packet[packetHead:])
	return packet, err
}
