package world

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"mesh/lab/underlay"
	"mesh/lab/world/acme"
	"mesh/lab/world/advertisement"
	"mesh/lab/world/artefacts"
	"mesh/lab/world/dhcp"
	"mesh/lab/world/dns"
	"mesh/lab/world/namespace"
	"mesh/lab/world/network"
	"mesh/lab/world/stamp"
)

// Names of the services in a Status.
const (
	serviceDHCP      = "dhcp"
	serviceAdvert    = "router-advertisement"
	serviceDNS       = "dns"
	serviceIssuer    = "issuer"
	serviceArtefacts = "artefacts"
)

// Ports of services on the outside's addresses.
const (
	portDNS       = 53
	portArtefacts = 80
)

// World is one running outside. Make it with New.
type World struct {
	config Config
	log    *slog.Logger
	ready  chan struct{}

	// Written by Run before ready is closed.
	roots  []byte
	leases []*dhcp.Server
	parts  []part

	mu     sync.Mutex
	failed map[string][]string // service → why
}

// part is something that serves until its context is done.
type part struct {
	service string
	serve   func(context.Context) error
}

// New makes a world of c; nil log discards. Work begins in Run.
func New(c Config, log *slog.Logger) *World {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &World{config: c, log: log, ready: make(chan struct{}), failed: map[string][]string{}}
}

// Ready is closed once everything stands and answers.
func (w *World) Ready() <-chan struct{} { return w.ready }

// Run builds the network, or finds it standing, and serves until ctx is done,
// which is no error. It must be called in a process that lives in the world's
// namespace: the issuer validates from there. The network stays when it returns;
// Remove takes it away. A service that fails later is shown by Status and the
// others go on. Call it once.
func (w *World) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	socket, err := claim(w.config.Control)
	if err != nil {
		return err
	}
	control := newWeb("control socket", w.control(), nil, w.log)
	control.listeners = []net.Listener{socket}
	var group errgroup.Group
	group.Go(func() error { return control.serve(ctx) })

	err = network.Apply(ctx, network.NewPlan(w.config.Underlay))
	if err == nil {
		err = w.open()
	}
	if err != nil {
		cancel() // what was opened only closes
	} else {
		w.log.Info("world is ready", "pid", os.Getpid(), "services", w.services())
		close(w.ready)
	}
	for _, p := range w.parts {
		group.Go(func() error {
			if err := p.serve(ctx); err != nil {
				w.fail(p.service, err)
			}
			return nil
		})
	}
	stopped := group.Wait()
	if err != nil {
		return fmt.Errorf("build world: %w", err)
	}
	w.log.Info("world ends")
	return stopped
}

// open opens everything that serves.
func (w *World) open() error {
	u := w.config.Underlay
	for _, k := range keepers(u) {
		err := namespace.Do(k.Namespace, func() error { return w.openKeeper(k) })
		if err != nil {
			return err
		}
	}
	if len(u.Services.Addrs) == 0 {
		return nil
	}
	var addrs []netip.Addr
	for _, a := range u.Services.Addrs {
		addrs = append(addrs, a.Addr())
	}
	return namespace.Do(u.Namespace, func() error { return w.openServices(u, addrs) })
}

func (w *World) openKeeper(k keeper) error {
	if k.lease != nil {
		s, err := dhcp.Listen(k.Link, *k.lease, w.log)
		if err != nil {
			return err
		}
		w.leases = append(w.leases, s)
		w.add(serviceDHCP, s.Serve)
	}
	if k.advert != nil {
		s, err := advertisement.Listen(k.Link, *k.advert, w.log)
		if err != nil {
			return err
		}
		w.add(serviceAdvert, s.Serve)
	}
	return nil
}

func (w *World) openServices(u underlay.Underlay, addrs []netip.Addr) error {
	var at []netip.AddrPort
	for _, a := range addrs {
		at = append(at, netip.AddrPortFrom(a, portDNS))
	}
	names, err := dns.Listen(at, dns.NewZone(u.Records), w.log)
	if err != nil {
		return err
	}
	w.add(serviceDNS, names.Serve)

	issuer, err := acme.New(acme.Config{Name: u.Services.IssuerName, Addrs: addrs, Resolver: at[0]}, w.log)
	if err != nil {
		return err
	}
	w.roots = issuer.Roots
	secure := newWeb(serviceIssuer, issuer.Handler, issuer.TLS, w.log)
	w.add(serviceIssuer, secure.serve)
	if err := secure.listen(addrs, acme.Port); err != nil {
		return err
	}

	if err := artefacts.Check(w.config.Repositories); err != nil {
		return err
	}
	plain := newWeb(serviceArtefacts, artefacts.Handler(w.config.Repositories, w.log), nil, w.log)
	w.add(serviceArtefacts, plain.serve)
	return plain.listen(addrs, portArtefacts)
}

func (w *World) add(service string, serve func(context.Context) error) {
	w.parts = append(w.parts, part{service, serve})
}

func (w *World) fail(service string, err error) {
	w.log.Error("service failed", "service", service, "err", err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed[service] = append(w.failed[service], err.Error())
}

// services names what is served, each once, in order.
func (w *World) services() (names []string) {
	for _, p := range w.parts {
		if !slices.Contains(names, p.service) {
			names = append(names, p.service)
		}
	}
	return names
}

// Status tells how the world is. Safe for concurrent use.
func (w *World) Status() Status {
	s := Status{PID: os.Getpid(), Leases: map[string]string{}, Services: []ServiceStatus{}}
	select {
	case <-w.ready:
	default:
		return s
	}
	s.Ready = true
	for _, server := range w.leases {
		maps.Copy(s.Leases, server.Leases())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range w.services() {
		why := w.failed[name]
		s.Services = append(s.Services, ServiceStatus{Name: name, OK: len(why) == 0, Why: strings.Join(why, "; ")})
	}
	return s
}

// Serve is the whole of the process that Start starts: a world that logs to its
// Config's file, stamps the consoles that are recorded beside that, and writes
// its Status to out, one line, once it is ready.
func Serve(ctx context.Context, c Config, out io.Writer) error {
	file, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open world log: %v", err)
	}
	defer file.Close()
	log := slog.New(slog.NewJSONHandler(file, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w := New(c, log)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		// Consoles without stamps are a nuisance, a world without services is none.
		if err := stamp.Follow(ctx, filepath.Dir(c.Log), time.Now, log); err != nil {
			log.Warn("consoles are not stamped", "err", err)
		}
		return nil
	})
	ran := make(chan struct{})
	group.Go(func() error {
		defer close(ran)
		defer cancel() // the rest serves it alone
		return w.Run(ctx)
	})
	group.Go(func() error {
		select {
		case <-ran:
			return nil
		case <-w.Ready():
			return json.NewEncoder(out).Encode(w.Status())
		}
	})
	return group.Wait()
}
