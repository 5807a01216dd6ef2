package lifecycle

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// evidenceLimit bounds how much longer a raise that failed takes because of what
// is collected.
const evidenceLimit = 90 * time.Second

// Evidence keeps what may explain a failure.
type Evidence interface {
	// Keep collects what can be had of a scenario, without secrets and saying
	// why, and gives the directory that it is in.
	Keep(ctx context.Context, r Record, why string, secrets []string) (dir string, err error)
}

// evidence keeps what may explain a failure and gives the words that say where.
// That it cannot be kept is said in the failure, and is none of its own.
func (r *raise) evidence(ctx context.Context, f *Error) string {
	if r.cfg.Evidence == nil || f.Code != codeFailed {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, evidenceLimit)
	defer cancel()
	var secrets []string
	for _, value := range r.saved {
		secrets = append(secrets, strings.TrimSpace(string(value)))
	}
	r.mu.Lock()
	record := r.record
	r.mu.Unlock()
	done := r.cfg.Progress.Step("evidence of the failure")
	dir, err := r.cfg.Evidence.Keep(ctx, record, f.Error(), secrets)
	done(err)
	if err != nil {
		f.Why += "\n(evidence of it could not be kept: " + err.Error() + ")"
		return ""
	}
	return fmt.Sprintf("read %s/index.md, the evidence of it; ", dir)
}
