// Package scenario is the declaration of a lab: the underlay it wants, the
// machines in it, and what to place on them.
//
// It is pure. Parse reads YAML strictly and reports every problem at once, each
// with line, column and the nearest name. The JSON schema that `lab schema`
// prints is derived from the types that Parse fills.
//
// Anything of lab and cmd/lab may import it.
package scenario

import "net/netip"

// Scenario is one parsed, checked declaration. Slices are in document order.
type Scenario struct {
	File     string // the document's name as given to Parse, for messages
	Name     string // from `name:`; see CheckName
	About    string // one line for people
	Segments []Segment
	Routers  []Router
	Machines []Machine
	Place    []Step
}

// Position is a place in the document; both numbers count from 1, columns in
// characters.
type Position struct {
	Line, Column int
}

// SegmentKind says what a segment stands for.
type SegmentKind string

// The kinds of segments.
const (
	Public   SegmentKind = "public"   // the outside: the world's services stand here, and it is the way out
	Site     SegmentKind = "site"     // a private network; reaches others through a router only
	Carrier  SegmentKind = "carrier"  // a provider's network, behind a router of its own that translates
	Isolated SegmentKind = "isolated" // a network that nothing leads out of
)

// Segment is one broadcast domain. At least one of IPv4 and IPv6 is valid; both
// are masked, and no two segments' ranges overlap.
type Segment struct {
	Name string
	Kind SegmentKind
	IPv4 netip.Prefix // zero: none; /8 to /29, with room for everything that stands in it
	IPv6 netip.Prefix // zero: none; always a /64
}

// NAT is how a router translates IPv4 from inside to outside.
type NAT string

// Kinds of translation.
const (
	NATEasy NAT = "easy"       // endpoint-independent mapping and filtering (RFC 4787); the default
	NATHard NAT = "hard"       // another random port for each destination, answers only: "symmetric"
	NATOne  NAT = "one-to-one" // each machine inside has an outside address of its own
	NATNone NAT = "none"       // plain routing
)

// Firewall is what a router lets in that answers nothing.
type Firewall string

// Kinds of firewall. What a router forwards a port for always comes in.
const (
	FirewallHome   Firewall = "home"   // of IPv4 what the NAT lets in, of IPv6 nothing; the default
	FirewallClosed Firewall = "closed" // nothing
	FirewallOpen   Firewall = "open"   // of IPv4 what the NAT lets in, of IPv6 everything
)

// Router joins a site or a carrier's network to another segment. IPv6 is never
// translated. A site has at most one router that it is the inside of, and
// following routers outwards never leads back, wherever they roam.
type Router struct {
	Name      string
	Inside    string   // a segment of kind site or carrier
	Outside   string   // another segment, with an address family in common; where it stands at first
	Roams     []string // where else its outside can stand; none is isolated
	NAT       NAT
	Firewall  Firewall
	MTU       int  // the longest packet that passes it, in bytes, 1280 to 1500; zero: no limit of its own
	BlackHole bool // what is too long vanishes without a word; only with an MTU
	Forwards  []Forward
}

// Forward lets in what arrives for a port of a router's outside IPv4 address.
type Forward struct {
	Protocol string // "tcp" or "udp"
	Port     int    // on the router
	To       string // a machine that stands inside
	At       int    // port on the machine
}

// Machine is one virtual machine.
type Machine struct {
	Name        string   // see CheckName; its host name
	Image       string   // a recipe's name; default "debian-13"; see CheckImages
	ImageAt     Position // where it is said, or the machine itself where it is not
	MemoryBytes int64    // default 512 MiB, at least 256 MiB
	CPUs        int      // default 1
	Segments    []string // one NIC for each, in order; at least one, none twice
	Roams       []string // where else its NIC can stand; only with exactly one segment
	Display     bool     // it has one
}

// Step is one thing to place once machines are up, in order. Exactly one of
// Package, File, Run is set.
type Step struct {
	On      string   // machine
	Package string   // a package of the world's repository, installed with apt
	File    string   // slash-separated path below the scenario's directory, copied to To; see CheckFiles
	FileAt  Position // where File is said
	To      string   // absolute path on the machine
	Run     string   // a line for /bin/sh
	Input   string   // name of an earlier Save, given to Run on stdin
	Save    string   // keep Run's stdout under this name; never printed
	Line    int      // line of the step in the document, for messages
}
