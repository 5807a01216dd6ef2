package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// Progress narrates long work: on a terminal the line of a running step is
// rewritten with its elapsed time, elsewhere each start and end is a plain
// line. Safe for concurrent use.
type Progress struct {
	mu    sync.Mutex
	w     io.Writer
	tty   bool
	begun time.Time
	now   func() time.Time
}

// NewProgress writes to w; it is a terminal only if w is one.
func NewProgress(w io.Writer) *Progress {
	f, ok := w.(*os.File)
	return &Progress{w: w, tty: ok && term.IsTerminal(int(f.Fd())), begun: time.Now(), now: time.Now}
}

// Step announces what begins and returns the function that ends it; a nil error
// means done.
func (p *Progress) Step(what string) (done func(err error)) {
	start := p.now()
	p.mu.Lock()
	if p.tty {
		fmt.Fprintf(p.w, "\r\x1b[K%6s  … %s", p.since(start), what)
	}
	p.mu.Unlock()
	return func(err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		mark := "ok"
		if err != nil {
			mark = "FAILED"
		}
		if p.tty {
			fmt.Fprint(p.w, "\r\x1b[K")
		}
		fmt.Fprintf(p.w, "%7s  %-6s  %s (%s)\n", p.since(p.begun), mark, what, p.since(start))
	}
}

// Note writes one line between steps.
func (p *Progress) Note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tty {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
	fmt.Fprintf(p.w, "%7s  %s\n", p.since(p.begun), fmt.Sprintf(format, args...))
}

func (p *Progress) since(t time.Time) string {
	return fmt.Sprintf("%.1fs", p.now().Sub(t).Seconds())
}
