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

	"mesh/lab/companion"
	"mesh/lab/underlay"
	"mesh/lab/world/acme"
	"mesh/lab/world/advertisement"
	"mesh/lab/world/artefacts"
	"mesh/lab/world/dhcp"
	"mesh/lab/world/dns"
	"mesh/lab/world/line"
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
	lines  *line.Lines
	names  dns.Trouble

	// Written by Run before ready is closed.
	issuer *acme.Issuer // nil: there are no services
	parts  []*part

	stateMu sync.Mutex // held while the state changes
	state   State      // guarded by stateMu
	// As state.Stands has it. Both guarded by stateMu.
	builder  network.Builder
	underlay underlay.Underlay

	mu     sync.Mutex
	leases []*dhcp.Server
	failed map[string][]string // service → why
}

// New makes a world of c; nil log discards. Work begins in Run.
func New(c Config, log *slog.Logger) *World {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &World{
		config: c, log: log, ready: make(chan struct{}), failed: map[string][]string{},
		lines: line.New(c.Underlay.Namespace, log),
		state: State{Stands: c.Underlay.Away()}, underlay: c.Underlay,
	}
}

// Ready is closed once everything stands and answers.
func (w *World) Ready() <-chan struct{} { return w.ready }

// Run builds the network, or finds it standing, and serves until ctx is done,
// which is no error. Nothing is impaired at first, whatever was before. It must
// be called in a process that lives in the world's namespace: the issuer
// validates from there. The network stays when it returns; Remove takes it away.
// A service that fails later is shown by Status and the others go on. Call it
// once.
func (w *World) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	socket, err := companion.Claim(w.config.Control, "a world")
	if err != nil {
		return err
	}
	control := newWeb("control socket", w.control(), nil, w.log)
	control.listeners = []net.Listener{socket}
	var group errgroup.Group
	group.Go(func() error { return control.serve(ctx) })

	err = w.build(ctx)
	if err != nil {
		cancel()
	} else {
		group.Go(func() error { return w.lines.Run(ctx) })
		group.Go(func() error { return w.capture(ctx) })
		w.log.Info("world is ready", "pid", os.Getpid(), "services", w.services())
		close(w.ready)
	}
	<-ctx.Done()
	stopped := group.Wait() // nobody changes the state any more
	w.stop()
	if err != nil {
		return fmt.Errorf("build world: %w", err)
	}
	w.log.Info("world ends")
	return stopped
}

// build lays the network and opens everything that serves.
func (w *World) build(ctx context.Context) error {
	if err := w.builder.Apply(ctx, network.NewPlan(w.config.Underlay)); err != nil {
		return err
	}
	if err := w.clear(ctx); err != nil {
		return err
	}
	if err := w.prepare(); err != nil {
		return err
	}
	for _, p := range w.parts {
		if err := w.start(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// prepare makes everything that is to serve.
func (w *World) prepare() error {
	u := w.config.Underlay
	for _, k := range keepers(u) {
		w.prepareKeeper(k)
	}
	if len(u.Services.Addrs) == 0 {
		return nil
	}
	var addrs []netip.Addr
	for _, a := range u.Services.Addrs {
		addrs = append(addrs, a.Addr())
	}
	return w.prepareServices(u, addrs)
}

func (w *World) prepareKeeper(k keeper) {
	if k.lease != nil {
		w.add(serviceDHCP, k.Namespace, func() (serve, error) {
			s, err := dhcp.Listen(k.Link, *k.lease, w.log)
			if err != nil {
				return nil, err
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.leases = append(w.leases, s)
			return s.Serve, nil
		})
	}
	if k.advert != nil {
		w.add(serviceAdvert, k.Namespace, func() (serve, error) {
			s, err := advertisement.Listen(k.Link, *k.advert, w.log)
			if err != nil {
				return nil, err
			}
			return s.Serve, nil
		})
	}
}

func (w *World) prepareServices(u underlay.Underlay, addrs []netip.Addr) error {
	var at []netip.AddrPort
	for _, a := range addrs {
		at = append(at, netip.AddrPortFrom(a, portDNS))
	}
	zone := dns.NewZone(u.Records)
	w.add(serviceDNS, u.Namespace, func() (serve, error) {
		s, err := dns.Listen(at, zone, &w.names, w.log)
		if err != nil {
			return nil, err
		}
		return s.Serve, nil
	})

	var err error
	w.issuer, err = acme.New(acme.Config{Name: u.Services.IssuerName, Addrs: addrs, Resolver: at[0]}, w.log)
	if err != nil {
		return err
	}
	w.add(serviceIssuer, u.Namespace, func() (serve, error) {
		secure := newWeb(serviceIssuer, w.issuer.Handler, w.issuer.TLS, w.log)
		return secure.serve, secure.listen(addrs, acme.Port)
	})

	if err := artefacts.Check(w.config.Repositories); err != nil {
		return err
	}
	files := artefacts.Handler(w.config.Repositories, w.log)
	w.add(serviceArtefacts, u.Namespace, func() (serve, error) {
		plain := newWeb(serviceArtefacts, files, nil, w.log)
		return plain.serve, plain.listen(addrs, portArtefacts)
	})
	return nil
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
	stopped := w.stopped()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, server := range w.leases {
		maps.Copy(s.Leases, server.Leases())
	}
	for _, name := range w.services() {
		why := append(stopped[name], w.failed[name]...)
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
