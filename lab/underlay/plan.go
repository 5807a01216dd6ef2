package underlay

import (
	"fmt"
	"net/netip"
	"regexp"

	"mesh/lab/scenario"
)

// Domain is the outside's own: every name in it is answered by the world.
const Domain = "world.test" // .test never exists elsewhere: RFC 6761, section 6.2

var runForm = regexp.MustCompile(`^[0-9a-f]{8}$`)

// Plan turns a scenario, as scenario.Parse gives it, into its underlay under a
// run's id. Nothing but the names of taps and namespaces depends on the run. In
// every segment the gateway, the services, the routers and the machines get the
// numbers that scenario.Seats gives out; a machine's IPv6 address follows from
// its MAC. The only error is a run's id that is not 8 hex digits.
func Plan(s *scenario.Scenario, run string) (*Underlay, error) {
	if !runForm.MatchString(run) {
		return nil, fmt.Errorf("plan underlay of scenario %s: run id %q is not 8 hex digits", s.Name, run)
	}
	p := planner{
		s: s, run: run,
		segments: map[string]scenario.Segment{}, seats: map[string]scenario.Seats{}, given: map[string]bool{},
	}
	for _, segment := range s.Segments {
		p.segments[segment.Name] = segment
		p.seats[segment.Name] = s.Seats(segment)
	}
	u := &Underlay{Run: run, Namespace: worldNamespace(run)}
	for i, segment := range s.Segments {
		u.Segments = append(u.Segments, p.segment(i, segment))
	}
	taken := map[string]int{}
	for i, r := range s.Routers {
		u.Routers = append(u.Routers, p.router(i, r, taken[r.Outside]))
		taken[r.Outside]++
	}
	machines := map[string]int{}
	for _, m := range s.Machines {
		u.Machines = append(u.Machines, p.machine(m, machines))
	}
	u.Services = p.services()
	u.Records = p.records(u)
	return u, nil
}

type planner struct {
	s        *scenario.Scenario
	run      string
	segments map[string]scenario.Segment
	seats    map[string]scenario.Seats
	given    map[string]bool // MACs and taps
}

// addrs are the addresses with a number in the ranges of a segment, IPv4 first.
func (p *planner) addrs(segment string, number int) []netip.Prefix {
	var addrs []netip.Prefix
	for _, prefix := range []netip.Prefix{p.segments[segment].IPv4, p.segments[segment].IPv6} {
		if prefix.IsValid() {
			addrs = append(addrs, netip.PrefixFrom(numbered(prefix, number), prefix.Bits()))
		}
	}
	return addrs
}

// gateway is the next hop out of a segment; zero where nothing leads out of it.
func (p *planner) gateway(segment string) (v4, v6 netip.Addr) {
	leads := p.segments[segment].Kind == scenario.Public
	for _, r := range p.s.Routers {
		leads = leads || r.Inside == segment
	}
	if !leads {
		return netip.Addr{}, netip.Addr{}
	}
	for _, a := range p.addrs(segment, p.seats[segment].Gateway) {
		if a.Addr().Is4() {
			v4 = a.Addr()
		} else {
			v6 = a.Addr()
		}
	}
	return v4, v6
}

func (p *planner) segment(i int, s scenario.Segment) Segment {
	v4, v6 := p.gateway(s.Name)
	return Segment{
		Name: s.Name, Kind: string(s.Kind), Bridge: fmt.Sprintf("segment%d", i+1),
		IPv4: s.IPv4, IPv6: s.IPv6, Gateway4: v4, Gateway6: v6,
	}
}

// router plans the i-th router, the nth of those that have its outside outside.
func (p *planner) router(i int, r scenario.Router, nth int) Router {
	v4, v6 := p.gateway(r.Outside)
	return Router{
		Name:      r.Name,
		Namespace: routerNamespace(p.run, i),
		Inside: RouterPort{
			Segment: r.Inside, Link: linkInside, Peer: fmt.Sprintf("router%d-in", i+1),
			MAC: p.mac("router", r.Name, linkInside), Addrs: p.addrs(r.Inside, p.seats[r.Inside].Gateway),
		},
		Outside: RouterPort{
			Segment: r.Outside, Link: linkOutside, Peer: fmt.Sprintf("router%d-out", i+1),
			MAC: p.mac("router", r.Name, linkOutside), Addrs: p.addrs(r.Outside, p.seats[r.Outside].Routers+nth),
		},
		Default4: v4,
		Default6: v6,
		NAT:      string(r.NAT),
		Ruleset:  ruleset(r.NAT),
	}
}

// machine plans m; taken counts the machines that stand in each segment already.
func (p *planner) machine(m scenario.Machine, taken map[string]int) Machine {
	machine := Machine{Name: m.Name}
	for _, segment := range m.Segments {
		nic := NIC{
			Segment: segment,
			MAC:     p.mac("machine", m.Name, segment),
			Tap:     p.tap(m.Name, segment),
		}
		if v4 := p.segments[segment].IPv4; v4.IsValid() {
			nic.IPv4 = netip.PrefixFrom(numbered(v4, p.seats[segment].Machines+taken[segment]), v4.Bits())
		}
		if v6 := p.segments[segment].IPv6; v6.IsValid() {
			nic.IPv6 = netip.PrefixFrom(fromMAC(v6, nic.MAC), v6.Bits())
		}
		taken[segment]++
		machine.NICs = append(machine.NICs, nic)
	}
	return machine
}

// services stand on the first public segment.
func (p *planner) services() Services {
	for _, segment := range p.s.Segments {
		if segment.Kind != scenario.Public {
			continue
		}
		services := Services{
			Segment:       segment.Name,
			Addrs:         p.addrs(segment.Name, p.seats[segment.Name].Services),
			IssuerName:    scenario.IssuerHost + "." + Domain,
			ArtefactsName: scenario.ArtefactsHost + "." + Domain,
		}
		for _, a := range services.Addrs {
			services.DNS = append(services.DNS, a.Addr())
		}
		return services
	}
	return Services{}
}

// records are the names of the outside: the world's own, and each machine that
// has an address on a public segment. Nothing inside a site has a name here.
func (p *planner) records(u *Underlay) []Record {
	records := []Record{
		{Name: u.Services.IssuerName, Addrs: u.Services.DNS},
		{Name: u.Services.ArtefactsName, Addrs: u.Services.DNS},
		{Name: scenario.ResolverHost + "." + Domain, Addrs: u.Services.DNS},
	}
	for _, m := range u.Machines {
		record := Record{Name: m.Name + "." + Domain}
		for _, nic := range m.NICs {
			if p.segments[nic.Segment].Kind != scenario.Public {
				continue
			}
			for _, a := range []netip.Prefix{nic.IPv4, nic.IPv6} {
				if a.IsValid() {
					record.Addrs = append(record.Addrs, a.Addr())
				}
			}
		}
		if record.Addrs != nil {
			records = append(records, record)
		}
	}
	return records
}
