package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"
)

// ErrAbsent means that no world answers at a control socket. Match with errors.Is.
var ErrAbsent = errors.New("world does not run")

// claim listens at the control socket. A socket that nobody answers at is what
// a killed world left, and is replaced.
func claim(path string) (net.Listener, error) {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
		return nil, fmt.Errorf("open control socket: a world already answers at %s; end it first", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open control socket: %v", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("open control socket: %v", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("open control socket: %v", err), l.Close())
	}
	return l, nil
}

// control is what the world answers to the lab.
func (w *World) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(out http.ResponseWriter, r *http.Request) {
		out.Header().Set("Content-Type", "application/json")
		json.NewEncoder(out).Encode(w.Status())
	})
	mux.HandleFunc("GET /root-certificate", func(out http.ResponseWriter, r *http.Request) {
		select {
		case <-w.ready:
			out.Header().Set("Content-Type", "application/x-pem-file")
			out.Write(w.roots)
		default:
			http.Error(out, "the issuer is not made yet", http.StatusServiceUnavailable)
		}
	})
	return mux
}

// Client asks a world at its control socket. It holds no connection between
// two questions. Safe for concurrent use.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient makes a client of the world whose Config.Control is socket.
func NewClient(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return &Client{socket: socket, http: &http.Client{
		Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
	}}
}

// Status asks how the world is. ErrAbsent.
func (c *Client) Status(ctx context.Context) (Status, error) {
	body, err := c.get(ctx, "/status")
	if err != nil {
		return Status{}, err
	}
	var s Status
	if err := json.Unmarshal(body, &s); err != nil {
		return Status{}, fmt.Errorf("ask world at %s: %v", c.socket, err)
	}
	return s, nil
}

// RootCertificates asks what machines must trust, in PEM: first the root of the
// HTTPS of the world's own servers, then the root of the public issuer, each
// under a comment line that begins with "# ". Empty where the world has no
// issuer. ErrAbsent.
func (c *Client) RootCertificates(ctx context.Context) ([]byte, error) {
	return c.get(ctx, "/root-certificate")
}

func (c *Client) get(ctx context.Context, path string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://world"+path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask world at %s: %v", c.socket, err)
	}
	answer, err := c.http.Do(r)
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("ask world at %s: %w", c.socket, ErrAbsent)
	}
	if err != nil {
		return nil, fmt.Errorf("ask world at %s: %w", c.socket, err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, body)
	}
	if err != nil {
		return nil, fmt.Errorf("ask world at %s: %v", c.socket, err)
	}
	return body, nil
}
