package volatile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json"

	"mesh/lab/companion"
)

// ErrAbsent means that no server answers at a control socket. Match with errors.Is.
var ErrAbsent = companion.ErrAbsent

// cutAnswer is the answer to a power cut.
type cutAnswer struct {
	LostBytes int64 `json:"lost_bytes"`
}

// control is what the server answers to the lab.
func (s *Server) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(out http.ResponseWriter, _ *http.Request) {
		answer(out, s.Status(), nil)
	})
	mux.HandleFunc("PUT /disks/{name}/fault", func(out http.ResponseWriter, r *http.Request) {
		var f Fault
		err := read(r, &f)
		if err == nil {
			err = s.SetFault(r.PathValue("name"), f)
		}
		answer(out, struct{}{}, err)
	})
	mux.HandleFunc("POST /disks/{name}/cut", func(out http.ResponseWriter, r *http.Request) {
		var loss Loss
		err := read(r, &loss)
		var lost int64
		if err == nil {
			lost, err = s.Cut(r.Context(), r.PathValue("name"), loss)
		}
		answer(out, cutAnswer{lost}, err)
	})
	return mux
}

func read(r *http.Request, into any) error {
	return json.UnmarshalRead(io.LimitReader(r.Body, 64<<10), into, json.RejectUnknownMembers(true))
}

func answer(out http.ResponseWriter, value any, err error) {
	switch {
	case errors.Is(err, os.ErrNotExist):
		http.Error(out, err.Error(), http.StatusNotFound)
	case err != nil:
		http.Error(out, err.Error(), http.StatusBadRequest)
	default:
		out.Header().Set("Content-Type", "application/json")
		json.MarshalWrite(out, value)
	}
}

// Client asks a server at its control socket, and tells it what to do. Disks are
// named by the names of their files; directories before the name are left out.
// Safe for concurrent use.
type Client struct{ ask *companion.Client }

// NewClient makes a client of the server whose Config.Control is socket.
func NewClient(socket string) *Client {
	return &Client{companion.NewClient(socket, "server of disks")}
}

// Status asks how the disks are. ErrAbsent.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	return s, c.do(ctx, http.MethodGet, "/status", struct{}{}, &s)
}

// SetFault is Server.SetFault. ErrAbsent.
func (c *Client) SetFault(ctx context.Context, disk string, f Fault) error {
	return c.do(ctx, http.MethodPut, "/disks/"+base(disk)+"/fault", f, &struct{}{})
}

// Cut is Server.Cut. ErrAbsent.
func (c *Client) Cut(ctx context.Context, disk string, loss Loss) (lostBytes int64, err error) {
	var a cutAnswer
	err = c.do(ctx, http.MethodPost, "/disks/"+base(disk)+"/cut", loss, &a)
	return a.LostBytes, err
}

func (c *Client) do(ctx context.Context, method, path string, question, into any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	text, err := c.ask.Ask(ctx, method, path, body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read the answer of the server of disks: %v", err)
	}
	return nil
}

func base(disk string) string { return url.PathEscape(filepath.Base(disk)) }
