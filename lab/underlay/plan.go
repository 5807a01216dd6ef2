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
		machines: map[string]int{}, routers: map[string]int{}, translated: map[string][]Translated{},
	}
	for _, segment := range s.Segments {
		p.segments[segment.Name] = segment
		p.seats[segment.Name] = s.Seats(segment)
	}
	u := &Underlay{Run: run, Namespace: worldNamespace(run)}
	for i, segment := range s.Segments {
		u.Segments = append(u.Segments, p.segment(i, segment))
	}
	for _, m := range s.Machines {
		u.Machines = append(u.Machines, p.machine(m))
	}
	for i, r := range s.Routers {
		u.Routers = append(u.Routers, p.router(i, r, u.Machines))
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
	// How many have taken a number in each segment, of machines and of routers.
	machines, routers map[string]int
	translated        map[string][]Translated // by router
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
	four, six := p.leads(segment)
	for _, a := range p.addrs(segment, p.seats[segment].Gateway) {
		switch {
		case a.Addr().Is4() && four:
			v4 = a.Addr()
		case a.Addr().Is6() && six:
			v6 = a.Addr()
		}
	}
	return v4, v6
}

// leads tells of which families something leads out of a segment.
func (p *planner) leads(segment string) (four, six bool) {
	if p.segments[segment].Kind == scenario.Public {
		return true, true
	}
	for _, r := range p.s.Routers {
		for _, outside := range r.Outsides() {
			if r.Inside == segment {
				four = four || p.segments[outside].IPv4.IsValid()
				six = six || p.segments[outside].IPv6.IsValid()
			}
		}
	}
	return four, six
}

func (p *planner) segment(i int, s scenario.Segment) Segment {
	v4, v6 := p.gateway(s.Name)
	return Segment{
		Name: s.Name, Kind: string(s.Kind), Bridge: fmt.Sprintf("segment%d", i+1),
		IPv4: s.IPv4, IPv6: s.IPv6, Gateway4: v4, Gateway6: v6,
	}
}

// router plans the i-th router, once the machines are placed.
func (p *planner) router(i int, r scenario.Router, machines []Machine) Router {
	var stands []RouterStand
	for _, segment := range r.Outsides() {
		v4, v6 := p.gateway(segment)
		stands = append(stands, RouterStand{
			Segment: segment, Addrs: p.addrs(segment, p.seats[segment].Routers+p.routers[segment]), Default4: v4, Default6: v6,
		})
		p.routers[segment]++
	}
	router := Router{
		Name:      r.Name,
		Namespace: routerNamespace(p.run, i),
		Inside: RouterPort{
			Segment: r.Inside, Link: linkInside, Peer: fmt.Sprintf("router%d-in", i+1),
			MAC: p.mac("router", r.Name, linkInside), Addrs: p.addrs(r.Inside, p.seats[r.Inside].Gateway),
		},
		Outside: RouterPort{
			Link: linkOutside, Peer: fmt.Sprintf("router%d-out", i+1), MAC: p.mac("router", r.Name, linkOutside),
		},
		NAT: string(r.NAT), Firewall: string(r.Firewall), MTU: r.MTU, BlackHole: r.BlackHole,
		Forwards: forwards(r, machines), Translated: p.translated[r.Name],
	}
	router.stand(stands[0])
	if len(stands) > 1 {
		router.Stands = stands
	}
	router.Ruleset = ruleset(router)
	return router
}

// forwards finds the machines that ports lead to.
func forwards(r scenario.Router, machines []Machine) (all []Forward) {
	for _, f := range r.Forwards {
		for _, m := range machines {
			if m.Name != f.To {
				continue
			}
			for _, nic := range m.NICs {
				for _, stand := range nic.stands() {
					if stand.Segment == r.Inside {
						all = append(all, Forward{
							Protocol: f.Protocol, Port: uint16(f.Port), Machine: m.Name,
							To: netip.AddrPortFrom(stand.IPv4.Addr(), uint16(f.At)),
						})
					}
				}
			}
		}
	}
	return all
}

// machine plans the next machine: a NIC in each of its segments, the only one
// of which may roam.
func (p *planner) machine(m scenario.Machine) Machine {
	machine := Machine{Name: m.Name}
	for _, segment := range m.Segments {
		nic := NIC{MAC: p.mac("machine", m.Name, segment), Tap: p.tap(m.Name, segment)}
		nic.stand(p.stand(m.Name, segment, nic.MAC))
		machine.NICs = append(machine.NICs, nic)
	}
	if len(m.Roams) > 0 {
		nic := &machine.NICs[0]
		nic.Stands = nic.stands()
		for _, segment := range m.Roams {
			nic.Stands = append(nic.Stands, p.stand(m.Name, segment, nic.MAC))
		}
	}
	return machine
}

// stand takes a number for a machine in a segment, and one outside where it is
// translated to an address of its own.
func (p *planner) stand(machine, segment, mac string) Stand {
	stand := Stand{Segment: segment, IPv4: p.take(segment)}
	if v6 := p.segments[segment].IPv6; v6.IsValid() {
		stand.IPv6 = netip.PrefixFrom(fromMAC(v6, mac), v6.Bits())
	}
	for _, r := range p.s.Routers {
		if r.Inside != segment || r.NAT != scenario.NATOne {
			continue
		}
		if outside := p.take(r.Outside); outside.IsValid() && stand.IPv4.IsValid() {
			p.translated[r.Name] = append(p.translated[r.Name], Translated{machine, stand.IPv4.Addr(), outside})
		}
	}
	return stand
}

// take gives out a segment's next number for machines, as an IPv4 address; zero
// where it has no IPv4.
func (p *planner) take(segment string) netip.Prefix {
	number := p.seats[segment].Machines + p.machines[segment]
	p.machines[segment]++
	v4 := p.segments[segment].IPv4
	if !v4.IsValid() {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(numbered(v4, number), v4.Bits())
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
