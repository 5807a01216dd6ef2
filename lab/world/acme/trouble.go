package acme

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"mesh/lab/fault"
)

// Trouble is what is wrong with an issuer. The zero value is nothing.
type Trouble struct {
	Delay     time.Duration // of every answer
	Status    int           // every request is answered with it; zero: not
	Cut       bool          // every connection is cut instead of answered
	RetryIn   time.Duration // every POST is answered 429, to come again then; zero: not
	BadNonces fault.Share   // of good nonces that are refused
	Expired   bool          // chains are handed out under authorities whose time is over
}

// front stands before the issuer and makes its trouble.
type front struct {
	issuer  http.Handler
	expired []byte // what follows a leaf in a chain, PEM
	trouble atomic.Pointer[Trouble]
}

// Where Pebble gives nonces and certificates.
const (
	noncePath       = "/nonce-plz"
	certificatePath = "/certZ/"
)

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t := f.trouble.Load()
	if t.Delay > 0 {
		wait := time.NewTimer(t.Delay)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-r.Context().Done():
			return
		}
	}
	post := r.Method == http.MethodPost
	switch {
	case t.Cut:
		panic(http.ErrAbortHandler) // the server's word for cutting a connection
	case t.Status != 0:
		http.Error(w, http.StatusText(t.Status), t.Status)
	case t.RetryIn > 0 && post:
		w.Header().Set("Retry-After", strconv.Itoa(int(t.RetryIn.Seconds())))
		f.refuse(w, http.StatusTooManyRequests, "rateLimited", "too many requests; this is a fault of the lab")
	case post && fault.Share(rand.Int64N(int64(fault.Whole))) < t.BadNonces:
		f.refuse(w, http.StatusBadRequest, "badNonce", "the nonce is refused; this is a fault of the lab")
	case t.Expired && strings.HasPrefix(r.URL.Path, certificatePath):
		f.outdated(w, r)
	default:
		f.issuer.ServeHTTP(w, r)
	}
}

// refuse answers with a problem document and a fresh nonce: RFC 8555, sections
// 6.5 to 6.7.
func (f *front) refuse(w http.ResponseWriter, status int, kind, detail string) {
	asked := newAnswer()
	if r, err := http.NewRequest(http.MethodHead, noncePath, nil); err == nil {
		r.Header.Set("User-Agent", "lab") // Pebble answers nobody without: RFC 8555, section 6.1
		f.issuer.ServeHTTP(asked, r)
	}
	if nonce := asked.Header().Get("Replay-Nonce"); nonce != "" {
		w.Header().Set("Replay-Nonce", nonce)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{
		"type": "urn:ietf:params:acme:error:" + kind, "detail": detail, "status": status,
	})
}

// outdated passes a request on, and puts another chain behind the leaf of the answer.
func (f *front) outdated(w http.ResponseWriter, r *http.Request) {
	got := newAnswer()
	f.issuer.ServeHTTP(got, r)
	body := got.body.Bytes()
	if leaf, _ := pem.Decode(body); got.status == http.StatusOK && leaf != nil {
		body = append(pem.EncodeToMemory(leaf), f.expired...)
	}
	for key, values := range got.header {
		if key != "Content-Length" {
			w.Header()[key] = values
		}
	}
	w.WriteHeader(got.status)
	w.Write(body)
}

// answer keeps what a handler answers.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func newAnswer() *answer { return &answer{header: http.Header{}, status: http.StatusOK} }

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }
