// Package verify finds out whether this machine can do what a scenario needs,
// by doing each thing, small, and undoing it. It trusts no version, no package
// list and no device file.
//
// It changes nothing that stays: links and namespaces it makes end with it even
// if it is killed, and a libvirt daemon that it starts is ended again. Machines,
// and what is in the temporary directory, a mount among it, carry the name of
// their process; of one that was killed Sweep and the next verification remove
// them. Only cmd/lab imports it.
package verify

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Verdict is what came of one check.
type Verdict string

// The verdicts.
const (
	OK       Verdict = "ok"
	Missing  Verdict = "missing"  // a scenario needs it
	Optional Verdict = "optional" // it is not there; what is lost is said
	// Unchecked is neither: nothing to check it with is there.
	Unchecked Verdict = "unchecked"
)

// Result is one check, done. Its JSON form is part of `lab verify --json`.
type Result struct {
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	Seen    string  `json:"seen"`             // one line: what was done, and what came of it
	Remedy  string  `json:"remedy,omitempty"` // one line, unless the verdict is ok
	Took    float64 `json:"took_seconds"`
}

// Config is what a verification looks at.
type Config struct {
	Store   string                 // the lab's store, which need not exist
	Layer   func(id string) string // the file of a layer of the store
	Runtime string                 // the runtime directory that all labs share
	UID     int                    // of the process
	Keeper  string                 // the program that keeps a daemon, as of libvirt.NewKeptDaemon; empty: none
}

// timeLimit bounds each check.
const timeLimit = 45 * time.Second

// check is one thing to do.
type check struct {
	name     string
	optional bool
	do       func(ctx context.Context) (seen string, err error)
	remedy   string
}

// unchecked is why a check could not begin.
type unchecked struct{ error }

func (u unchecked) Unwrap() error { return u.error }

// errNoGuest is why a check of a machine fails where none can run.
var errNoGuest = errors.New("no guest runs, see accelerator")

// guestRemedy is what lets a check begin that needs a guest.
const guestRemedy = "build the image and raise once, or lab image warm; then lab verify again"

// Run does every check in turn and reports each as it is done; a nil report is
// allowed. Without root that is the only one. The error is ctx's, or that what
// was made could not be undone; it may be an earlier verification's.
func Run(ctx context.Context, cfg Config, report func(Result)) ([]Result, error) {
	if report == nil {
		report = func(Result) {}
	}
	v := newLibvirt(cfg)
	checks := []check{root(cfg), memory, storeSpace(cfg), diskImages, fileSystems, bootstrap}
	checks = append(checks, v.checks()...)
	checks = append(checks, v.memoryChecks()...)
	checks = append(checks, v.guestChecks()...)
	checks = append(checks, tap, bridge, nat, impairments, powerCut)
	var results []Result
	for _, c := range checks {
		r := c.run(ctx)
		if ctx.Err() != nil {
			break
		}
		results = append(results, r)
		report(r)
		if cfg.UID != 0 {
			break
		}
	}
	var err error
	if undo := context.WithoutCancel(ctx); cfg.UID == 0 {
		err = errors.Join(v.sweep(undo), v.release(undo))
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return results, err
}

func (c check) run(ctx context.Context) Result {
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	begun := time.Now()
	seen, err := c.do(ctx)
	r := Result{Check: c.name, Verdict: OK, Seen: seen, Took: time.Since(begun).Seconds()}
	if err != nil {
		r.Verdict, r.Seen, r.Remedy = Missing, oneLine(err.Error()), c.remedy
		if c.optional {
			r.Verdict = Optional
		}
		if errors.As(err, new(unchecked)) {
			r.Verdict, r.Seen, r.Remedy = Unchecked, "not checked: "+r.Seen, guestRemedy
		}
		if errors.Is(err, errNoGuest) {
			r.Remedy = "what is to be done for accelerator"
		}
	}
	return r
}

// Able tells whether nothing that a scenario needs is missing.
func Able(results []Result) bool {
	for _, r := range results {
		if r.Verdict == Missing {
			return false
		}
	}
	return len(results) > 0
}

func root(cfg Config) check {
	return check{
		name: "root",
		do: func(context.Context) (string, error) {
			if cfg.UID != 0 {
				return "", fmt.Errorf("running as user %d: machines, namespaces and images need root, so nothing else was tried", cfg.UID)
			}
			return "running as root", nil
		},
		remedy: "sudo lab verify",
	}
}
