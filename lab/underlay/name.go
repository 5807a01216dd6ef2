package underlay

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// LinkNameLimit is how many bytes the name of a link has at most: IFNAMSIZ less
// the final NUL (https://man7.org/linux/man-pages/man7/netdevice.7.html).
const LinkNameLimit = 15

// tap names a machine's link on the lab machine. Names of machines and segments
// do not fit into it and are never shortened: 52 bits of a hash stand for them.
func (p *planner) tap(machine, segment string) string {
	return p.fresh(func(sum []byte) string {
		return "mt" + hex.EncodeToString(sum)[:LinkNameLimit-2]
	}, "tap", p.run, machine, segment)
}

// mac gives out a locally administered unicast address (IEEE 802, the two low
// bits of the first byte) that follows from the scenario's name and words. Its
// first byte is never 0xfe, which libvirt keeps for its end of a tap.
func (p *planner) mac(words ...string) string {
	return p.fresh(func(sum []byte) string {
		return net.HardwareAddr(append([]byte{0x02}, sum[:5]...)).String()
	}, append([]string{"mac", p.s.Name}, words...)...)
}

// fresh makes something from the hash of words, which hold no NUL, that was not
// given out before.
func (p *planner) fresh(from func(sum []byte) string, words ...string) string {
	for attempt := 0; ; attempt++ {
		sum := sha256.Sum256([]byte(strings.Join(append(words, strconv.Itoa(attempt)), "\x00")))
		if made := from(sum[:]); !p.given[made] {
			p.given[made] = true
			return made
		}
	}
}

// numbered is prefix's own address plus a small number.
func numbered(prefix netip.Prefix, number int) netip.Addr {
	bytes := prefix.Masked().Addr().AsSlice()
	low := bytes[len(bytes)-4:]
	binary.BigEndian.PutUint32(low, binary.BigEndian.Uint32(low)+uint32(number))
	addr, _ := netip.AddrFromSlice(bytes) // 4 or 16 bytes, as they came
	return addr
}

// fromMAC is the address a card gives itself in a /64: RFC 4291, appendix A.
func fromMAC(prefix netip.Prefix, mac string) netip.Addr {
	card, err := net.ParseMAC(mac)
	if err != nil { // made by planner.mac
		panic(err)
	}
	bytes := prefix.Masked().Addr().As16()
	copy(bytes[8:], []byte{card[0] ^ 0x02, card[1], card[2], 0xff, 0xfe, card[3], card[4], card[5]})
	return netip.AddrFrom16(bytes)
}
