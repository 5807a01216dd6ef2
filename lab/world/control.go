package world

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"mesh/lab/companion"
)

// ErrAbsent means that no world answers at a control socket. Match with errors.Is.
var ErrAbsent = companion.ErrAbsent

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
			if w.issuer != nil {
				out.Write(w.issuer.Trusted())
			}
		default:
			http.Error(out, "the issuer is not made yet", http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /state", func(out http.ResponseWriter, r *http.Request) {
		out.Header().Set("Content-Type", "application/json")
		out.Write(w.State().text())
	})
	mux.HandleFunc("GET /whole-state", func(out http.ResponseWriter, r *http.Request) {
		s, err := w.Whole(r.Context())
		if err != nil {
			http.Error(out, err.Error(), http.StatusInternalServerError)
			return
		}
		out.Header().Set("Content-Type", "application/json")
		out.Write(s.text())
	})
	mux.HandleFunc("PUT /state", w.putState)
	return mux
}

// Client asks a world at its control socket. It holds no connection between
// two questions. Safe for concurrent use.
type Client struct{ ask *companion.Client }

// NewClient makes a client of the world whose Config.Control is socket.
func NewClient(socket string) *Client { return &Client{companion.NewClient(socket, "world")} }

// Status asks how the world is. ErrAbsent.
func (c *Client) Status(ctx context.Context) (Status, error) {
	body, err := c.ask.Ask(ctx, http.MethodGet, "/status", nil)
	if err != nil {
		return Status{}, err
	}
	var s Status
	if err := json.Unmarshal(body, &s); err != nil {
		return Status{}, fmt.Errorf("read the status of the world: %v", err)
	}
	return s, nil
}

// RootCertificates asks what machines must trust, in PEM: first the root of the
// HTTPS of the world's own servers, then the root of the public issuer, each
// under a comment line that begins with "# ". Empty where the world has no
// issuer. ErrAbsent.
func (c *Client) RootCertificates(ctx context.Context) ([]byte, error) {
	return c.ask.Ask(ctx, http.MethodGet, "/root-certificate", nil)
}

// State asks for everything that can be changed of a running world, to be given
// to SetState later, of this world or of another one of the same scenario.
// ErrAbsent.
func (c *Client) State(ctx context.Context) (json.RawMessage, error) {
	return c.ask.Ask(ctx, http.MethodGet, "/state", nil)
}

// Whole is State with what routers remember of what passes them, which is right
// as long as nothing does: for a snapshot. ErrAbsent.
func (c *Client) Whole(ctx context.Context) (json.RawMessage, error) {
	return c.ask.Ask(ctx, http.MethodGet, "/whole-state", nil)
}

// SetState makes a world's whole state be so. One that it refuses changes
// nothing; the error says why. ErrAbsent.
func (c *Client) SetState(ctx context.Context, state json.RawMessage) error {
	_, err := c.ask.Ask(ctx, http.MethodPut, "/state", state)
	return err
}
