// Package underlay turns a scenario into concrete names, MACs, addresses and
// firewall text. It is pure and deterministic: the same scenario gives the same
// inside, whatever it is raised as; only names that the lab machine can see
// (taps, namespaces) carry the run's id.
package underlay

import "net/netip"

// Underlay is everything the world builds and every address a machine gets.
type Underlay struct {
	Run       string    `json:"run"`       // 8 hex digits; unique for each raise
	Namespace string    `json:"namespace"` // the world's own: bridges and outside services
	Segments  []Segment `json:"segments"`
	Routers   []Router  `json:"routers"`
	Machines  []Machine `json:"machines"`
	Services  Services  `json:"services"`
	Records   []Record  `json:"records"` // what the outside's DNS answers
}

// Segment is a bridge in the world's namespace.
type Segment struct {
	Name   string       `json:"name"`
	Kind   string       `json:"kind"`   // scenario.SegmentKind
	Bridge string       `json:"bridge"` // link name, ≤ 15 bytes
	IPv4   netip.Prefix `json:"ipv4,omitzero"`
	IPv6   netip.Prefix `json:"ipv6,omitzero"`
	// Gateway is the default gateway: the world itself on a public segment
	// (addresses put on the bridge), the router on a site. Zero where nothing of
	// that family ever leads out, wherever the router may roam.
	Gateway4 netip.Addr `json:"gateway4,omitzero"`
	Gateway6 netip.Addr `json:"gateway6,omitzero"`
}

// Router is a namespace with one veth into each of two bridges.
type Router struct {
	Name      string     `json:"name"`
	Namespace string     `json:"namespace"`
	Inside    RouterPort `json:"inside"`
	Outside   RouterPort `json:"outside"`           // as it stands now
	Default4  netip.Addr `json:"default4,omitzero"` // next hop outside, as it stands now
	Default6  netip.Addr `json:"default6,omitzero"`
	// Stands are all places that its outside can be moved to, that of the
	// beginning first. Empty: it does not roam.
	Stands     []RouterStand `json:"stands,omitempty"`
	NAT        string        `json:"nat"`                  // scenario.NAT; under "none" the outside routes the inside's IPv4 to the router
	Firewall   string        `json:"firewall"`             // scenario.Firewall
	MTU        int           `json:"mtu,omitempty"`        // bytes, of packets either way; zero: that of its links
	BlackHole  bool          `json:"black_hole,omitempty"` // what exceeds MTU vanishes without a word
	Forwards   []Forward     `json:"forwards,omitempty"`
	Translated []Translated  `json:"translated,omitempty"` // one to one; outside addresses that the router holds
	Ruleset    string        `json:"ruleset"`              // nftables text, one table; the same wherever the router stands
}

// RouterStand is a place of a router's outside.
type RouterStand struct {
	Segment  string         `json:"segment"`
	Addrs    []netip.Prefix `json:"addrs"`
	Default4 netip.Addr     `json:"default4,omitzero"`
	Default6 netip.Addr     `json:"default6,omitzero"`
}

// Forward is a port of a router's outside that leads to a machine inside.
type Forward struct {
	Protocol string         `json:"protocol"` // "tcp" or "udp"
	Port     uint16         `json:"port"`
	Machine  string         `json:"machine"`
	To       netip.AddrPort `json:"to"`
}

// Translated is an inside address and what stands for it outside.
type Translated struct {
	Machine string       `json:"machine"`
	Inside  netip.Addr   `json:"inside"`
	Outside netip.Prefix `json:"outside"`
}

// RouterPort is one end of a router.
type RouterPort struct {
	Segment string         `json:"segment"`
	Link    string         `json:"link"` // name inside the router's namespace
	Peer    string         `json:"peer"` // name of the veth's other end, on the bridge
	MAC     string         `json:"mac"`
	Addrs   []netip.Prefix `json:"addrs"`
}

// Machine is where a machine stands.
type Machine struct {
	Name string `json:"name"`
	NICs []NIC  `json:"nics"`
}

// NIC is one interface of a machine. The lease server grants exactly IPv4 to
// MAC; IPv6 follows from MAC by EUI-64 (RFC 4291, appendix A) and the router
// advertisement of the segment.
type NIC struct {
	Segment string       `json:"segment"` // this and the addresses: as it stands now
	MAC     string       `json:"mac"`
	Tap     string       `json:"tap"` // link name on the lab machine, unique by run, ≤ 15 bytes
	IPv4    netip.Prefix `json:"ipv4,omitzero"`
	IPv6    netip.Prefix `json:"ipv6,omitzero"`
	// Stands are all places that it can be moved to, that of the beginning first.
	// Empty: it does not roam.
	Stands []Stand `json:"stands,omitempty"`
}

// Stand is a place of a NIC, with the addresses that wait for it there.
type Stand struct {
	Segment string       `json:"segment"`
	IPv4    netip.Prefix `json:"ipv4,omitzero"`
	IPv6    netip.Prefix `json:"ipv6,omitzero"`
}

// Services are the outside's fixed addresses on the first public segment. They
// are put on that segment's bridge.
type Services struct {
	Segment       string         `json:"segment"`
	Addrs         []netip.Prefix `json:"addrs"` // IPv4 then IPv6, of DNS, issuer and artefacts alike
	DNS           []netip.Addr   `json:"dns"`
	IssuerName    string         `json:"issuer_name"`    // "acme.world.test": https://acme.world.test:14000/dir
	ArtefactsName string         `json:"artefacts_name"` // "packages.world.test": http, port 80
}

// Record is one name of the outside. Who roams keeps the name of where it began.
type Record struct {
	Name  string       `json:"name"` // fully qualified, no trailing dot
	Addrs []netip.Addr `json:"addrs"`
}
