package companion

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"
)

// ErrAbsent means that nobody answers at a control socket. Match with errors.Is.
var ErrAbsent = errors.New("it does not run")

// MaxSocket is what sockaddr_un holds, less the final NUL: unix(7).
const MaxSocket = 107

// Claim listens at a control socket, which only root may enter. A socket that
// nobody answers at is what a killed process left, and is replaced; where
// somebody answers, that is an error, which calls them what.
func Claim(path, what string) (net.Listener, error) {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
		return nil, fmt.Errorf("open control socket: %s already answers at %s; end it first", what, path)
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

// Client asks a companion at its control socket. It holds no connection between
// two questions. Safe for concurrent use.
type Client struct {
	socket, what string
	http         *http.Client
}

// NewClient makes a client of what answers at a socket; what names it in errors.
func NewClient(socket, what string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return &Client{socket: socket, what: what, http: &http.Client{
		Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
	}}
}

// AnswerLimit bounds what a process answers, in bytes.
const AnswerLimit = 16 << 20

// Ask sends one request and gives the body of its answer. What is answered with
// another status than 200 is an error with the answer's text. ErrAbsent.
func (c *Client) Ask(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://companion"+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("ask %s at %s: %v", c.what, c.socket, err)
	}
	answer, err := c.http.Do(r)
	if absent(err) {
		return nil, fmt.Errorf("ask %s at %s: %w", c.what, c.socket, ErrAbsent)
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s at %s: %w", c.what, c.socket, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, AnswerLimit))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, strings.TrimSpace(string(text)))
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s at %s: %v", c.what, c.socket, err)
	}
	return text, nil
}

// absent tells whether an error is that of a socket without a process, or of a
// process that has ended before it answered.
func absent(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.EOF)
}
