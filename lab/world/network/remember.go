package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"

	"mesh/lab/scenario"
	"mesh/lab/underlay"
	"mesh/lab/world/namespace"
)

// Remember asks a router what it remembers. Connections and mappings beyond limit
// are left out, and so is what is neither TCP nor UDP.
func Remember(ctx context.Context, r underlay.Router, limit int) (m Memory, err error) {
	err = namespace.Do(r.Namespace, func() error {
		for _, family := range []string{"ipv4", "ipv6"} {
			listed, err := run(ctx, "conntrack", "", "--dump", "--family", family, "--output", "save")
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(listed)) {
				if line = strings.TrimSpace(line); connectionForm.MatchString(line) && len(m.Connections) < limit {
					m.Connections = append(m.Connections, line)
				}
			}
		}
		if scenario.NAT(r.NAT) != scenario.NATEasy {
			return nil
		}
		listed, err := run(ctx, "nft", "", "--json", "list", "map", "inet", "lab", "seen")
		if err == nil {
			m.Mappings, err = mappings(listed)
			m.Mappings = m.Mappings[:min(limit, len(m.Mappings))]
		}
		return err
	})
	if err != nil {
		return Memory{}, fmt.Errorf("ask router %s what it remembers: %w", r.Name, err)
	}
	return m, nil
}

// Recall makes a router remember just this, which Check has passed.
func Recall(ctx context.Context, r underlay.Router, m Memory) error {
	err := namespace.Do(r.Namespace, func() error {
		if scenario.NAT(r.NAT) == scenario.NATEasy {
			if _, err := run(ctx, "nft", elements(m.Mappings), "-f", "-"); err != nil {
				return err
			}
		}
		if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
			return fmt.Errorf("forget connections: %v", err)
		}
		if len(m.Connections) == 0 {
			return nil
		}
		_, err := run(ctx, "conntrack", strings.Join(m.Connections, "\n")+"\n", "--load-file", "-")
		return err
	})
	if err != nil {
		return fmt.Errorf("have router %s remember: %w", r.Name, err)
	}
	return nil
}

// mappings reads what nft lists of the map of an easy router: libnftables-json(5).
func mappings(listed []byte) (all []Mapping, err error) {
	var answer struct {
		Objects []struct {
			Map struct {
				Elements [][2]json.RawMessage `json:"elem"`
			} `json:"map"`
		} `json:"nftables"`
	}
	if err := json.Unmarshal(listed, &answer); err != nil {
		return nil, fmt.Errorf("read the answer of nft: %v", err)
	}
	for _, o := range answer.Objects {
		for _, e := range o.Map.Elements {
			var key struct {
				Element struct {
					Value concat `json:"val"`
				} `json:"elem"`
			}
			var value concat
			if err := errors.Join(json.Unmarshal(e[0], &key), json.Unmarshal(e[1], &value)); err != nil {
				return nil, fmt.Errorf("read the answer of nft: %v", err)
			}
			m, err := mapping(key.Element.Value.Parts, value.Parts)
			if err != nil {
				return nil, fmt.Errorf("read the answer of nft: %v", err)
			}
			all = append(all, m)
		}
	}
	return all, nil
}

// concat is several values of nft as one.
type concat struct {
	Parts []any `json:"concat"`
}

func mapping(key, value []any) (Mapping, error) {
	if len(key) != 3 || len(value) != 2 {
		return Mapping{}, fmt.Errorf("%v : %v is no mapping", key, value)
	}
	protocol, _ := key[0].(string)
	inside, err := netip.ParseAddrPort(fmt.Sprintf("%v:%v", key[1], key[2]))
	outside, err2 := netip.ParseAddrPort(fmt.Sprintf("%v:%v", value[0], value[1]))
	return Mapping{Protocol: protocol, Inside: inside, Outside: outside}, errors.Join(err, err2)
}
