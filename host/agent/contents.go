package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"mesh/host/declaration"
	"mesh/host/link"
	"mesh/host/store"
)

// Contents keeps what declarations name by digest; *system.Contents is one.
type Contents interface {
	HasContent(digest string) bool
	KeepContent(data []byte) (digest string, err error)
	RoomFor(bytes int64) error
}

// Delays between attempts to fetch one content.
const (
	refetchFirst = 5 * time.Second
	refetchMost  = 10 * time.Minute
)

// fetching is what is known of one content that is missing.
type fetching struct {
	blob  declaration.Blob
	retry backoff
	next  time.Time // not before
}

// missing lists the content that what is held needs and this machine has not.
func missing(contents Contents, held *store.Accepted) []declaration.Blob {
	if contents == nil || held == nil {
		return nil
	}
	desired, err := Desired(*held)
	if err != nil {
		return nil
	}
	var all []declaration.Blob
	for _, b := range declaration.Blobs(desired.Resources) {
		if !contents.HasContent(b.Digest) {
			all = append(all, b)
		}
	}
	return all
}

// want replaces what is to be fetched, and keeps how often it failed.
func (u *uplink) want(blobs []declaration.Blob) {
	before := u.wanted
	u.wanted = map[string]*fetching{}
	for _, b := range blobs {
		f := before[b.Digest]
		if f == nil {
			f = &fetching{blob: b, retry: backoff{first: refetchFirst, most: refetchMost, jitter: u.agent.cfg.Jitter}}
		}
		u.wanted[b.Digest] = f
	}
}

// fetchContents fetches what is missing and due. Only the end of the connection
// is an error: what cannot be had is tried again, ever more rarely.
func (s *session) fetchContents(ctx context.Context) error {
	came := false
	for digest, f := range s.wanted {
		if s.agent.cfg.Now().Before(f.next) {
			continue
		}
		err := s.fetchContent(ctx, f.blob)
		if err == nil {
			delete(s.wanted, digest)
			came = true
			continue
		}
		f.next = s.agent.cfg.Now().Add(f.retry.next())
		s.agent.cfg.Log.Warn("content of the declaration cannot be fetched; it is tried again", "digest", digest, "err", plain(err))
		if lost := (*lostError)(nil); errors.As(err, &lost) {
			return err
		}
	}
	if came {
		put(s.agent.arrived, struct{}{})
	}
	return nil
}

// lostError says that the connection ended.
type lostError struct{ error }

func (e *lostError) Unwrap() error { return e.error }

// fetchContent gets one content part by part, and keeps it if it is what was
// declared. No more is read than was announced.
func (s *session) fetchContent(ctx context.Context, b declaration.Blob) error {
	if err := s.agent.cfg.Contents.RoomFor(b.Bytes); err != nil {
		return err
	}
	data := make([]byte, 0, b.Bytes)
	for int64(len(data)) < b.Bytes {
		part, err := call[link.BlobRequest, link.BlobResponse](ctx, s.conn, link.ProcedureBlob, &link.BlobRequest{Digest: b.Digest, Offset: int64(len(data))})
		switch {
		case err != nil && !connect.IsWireError(err):
			return &lostError{err}
		case err != nil:
			return err
		case len(part.Data) == 0 || int64(len(data)+len(part.Data)) > b.Bytes:
			return fmt.Errorf("the plane gave another number of bytes than the %d declared", b.Bytes)
		}
		data = append(data, part.Data...)
	}
	if got := declaration.Digest(data); got != b.Digest {
		return fmt.Errorf("what the plane gave has the digest %s", got)
	}
	_, err := s.agent.cfg.Contents.KeepContent(data)
	return err
}
