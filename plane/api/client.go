package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"mesh/host/link"
)

// Client asks a running plane.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient makes a client of the plane at socket. It does not connect.
func NewClient(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "unix", socket)
	}
	return &Client{socket, &http.Client{Transport: &http.Transport{DialContext: dial}}}
}

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Error is why a plane did not do what it was asked.
type Error struct {
	Message string
	code    int
}

func (e *Error) Error() string { return e.Message }

// ExitCode is 2 for a request that is wrong in itself, 4 where no plane
// answers, else 1.
func (e *Error) ExitCode() int { return e.code }

// call asks for one procedure. The error is an *Error.
func call[Req, Res any](ctx context.Context, c *Client, procedure string, req *Req) (*Res, error) {
	client := connect.NewClient[Req, Res](c.http, "http://plane"+procedure, connect.WithCodec(link.Codec{}))
	res, err := client.CallUnary(ctx, connect.NewRequest(req))
	if err == nil {
		return res.Msg, nil
	}
	var told *connect.Error
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if !errors.As(err, &told) || !connect.IsWireError(err) {
		return nil, &Error{fmt.Sprintf("ask the plane at %s: %v; a plane has to run on this machine: `systemctl status mesh-plane`", c.socket, errors.Unwrap(err)), 4}
	}
	code := 1
	if told.Code() == connect.CodeInvalidArgument {
		code = 2
	}
	return nil, &Error{told.Message(), code}
}

// IssueToken makes a token.
func (c *Client) IssueToken(ctx context.Context, r TokenRequest) (*TokenResponse, error) {
	return call[TokenRequest, TokenResponse](ctx, c, procedureIssueToken, &r)
}

// Nodes lists every node.
func (c *Client) Nodes(ctx context.Context) (*Nodes, error) {
	return call[Empty, Nodes](ctx, c, procedureNodes, &Empty{})
}

// Node tells everything about one node.
func (c *Client) Node(ctx context.Context, name string) (*NodeDetail, error) {
	return call[NodeRequest, NodeDetail](ctx, c, procedureNode, &NodeRequest{name})
}

// RetireNode takes everything from a node and lets it go.
func (c *Client) RetireNode(ctx context.Context, name string) (*RetireResponse, error) {
	return call[NodeRequest, RetireResponse](ctx, c, procedureRetire, &NodeRequest{name})
}

// RemoveNode forgets a node.
func (c *Client) RemoveNode(ctx context.Context, name string) error {
	_, err := call[NodeRequest, Empty](ctx, c, procedureRemove, &NodeRequest{name})
	return err
}

// Assign gives module to node, or takes it away.
func (c *Client) Assign(ctx context.Context, r AssignRequest) (*AssignResponse, error) {
	return call[AssignRequest, AssignResponse](ctx, c, procedureAssign, &r)
}

// Configure gives the plane another configuration.
func (c *Client) Configure(ctx context.Context, r ConfigureRequest) (*ConfigureResponse, error) {
	return call[ConfigureRequest, ConfigureResponse](ctx, c, procedureConfigure, &r)
}

// Host lists what nodes shall have of mesh-host.
func (c *Client) Host(ctx context.Context) (*HostPackages, error) {
	return call[Empty, HostPackages](ctx, c, procedureHost, &Empty{})
}

// SetHost gives nodes another version of mesh-host.
func (c *Client) SetHost(ctx context.Context, r SetHostRequest) (*SetHostResponse, error) {
	return call[SetHostRequest, SetHostResponse](ctx, c, procedureSetHost, &r)
}

// UnsetHost leaves nodes the version of mesh-host that they have.
func (c *Client) UnsetHost(ctx context.Context) (*UnsetHostResponse, error) {
	return call[Empty, UnsetHostResponse](ctx, c, procedureUnsetHost, &Empty{})
}

// Modules lists the catalogue.
func (c *Client) Modules(ctx context.Context) (*Modules, error) {
	return call[Empty, Modules](ctx, c, procedureModules, &Empty{})
}
