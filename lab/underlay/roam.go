package underlay

import (
	"fmt"
	"slices"
	"strings"
)

// Roamer is somebody who can be moved to another segment.
type Roamer struct {
	Name     string   `json:"name"`
	Router   bool     `json:"router,omitempty"` // its outside moves; otherwise it is a machine, and its NIC does
	At       string   `json:"at"`               // the segment where it stands now
	Segments []string `json:"segments"`         // where it can stand; it began in the first
}

// Roamers lists who can be moved: routers, then machines, in order.
func (u Underlay) Roamers() []Roamer {
	var all []Roamer
	for _, r := range u.Routers {
		if len(r.Stands) > 0 {
			one := Roamer{Name: r.Name, Router: true, At: r.Outside.Segment}
			for _, s := range r.Stands {
				one.Segments = append(one.Segments, s.Segment)
			}
			all = append(all, one)
		}
	}
	for _, m := range u.Machines {
		for _, nic := range m.NICs {
			if len(nic.Stands) > 0 {
				one := Roamer{Name: m.Name, At: nic.Segment}
				for _, s := range nic.Stands {
					one.Segments = append(one.Segments, s.Segment)
				}
				all = append(all, one)
			}
		}
	}
	return all
}

// Away tells of everybody who is not where it began in which segment it stands;
// nil for nobody.
func (u Underlay) Away() map[string]string {
	var away map[string]string
	for _, r := range u.Roamers() {
		if r.At == r.Segments[0] {
			continue
		}
		if away == nil {
			away = map[string]string{}
		}
		away[r.Name] = r.At
	}
	return away
}

// Roam is u with a machine or a router moved to another segment; u itself stays
// as it is. It refuses who does not roam and where it does not roam to, and says
// what there is.
func (u Underlay) Roam(name, segment string) (Underlay, error) {
	roamers := u.Roamers()
	i := slices.IndexFunc(roamers, func(r Roamer) bool { return r.Name == name })
	switch {
	case i < 0 && len(roamers) == 0:
		return Underlay{}, fmt.Errorf("%q does not roam: the scenario declares for no machine and no router that it does", name)
	case i < 0:
		var names []string
		for _, r := range roamers {
			names = append(names, r.Name)
		}
		return Underlay{}, fmt.Errorf("%q does not roam: of this scenario only %s can be moved", name, strings.Join(names, ", "))
	case !slices.Contains(roamers[i].Segments, segment):
		return Underlay{}, fmt.Errorf("%s does not roam to %q: its segments are %s", name, segment, strings.Join(roamers[i].Segments, ", "))
	}
	u.Routers = slices.Clone(u.Routers)
	for i := range u.Routers {
		for _, s := range u.Routers[i].Stands {
			if u.Routers[i].Name == name && s.Segment == segment {
				u.Routers[i].stand(s)
			}
		}
	}
	u.Machines = slices.Clone(u.Machines)
	for i := range u.Machines {
		m := &u.Machines[i]
		m.NICs = slices.Clone(m.NICs)
		for j := range m.NICs {
			for _, s := range m.NICs[j].Stands {
				if m.Name == name && s.Segment == segment {
					m.NICs[j].stand(s)
				}
			}
		}
	}
	return u, nil
}

// stand puts a router's outside somewhere.
func (r *Router) stand(s RouterStand) {
	r.Outside.Segment, r.Outside.Addrs = s.Segment, s.Addrs
	r.Default4, r.Default6 = s.Default4, s.Default6
}

// stand puts a NIC somewhere.
func (n *NIC) stand(s Stand) { n.Segment, n.IPv4, n.IPv6 = s.Segment, s.IPv4, s.IPv6 }

// stands are all places of a NIC, whether it roams or not.
func (n NIC) stands() []Stand {
	if len(n.Stands) > 0 {
		return n.Stands
	}
	return []Stand{{n.Segment, n.IPv4, n.IPv6}}
}

// In finds the place of a NIC in a segment, where it stands there now or may.
func (n NIC) In(segment string) (Stand, bool) {
	all := n.stands()
	i := slices.IndexFunc(all, func(s Stand) bool { return s.Segment == segment })
	if i < 0 {
		return Stand{}, false
	}
	return all[i], true
}
