package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"connectrpc.com/connect"

	"mesh/host/declaration"
	"mesh/host/identity"
	"mesh/host/link"
	"mesh/plane/config"
	"mesh/plane/declare"
	"mesh/plane/enrolment"
	"mesh/plane/module"
	"mesh/plane/refusal"
	"mesh/plane/registry"
)

// Enrolment issues tokens, retires nodes and removes them.
type Enrolment interface {
	Issue(ctx context.Context, r enrolment.TokenRequest) (identity.Token, error)
	Retire(ctx context.Context, name string) (enrolment.Retirement, error)
	Remove(ctx context.Context, name string) error
}

// Assigner gives modules to nodes and takes them away.
type Assigner interface {
	Assign(ctx context.Context, node, module string) (declare.Assignment, error)
	Unassign(ctx context.Context, node, module string) (declare.Assignment, error)
}

// Configurer gives the plane another configuration.
type Configurer interface {
	Configure(ctx context.Context, next config.Config) (declare.Configuration, error)
}

// HostSetter says what nodes shall have of mesh-host.
type HostSetter interface {
	SetHost(ctx context.Context, deb []byte, downgrade bool) (declare.HostSetting, error)
	UnsetHost(ctx context.Context) (declare.HostSetting, error)
}

// Reader reads what is known. Errors match registry.ErrUnknown where there is
// no such node.
type Reader interface {
	Standings(ctx context.Context) ([]registry.Standing, error)
	Detail(ctx context.Context, name string) (registry.Detail, error)
	Holders(ctx context.Context, module string) ([]string, error)
	HostPackages(ctx context.Context) ([]registry.HostPackage, error)
}

// Links tells whose link is up.
type Links interface {
	Since(key identity.NodePublicKey) (since time.Time, open bool)
}

// Config is what a Server needs.
type Config struct {
	Enrolment  Enrolment
	Assigner   Assigner
	Configurer Configurer
	HostSetter HostSetter
	Reader     Reader
	Links      Links
	Catalogue  module.Catalogue
	Log        *slog.Logger // nil discards
}

// Server answers operators. Make it with NewServer.
type Server struct{ Config }

// NewServer makes a Server.
func NewServer(c Config) *Server {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Server{c}
}

// Listen opens the socket at path, for its owner alone. A socket that a plane
// which is gone has left there is replaced.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open operator socket: %v", err)
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("open operator socket: %s is there and is not a socket", path)
		}
		if conn, err := net.Dial("unix", path); err == nil {
			conn.Close()
			return nil, fmt.Errorf("open operator socket: somebody answers on %s: another plane is running", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("open operator socket: %v", err)
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("open operator socket: %v", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("open operator socket: %v", err)
	}
	return l, nil
}

const (
	maxRequestBytes = 1 << 20
	maxDebBytes     = declaration.MaxBlob/3*4 + maxRequestBytes // in base64
	shutdownTimeout = 5 * time.Second
)

// Run answers on l until ctx ends, and returns when the last call has. It
// closes l.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       time.Minute,
		ErrorLog:          slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve operators: %v", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if server.Shutdown(grace) != nil {
		server.Close()
	}
	<-served
	return nil
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	handle(mux, s, procedureIssueToken, s.issueToken)
	handle(mux, s, procedureNodes, s.nodes)
	handle(mux, s, procedureNode, s.node)
	handle(mux, s, procedureRetire, s.retire)
	handle(mux, s, procedureRemove, s.remove)
	handle(mux, s, procedureAssign, s.assign)
	handle(mux, s, procedureModules, s.modules)
	handle(mux, s, procedureConfigure, s.configure)
	handle(mux, s, procedureHost, s.host)
	handle(mux, s, procedureSetHost, s.setHost, connect.WithReadMaxBytes(maxDebBytes))
	handle(mux, s, procedureUnsetHost, s.unsetHost)
	return mux
}

// handle serves one procedure. Refusals are told as they are; other errors are
// the plane's own, logged here and told in full, since the caller is its
// operator. options override those that all procedures have.
func handle[Req, Res any](mux *http.ServeMux, s *Server, procedure string, call func(context.Context, *Req) (*Res, error), options ...connect.HandlerOption) {
	mux.Handle(procedure, connect.NewUnaryHandler(procedure, func(ctx context.Context, req *connect.Request[Req]) (*connect.Response[Res], error) {
		res, err := call(ctx, req.Msg)
		if r := refusal.Of(err); r != nil {
			return nil, connect.NewError(connect.Code(r.Kind), err)
		}
		if err != nil {
			s.Log.Error("call failed", "call", procedure, "err", err)
			return nil, connect.NewError(connect.CodeInternal, err)
		}
		return connect.NewResponse(res), nil
	}, append([]connect.HandlerOption{connect.WithCodec(link.Codec{}), connect.WithReadMaxBytes(maxRequestBytes)}, options...)...))
}

