package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"mesh/host/identity"
	"mesh/host/link"
)

// Dial makes a connection; net.Dialer.DialContext is one.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

func dialNetwork(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{KeepAlive: link.KeepaliveInterval}).DialContext(ctx, network, address)
}

// Bounds on one address, on a call, which may carry much over a slow link, on that of
// an enrolment, for which somebody waits, and on the silence after which HTTP/2 asks,
// during calls, too, whether the plane is there.
const (
	dialTimeout  = 5 * time.Second
	callTimeout  = 10 * time.Minute
	enrolTimeout = 60 * time.Second
	pingAfter    = 15 * time.Second
)

// baseURL is never resolved: a connection exists before the first request.
const baseURL = "https://plane"

// conn is one connection to a plane that was proved by its pin.
type conn struct {
	address netip.AddrPort
	state   tls.ConnectionState
	http    *http.ClientConn
}

// Do implements connect.HTTPClient on this very connection.
func (c *conn) Do(r *http.Request) (*http.Response, error) { return c.http.RoundTrip(r) }

func (c *conn) Close() error { return c.http.Close() }

func newClient[Req, Res any](c *conn, procedure string) *connect.Client[Req, Res] {
	return connect.NewClient[Req, Res](c, baseURL+procedure,
		connect.WithCodec(link.Codec{}), connect.WithReadMaxBytes(link.MaxMessageBytes))
}

// call makes one unary call.
func call[Req, Res any](ctx context.Context, c *conn, procedure string, request *Req) (*Res, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := newClient[Req, Res](c, procedure).CallUnary(ctx, connect.NewRequest(request))
	if err != nil {
		return nil, err
	}
	return response.Msg, nil
}

// wrongPlaneError says that whoever answered has none of the pinned keys.
type wrongPlaneError struct{ has identity.Pin }

func (e wrongPlaneError) Error() string {
	return fmt.Sprintf("another plane answers there (it has %s)", e.has)
}

// dialAny tries the addresses in turn until one leads to the plane with one of
// the pins. Dates in the plane's certificate do not count, so neither does this
// machine's clock.
func dialAny(ctx context.Context, dial Dial, addresses []netip.AddrPort, pins []identity.Pin, key identity.NodeKey) (*conn, error) {
	certificate, err := key.Certificate()
	if err != nil {
		return nil, err
	}
	config := &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{certificate},
		NextProtos:         []string{"h2"},
		InsecureSkipVerify: true, // no authority and no date proves the plane, its pin does
		VerifyConnection: func(s tls.ConnectionState) error {
			if pin := identity.PinOf(s.PeerCertificates[0]); !slices.Contains(pins, pin) {
				return wrongPlaneError{pin}
			}
			return nil
		},
	}
	var failed unreachableError
	for _, address := range addresses {
		c, err := dialOne(ctx, dial, address, config)
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		failed = append(failed, fmt.Errorf("%s: %w", address, err))
	}
	return nil, failed
}

func dialOne(ctx context.Context, dial Dial, address netip.AddrPort, config *tls.Config) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	raw, err := dial(ctx, "tcp", address.String())
	if err != nil {
		return nil, err
	}
	secured := tls.Client(raw, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	if got := secured.ConnectionState().NegotiatedProtocol; got != "h2" {
		_ = raw.Close()
		return nil, errors.New("it does not speak HTTP/2")
	}
	transport := &http.Transport{
		Protocols:      new(http.Protocols),
		HTTP2:          &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingAfter, WriteByteTimeout: link.LinkTimeout},
		DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return secured, nil },
	}
	transport.Protocols.SetHTTP2(true)
	client, err := transport.NewClientConn(ctx, "https", "plane:443")
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	return &conn{address: address, state: secured.ConnectionState(), http: client}, nil
}

// unreachableError lists why each address failed. No request was made.
type unreachableError []error

func (e unreachableError) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = plain(err)
	}
	return strings.Join(lines, "; ")
}

func (e unreachableError) Unwrap() []error { return e }

// wrongPlane tells whether every address is another plane's.
func (e unreachableError) wrongPlane() bool {
	for _, err := range e {
		var wrong wrongPlaneError
		if !errors.As(err, &wrong) {
			return false
		}
	}
	return len(e) > 0
}

// plain says in few words why a call or a connection failed, on one line.
func plain(err error) string {
	var refused *connect.Error
	var errno syscall.Errno
	var network net.Error
	var failed unreachableError
	if errors.As(err, &failed) {
		return failed.Error()
	}
	var at string
	if host, _, found := strings.Cut(err.Error(), ": "); found {
		if _, parseErr := netip.ParseAddrPort(host); parseErr == nil {
			at = host + ": "
		}
	}
	switch {
	case errors.As(err, &refused) && connect.IsWireError(err):
		return oneLine(refused.Message())
	case errors.As(err, &errno):
		return at + errno.Error()
	case errors.As(err, &network) && network.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return at + "no answer in time"
	}
	return oneLine(err.Error())
}

// oneLine keeps what came from elsewhere from spoiling a line, a log or a file.
func oneLine(s string) string {
	const most = 400
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
