package lifecycletest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"

	"mesh/lab/underlay"
	"mesh/lab/world"
)

type outside struct{ *Fake }

// Root is what the fake's worlds give as each of two root certificates.
const Root = "-----BEGIN CERTIFICATE-----\nZmFrZSBvbmU=\n-----END CERTIFICATE-----\n"

func (o outside) Start(ctx context.Context, c world.Config) (world.Process, error) {
	sum := fnv.New32a()
	sum.Write([]byte(c.Underlay.Run))
	pid := firstFake + int(sum.Sum32())
	err := o.change(ctx, "start world "+c.Underlay.Run, func() error {
		if o.has("process", fmt.Sprint(pid)) {
			return errors.New("it runs already")
		}
		for _, ns := range namespaces(c.Underlay) {
			if o.has("namespace", ns) {
				return fmt.Errorf("namespace %s exists", ns)
			}
			if err := o.put("namespace", ns, outsideState{pid, c}); err != nil {
				return err
			}
		}
		if err := os.WriteFile(c.Log, []byte(`{"msg":"the world is up"}`+"\n"), 0o644); err != nil {
			return err
		}
		return o.put("process", fmt.Sprint(pid), c.Underlay.Run)
	})
	return world.Process{PID: pid, Start: 1}, err
}

func (o outside) Remove(ctx context.Context, c world.Config, _ world.Process) error {
	return o.change(ctx, "remove world "+c.Underlay.Run, func() error {
		for _, name := range o.names("domain") {
			var d domain
			if err := o.get("domain", name, &d); err != nil {
				return err
			}
			if d.Spec.Run == c.Underlay.Run {
				return fmt.Errorf("machine %s still stands in it", name)
			}
		}
		for _, name := range o.names("process") {
			var run string
			if o.get("process", name, &run) == nil && run == c.Underlay.Run {
				o.drop("process", name)
			}
		}
		for _, ns := range namespaces(c.Underlay) {
			o.drop("namespace", ns)
		}
		return nil
	})
}

func namespaces(u underlay.Underlay) []string {
	all := []string{u.Namespace}
	for _, r := range u.Routers {
		all = append(all, r.Namespace)
	}
	return all
}

func (o outside) Attach(ctx context.Context, u underlay.Underlay, tap string) error {
	return o.change(ctx, "attach "+tap, func() error {
		var in string
		if err := o.get("link", tap, &in); err != nil {
			return err
		}
		if in != "" {
			return fmt.Errorf("it is in %s already", in)
		}
		if !o.has("namespace", u.Namespace) {
			return fmt.Errorf("no namespace %s", u.Namespace)
		}
		return o.put("link", tap, u.Namespace)
	})
}

func (o outside) Status(_ context.Context, c world.Config) (world.Status, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var s outsideState
	if err := o.get("namespace", c.Underlay.Namespace, &s); err != nil {
		return world.Status{}, err
	}
	return world.Status{Ready: true, PID: s.PID, Services: []world.ServiceStatus{{Name: "dhcp", OK: true}}}, nil
}

func (o outside) Roots(_ context.Context, c world.Config) ([]byte, error) {
	if _, err := o.Status(context.Background(), c); err != nil {
		return nil, err
	}
	return []byte("# servers\n" + Root + "# issuer\n" + Root), nil
}

// addresses is what a machine would print with `ip -json address`.
func (f *Fake) addresses(d domain) string {
	type info struct {
		Local  string `json:"local"`
		Length int    `json:"prefixlen"`
	}
	type link struct {
		MAC       string `json:"address"`
		Addresses []info `json:"addr_info"`
	}
	var links []link
	for _, nic := range d.Spec.NICs {
		l := link{MAC: nic.MAC}
		var in string
		var s outsideState
		if f.get("link", nic.Tap, &in) == nil && in != "" && f.get("namespace", in, &s) == nil {
			for _, m := range s.Config.Underlay.Machines {
				for _, n := range m.NICs {
					if n.MAC != nic.MAC {
						continue
					}
					if n.IPv4.IsValid() {
						l.Addresses = append(l.Addresses, info{n.IPv4.Addr().String(), n.IPv4.Bits()})
					}
					if n.IPv6.IsValid() {
						l.Addresses = append(l.Addresses, info{n.IPv6.Addr().String(), n.IPv6.Bits()})
					}
				}
			}
		}
		links = append(links, l)
	}
	data, err := json.Marshal(links)
	if err != nil {
		panic(err)
	}
	return string(data)
}
