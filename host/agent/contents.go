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
	RoomFor(bytes int64) error

	// A content comes in parts, which outlive the link and this process: how much
	// has come, one more part behind that, and the end, at which it is checked.
	FetchedContent(digest string) (bytes int64, err error)
	AddToContent(digest string, offset int64, data []byte) error
	CompleteContent(digest string) error
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

// due is the first content by digest that is to be fetched now; nil for none.
func (u *uplink) due() (first *fetching) {
	now := u.agent.cfg.Now()
	for _, f := range u.wanted {
		if !now.Before(f.next) && (first == nil || f.blob.Digest < first.blob.Digest) {
			first = f
		}
	}
	return first
}

// fetchContents fetches one part of what is missing and due, so that between two
// parts there is room for everything else. Only the end of the connection is an
// error: what cannot be had is tried again, ever more rarely.
func (s *session) fetchContents(ctx context.Context) error {
	f := s.due()
	if f == nil {
		return nil
	}
	whole, err := s.fetchPart(ctx, f.blob)
	if err != nil {
		f.next = s.agent.cfg.Now().Add(f.retry.next())
		s.agent.cfg.Log.Warn("content of the declaration cannot be fetched; it is tried again", "digest", f.blob.Digest, "err", plain(err))
		if lost := (*lostError)(nil); errors.As(err, &lost) {
			return err
		}
		return nil
	}
	if whole {
		delete(s.wanted, f.blob.Digest)
		put(s.agent.arrived, struct{}{})
	}
	return nil
}

// lostError says that the connection ended.
type lostError struct{ error }

func (e *lostError) Unwrap() error { return e.error }

// fetchPart gets the next part of one content, behind what has come already, and
// tells whether it was the last: then the whole is kept if it is what was declared.
// No more is read than was announced, and nothing that does not fit.
func (s *session) fetchPart(ctx context.Context, b declaration.Blob) (whole bool, err error) {
	contents := s.agent.cfg.Contents
	came, err := contents.FetchedContent(b.Digest)
	if err != nil {
		return false, err
	}
	if came > b.Bytes {
		came = 0
	}
	if err := contents.RoomFor(b.Bytes - came); err != nil {
		return false, err
	}
	if came < b.Bytes {
		part, err := call[link.BlobRequest, link.BlobResponse](ctx, s.conn, link.ProcedureBlob, &link.BlobRequest{Digest: b.Digest, Offset: came})
		switch {
		case err != nil && !connect.IsWireError(err):
			return false, &lostError{err}
		case err != nil:
			return false, err
		case len(part.Data) == 0 || came+int64(len(part.Data)) > b.Bytes:
			return false, fmt.Errorf("the plane gave another number of bytes than the %d declared", b.Bytes)
		}
		s.silence.Reset(link.LinkTimeout)
		if err := contents.AddToContent(b.Digest, came, part.Data); err != nil {
			return false, err
		}
		came += int64(len(part.Data))
	}
	if came < b.Bytes {
		return false, nil
	}
	return true, contents.CompleteContent(b.Digest)
}
