package scenario

import "slices"

// Seats says which number in a segment's ranges each taker gets; an address is
// the range's own plus its number. The numbers depend on the declaration alone.
type Seats struct {
	Gateway  int // the world on a public segment, the router inside of a site
	Services int // the world's services on a public segment; 0 on a site
	Routers  int // the first router that has the segment outside; the others follow
	Machines int // the first machine, the others follow; IPv4 only, IPv6 follows from the MAC
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
	if machines := s.machinesIn(of.Name); machines > 0 {
		highest = seats.Machines + machines - 1
	}
	return highest
}

func (s *Scenario) routersOutside(segment string) int {
	count := 0
	for _, r := range s.Routers {
		if r.Outside == segment {
			count++
		}
	}
	return count
}

func (s *Scenario) machinesIn(segment string) int {
	count := 0
	for _, m := range s.Machines {
		if slices.Contains(m.Segments, segment) {
			count++
		}
	}
	return count
}
