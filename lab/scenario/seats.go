package scenario

import (
	"fmt"
	"slices"
)

// Seats says which number in a segment's ranges each taker gets; an address is
// the range's own plus its number. The numbers depend on the declaration alone.
type Seats struct {
	Gateway  int // the world on a public segment, the router inside of a site
	Services int // the world's services on a public segment; 0 on a site
	Routers  int // the first router that has the segment outside, or may roam to it; the others follow
	// Machines is the first machine; the others follow, and with each, where its
	// site is translated one to one, its outside address. IPv4 only: IPv6 follows
	// from the MAC.
	Machines int
}

// firstMachine is the number of the first machine wherever there is room for a
// gap that routers may grow into; a declared address then stays when one is added.
const firstMachine = 10

// roomyBits is the longest prefix in which machines start at firstMachine.
const roomyBits = 27

// Seats gives out the numbers of one of s's segments.
func (s *Scenario) Seats(of Segment) Seats {
	seats := Seats{Gateway: 1, Routers: 2}
	if of.Kind == Public {
		seats.Services, seats.Routers = 2, 3
	}
	seats.Machines = seats.Routers + s.routersOutside(of.Name)
	if of.IPv4.IsValid() && of.IPv4.Bits() <= roomyBits {
		seats.Machines = max(seats.Machines, firstMachine)
	}
	return seats
}

// highest is the highest number that somebody takes in of's IPv4 range.
func (s *Scenario) highest(of Segment) int {
	seats := s.Seats(of)
	highest := max(seats.Gateway, seats.Services, seats.Routers+s.routersOutside(of.Name)-1)
	if taken := s.machinesIn(of.Name) + s.translatedTo(of.Name); taken > 0 {
		highest = seats.Machines + taken - 1
	}
	return highest
}

// routersOutside counts the routers that stand in a segment, or may.
func (s *Scenario) routersOutside(segment string) int {
	count := 0
	for _, r := range s.Routers {
		if slices.Contains(r.Outsides(), segment) {
			count++
		}
	}
	return count
}

// machinesIn counts the machines that stand in a segment, or may.
func (s *Scenario) machinesIn(segment string) int {
	count := 0
	for _, m := range s.Machines {
		if slices.Contains(m.Stands(), segment) {
			count++
		}
	}
	return count
}

// translatedTo counts the outside addresses that one-to-one routers hold in a
// segment for the machines inside.
func (s *Scenario) translatedTo(segment string) int {
	count := 0
	for _, r := range s.Routers {
		if r.NAT == NATOne && r.Outside == segment {
			count += s.machinesIn(r.Inside)
		}
	}
	return count
}

// takersOf says who needs addresses in a segment beside gateways and services.
func (s *Scenario) takersOf(segment string) string {
	takers := count(s.machinesIn(segment), "machine", "machines")
	if translated := s.translatedTo(segment); translated > 0 {
		takers += " and " + count(translated, "address", "addresses") + " for one-to-one translation"
	}
	return takers
}

func count(n int, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}

// Outsides are the segments that a router's outside can stand in, that of the
// beginning first.
func (r Router) Outsides() []string { return append([]string{r.Outside}, r.Roams...) }

// Stands are the segments that a machine's NICs can stand in: those it begins
// in, one for each NIC, and those it roams to.
func (m Machine) Stands() []string { return slices.Concat(m.Segments, m.Roams) }