func (s *Server) issueToken(ctx context.Context, r *TokenRequest) (*TokenResponse, error) {
	if r.LifetimeSeconds < 0 || r.LifetimeSeconds > int64(enrolment.MaxLifetime/time.Second) {
		r.LifetimeSeconds = -1 // no lifetime, and refused as one; it would not fit a Duration
	}
	t, err := s.Enrolment.Issue(ctx, enrolment.TokenRequest{
		Node: r.Node, Modules: r.Modules, Lifetime: time.Duration(r.LifetimeSeconds) * time.Second,
	})
	if err != nil {
		return nil, err
	}
	return &TokenResponse{
		Token: TokenText(t.Encode()), ID: t.IDText(), ExpiresAt: t.Expires,
		Node: r.Node, Modules: list(r.Modules),
	}, nil
}

func (s *Server) nodes(ctx context.Context, _ *Empty) (*Nodes, error) {
	standings, err := s.Reader.Standings(ctx)
	if err != nil {
		return nil, err
	}
	answer := &Nodes{Nodes: make([]Node, len(standings))}
	for i, st := range standings {
		answer.Nodes[i] = s.describe(st)
	}
	return answer, nil
}

func (s *Server) node(ctx context.Context, r *NodeRequest) (*NodeDetail, error) {
	d, err := s.Reader.Detail(ctx, r.Name)
	if errors.Is(err, registry.ErrUnknown) {
		return nil, declare.UnknownNode(r.Name)
	} else if err != nil {
		return nil, err
	}
	if d.Results == nil {
		d.Results = []declaration.Result{}
	}
	above, err := s.hostAbove(ctx, d.Profile)
	return &NodeDetail{
		Node: s.describe(d.Standing), Key: d.Key.String(), EnrolledAt: d.EnrolledAt,
		Profile: d.Profile, Inventory: d.Inventory, HostAbove: above, Results: d.Results,
	}, err
}

func (s *Server) describe(st registry.Standing) Node {
	n := Node{
		Name: st.Name, State: Disconnected, StateSince: st.SeenAt,
		HostVersion: st.HostVersion, Addresses: []string{}, Modules: list(st.Modules),
		Declared: Generation{st.Declared.Epoch, st.Declared.Generation, st.Declared.Digest}, Refused: st.Refused,
	}
	if since, open := s.Links.Since(st.Key); open {
		n.State, n.StateSince = Connected, since.UTC()
	}
	if at := st.RetiringAt; !at.IsZero() {
		n.RetiringSince = &at
	}
	for _, a := range st.Addresses {
		n.Addresses = append(n.Addresses, a.String())
	}
	if a := st.Acknowledged; !a.At.IsZero() {
		n.Acknowledged = &Acknowledge{Generation{a.Epoch, a.Generation, a.Digest}, a.At, a.Counts}
	}
	return n
}

func (s *Server) retire(ctx context.Context, r *NodeRequest) (*RetireResponse, error) {
	done, err := s.Enrolment.Retire(ctx, r.Name)
	return &RetireResponse{done.Node, done.Changed, done.Generation}, err
}

func (s *Server) remove(ctx context.Context, r *NodeRequest) (*Empty, error) {
	return &Empty{}, s.Enrolment.Remove(ctx, r.Name)
}

func (s *Server) assign(ctx context.Context, r *AssignRequest) (*AssignResponse, error) {
	call := s.Assigner.Assign
	if r.Unassign {
		call = s.Assigner.Unassign
	}
	a, err := call(ctx, r.Node, r.Module)
	return &AssignResponse{a.Node, a.Module, a.Changed, a.Generation}, err
}

func (s *Server) modules(ctx context.Context, _ *Empty) (*Modules, error) {
	answer := &Modules{Modules: []Module{}}
	for _, m := range s.Catalogue.Modules() {
		holders, err := s.holders(ctx, m)
		if err != nil {
			return nil, err
		}
		answer.Modules = append(answer.Modules, Module{
			Name: m.Name, Summary: m.Summary, Presence: string(m.Presence), Instantiation: string(m.Instantiation),
			Excludes: list(m.Excludes), Nodes: list(holders),
		})
	}
	return answer, nil
}

func (s *Server) configure(ctx context.Context, r *ConfigureRequest) (*ConfigureResponse, error) {
	next, err := config.Parse(r.File, []byte(r.Text))
	if err != nil {
		return nil, &refusal.Error{Kind: refusal.Invalid, What: "reading the configuration", Why: err.Error()}
	}
	c, err := s.Configurer.Configure(ctx, next)
	return &ConfigureResponse{c.Node, c.Changed, c.Generation, list(c.Notes)}, err
}

// holders lists the nodes that have m.
func (s *Server) holders(ctx context.Context, m module.Module) ([]string, error) {
	if m.Presence != module.Everywhere {
		return s.Reader.Holders(ctx, m.Name)
	}
	all, err := s.Reader.Standings(ctx)
	var names []string
	for _, st := range all {
		names = append(names, st.Name)
	}
	return names, err
}

// list is s, and empty where it is nil: a JSON array always.
func list(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}
