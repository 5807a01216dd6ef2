package libvirt

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
)

// streams is a connection on which nothing comes of a stream after its end. A
// daemon goes on: it may call the end that it has told of an unexpected one. The
// library takes what comes then for an answer that somebody waits for, and where
// nobody does, its reader and who asked wait for each other for ever.
type streams struct {
	net.Conn
	packet []byte // that is being handed out: what is left of it
	ended  int32  // the call whose stream has ended, at last; 0: none has
}

// What a packet is, of libvirt's virnetprotocol.x: its length, that of the length
// included, program, version, procedure, type, serial and status, of four bytes
// each, and then what it carries.
const (
	packetHead   = 28
	packetMost   = 64 << 20 // VIR_NET_MESSAGE_MAX is half of that
	typeStream   = 3
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

// wanted tells whether the library waits for a packet. A stream ends with one
// that says how it ended, or goes on with nothing.
func (s *streams) wanted(packet []byte) bool {
	word := func(at int) uint32 { return binary.BigEndian.Uint32(packet[at:]) }
	serial := int32(word(20))
	if word(16) != typeStream {
		return true
	}
	if serial == s.ended {
		return false
	}
	if word(24) != statusGoesOn || len(packet) == packetHead {
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
