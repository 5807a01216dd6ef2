package lifecycletest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"os"

	"mesh/lab/underlay"
	"mesh/lab/world"
)

type outside struct{ *Fake }

// Root is what the fake's worlds give as each of two root certificates.
const Root = `-----BEGIN CERTIFICATE-----
MIIBCjCBvaADAgECAgEBMAUGAytlcDAUMRIwEAYDVQQDEwlGYWtlIFJvb3QwIBcN
MjYwMTAxMDAwMDAwWhgPMjEyNjAxMDEwMDAwMDBaMBQxEjAQBgNVBAMTCUZha2Ug
Um9vdDAqMAUGAytlcAMhABXdugXWXtNl/9qkIb7ggY1+Mp1UfmGN+lj7krXHuo2E
ozIwMDAPBgNVHRMBAf8EBTADAQH/MB0GA1UdDgQWBBSS70o4gIEFYIh39o8VRUa1
d0Q5BjAFBgMrZXADQQBJ1DT6heemXUgJktxMq90kp8itJxkPhFB7M4Sn2G5hZf6B
IQsNIi7q9bxmi430CvDdpGit7x4zB0dh2zKYcmkK
-----END CERTIFICATE-----
`

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
			if err := o.put("namespace", ns, outsideState{PID: pid, Config: c}); err != nil {
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
			for _, nic := range d.Spec.NICs {
				var in string
				if o.get("link", nic.Tap, &in) == nil && in == c.Underlay.Namespace {
					return fmt.Errorf("machine %s still stands in it", name)
				}
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

// addresses are those that a machine has by its NICs, by MAC.
func (f *Fake) addresses(d domain) map[string][]string {
	all := map[string][]string{}
	for _, nic := range d.Spec.NICs {
		var in string
		var s outsideState
		if f.get("link", nic.Tap, &in) != nil || in == "" || f.get("namespace", in, &s) != nil {
			continue
		}
		u, err := s.standing()
		if err != nil {
			panic(err)
		}
		for _, m := range u.Machines {
			for _, n := range m.NICs {
				if n.MAC != nic.MAC {
					continue
				}
				for _, prefix := range []netip.Prefix{n.IPv4, n.IPv6} {
					if prefix.IsValid() {
						all[nic.MAC] = append(all[nic.MAC], prefix.String())
					}
				}
			}
		}
	}
	return all
}
