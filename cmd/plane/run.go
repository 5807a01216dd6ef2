package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"mesh/cmd/internal/cli"
	"mesh/host/identity"
	"mesh/plane/api"
	"mesh/plane/config"
	"mesh/plane/declare"
	"mesh/plane/enrolment"
	"mesh/plane/gateway"
	"mesh/plane/module"
	"mesh/plane/refusal"
	"mesh/plane/registry"
	"mesh/plane/store"
)

func newRun(s cli.Streams) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "run", Short: "Run the plane until it is told to stop",
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := loadConfig(file)
			if err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(s.Err, nil))
			p := program{config: cfg, modules: module.All(), machineID: ownMachineID(log), log: log, ready: func() {
				daemon.SdNotify(false, daemon.SdNotifyReady) // without systemd nobody is told
			}}
			return p.run(c.Context())
		},
	}
	c.Flags().StringVar(&file, "config", config.Path, "the plane's configuration")
	return c
}

// ownMachineID reads machine-id(5); empty where there is none.
func ownMachineID(log *slog.Logger) string {
	b, err := os.ReadFile("/etc/machine-id")
	if err != nil {
		log.Warn("this machine is not recognised when it enrols; assign module plane to it with its token", "err", err)
	}
	return strings.TrimSpace(string(b))
}

// program is one plane.
type program struct {
	config    config.Config
	modules   []module.Module
	machineID string       // of the machine it runs on
	listener  net.Listener // of the link; nil means one where the configuration says
	limits    gateway.Limits
	log       *slog.Logger
	ready     func() // called once it answers
}

// run runs the plane until ctx ends, which is no error.
func (p program) run(ctx context.Context) (err error) {
	links := new(gateway.Links)
	st, err := store.Open(ctx, store.Config{Path: p.config.Database(), Committed: links.Committed})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	mesh, err := p.mesh(ctx, st)
	if err != nil {
		return err
	}
	modules := catalogue(p.config, p.modules)
	declarer := declare.New(declare.Config{
		Mesh: mesh, Catalogue: modules, Running: p.config, PlaneMachine: p.machineID, Store: st, Now: time.Now, Log: p.log,
	})
	enrolments := enrolment.New(enrolment.Config{
		Mesh: mesh, Overlay: p.config.Overlay, Addresses: p.config.Addresses, PlaneMachine: p.machineID,
		Catalogue: modules, Declarer: declarer, Store: st, Now: time.Now, Log: p.log,
	})
	if err := declarer.Refresh(ctx); err != nil {
		return fmt.Errorf("bring declarations up to date: %w", err) // a refusal keeps its exit code
	}
	link := gateway.New(gateway.Config{
		Mesh: mesh, Enroller: enrolments, Nodes: st, Observations: st, Contents: st, Links: links, Limits: p.limits, Now: time.Now, Log: p.log,
	})
	operators := api.NewServer(api.Config{
		Enrolment: enrolments, Assigner: declarer, Configurer: declarer, HostSetter: declarer, Reader: st, Links: links, Catalogue: modules, Log: p.log,
	})
	return p.serve(ctx, link, operators, enrolments)
}

// serve opens both doors, says that the plane is ready, and waits.
func (p program) serve(ctx context.Context, link *gateway.Gateway, operators *api.Server, enrolments *enrolment.Service) error {
	links := p.listener
	if links == nil {
		var err error
		if links, err = net.Listen("tcp", p.config.Listen); err != nil {
			return fmt.Errorf("listen for links: %v; something else may have the port, or `listen` in the configuration is not an address of this machine", err)
		}
	}
	calls, err := api.Listen(p.config.Socket)
	if err != nil {
		links.Close()
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return link.Run(ctx, links) })
	group.Go(func() error { return operators.Run(ctx, calls) })
	group.Go(func() error { return enrolments.Run(ctx) })
	p.log.Info("plane is up", "mesh", p.config.Mesh, "listen", links.Addr().String(), "version", version)
	if p.ready != nil {
		p.ready()
	}
	err = group.Wait()
	p.log.Info("plane is down")
	return err
}

// mesh finds the mesh in the store, or makes it, and checks that the
// configuration is one of this mesh.
func (p program) mesh(ctx context.Context, st *store.Store) (registry.Mesh, error) {
	m, err := st.Mesh(ctx, func() (registry.Mesh, error) {
		link, err := identity.NewLinkKey(rand.Reader)
		if err != nil {
			return registry.Mesh{}, err
		}
		declaration, err := identity.NewDeclarationKey(rand.Reader)
		if err != nil {
			return registry.Mesh{}, err
		}
		p.log.Info("mesh made", "mesh", p.config.Mesh)
		return registry.Mesh{Name: p.config.Mesh, Epoch: 1, LinkKey: link, DeclarationKey: declaration, CreatedAt: time.Now()}, nil
	})
	if err != nil {
		return m, err
	}
	if m.Name != p.config.Mesh {
		return m, &refusal.Error{
			Kind: refusal.Invalid, What: "starting the plane",
			Why: fmt.Sprintf("its configuration is of mesh %q, and its store %s of mesh %q", p.config.Mesh, p.config.Store, m.Name),
			Do:  "a mesh keeps its name: put it back, or name another store",
		}
	}
	return m, p.checkOverlay(ctx, st)
}

// checkOverlay refuses ranges that addresses already granted are not in.
func (p program) checkOverlay(ctx context.Context, st *store.Store) error {
	standings, err := st.Standings(ctx)
	for _, n := range standings {
		for _, a := range n.Addresses {
			if !p.config.Overlay.IPv4.Contains(a) && !p.config.Overlay.IPv6.Contains(a) {
				return &refusal.Error{
					Kind: refusal.Invalid, What: "starting the plane",
					Why: fmt.Sprintf("node %q has the overlay address %s, which is in no range of `overlay` in the configuration", n.Name, a),
					Do:  "renumbering is not possible yet: put the range back",
				}
			}
		}
	}
	return err
}
