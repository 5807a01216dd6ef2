package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// How often the running steps are drawn anew on a terminal, and how long a step
// runs elsewhere before a line says that it does.
const (
	redrawEvery = 200 * time.Millisecond
	longStep    = time.Second
)

// Progress narrates work. Elsewhere than on a terminal it writes plain lines:
// one when a step has run for a second, one when it ends, so that a log shows
// what is going on. A terminal shows below these lines the running steps, each
// with a clock that ticks. Safe for concurrent use; several steps may run at
// once. Nothing else may write to a terminal while a step runs.
type Progress struct {
	begun time.Time
	size  func() (width, height int) // of the terminal; nil: there is none
	ok    string                     // what stands before a step that is done
	bad   string                     // and before one that failed

	mu      sync.Mutex
	w       io.Writer
	running []*step // in the order they began
	drawn   int     // lines of running steps on the terminal
}

type step struct {
	what  string
	begun time.Time
	quit  chan struct{}
	ended sync.WaitGroup // the goroutine that narrates while it runs
}

// NewProgress narrates to w, and as on a terminal if w is one, unless TERM is
// dumb; with colours unless NO_COLOR is set (https://no-color.org).
func NewProgress(w io.Writer) *Progress {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return newProgress(w, nil, false)
	}
	size := func() (int, int) {
		width, height, err := term.GetSize(int(f.Fd()))
		if err != nil || width < 1 || height < 1 {
			return 80, 24
		}
		return width, height
	}
	return newProgress(w, size, os.Getenv("NO_COLOR") == "")
}

func newProgress(w io.Writer, size func() (width, height int), colour bool) *Progress {
	p := &Progress{w: w, begun: time.Now(), size: size, ok: "ok    ", bad: "FAILED"}
	if colour && size != nil {
		p.ok, p.bad = "\x1b[32m"+p.ok+"\x1b[0m", "\x1b[1;31m"+p.bad+"\x1b[0m"
	}
	return p
}

// Step says that something begins, and returns the function that says how it
// ended; nil means well. It is called once, and the step is over when it returns.
func (p *Progress) Step(what string) (done func(err error)) {
	s := &step{what: what, begun: time.Now(), quit: make(chan struct{})}
	p.mu.Lock()
	p.running = append(p.running, s)
	p.redrawLocked()
	p.mu.Unlock()
	s.ended.Go(func() {
		if p.size != nil {
			p.tick(s)
		} else {
			p.announce(s)
		}
	})
	return func(err error) {
		close(s.quit)
		s.ended.Wait()
		mark := p.ok
		if err != nil {
			mark = p.bad
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.running = slices.DeleteFunc(p.running, func(other *step) bool { return other == s })
		p.lineLocked("%s  %s (%s)", mark, what, seconds(time.Since(s.begun)))
	}
}

// Note writes one line.
func (p *Progress) Note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lineLocked("%s", fmt.Sprintf(format, args...))
}

// announce says once that s runs, if it does so for long.
func (p *Progress) announce(s *step) {
	wait := time.NewTimer(longStep)
	defer wait.Stop()
	select {
	case <-s.quit:
	case <-wait.C:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.lineLocked("%-6s  %s", "...", s.what)
	}
}

// tick draws the running steps anew for as long as s is one of them.
func (p *Progress) tick(s *step) {
	ticker := time.NewTicker(redrawEvery)
	defer ticker.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-ticker.C:
			p.mu.Lock()
			p.redrawLocked()
			p.mu.Unlock()
		}
	}
}

// lineLocked writes a line that stays, above the running steps.
func (p *Progress) lineLocked(format string, args ...any) {
	line := fmt.Sprintf("%7s  %s\n", seconds(time.Since(p.begun)), fmt.Sprintf(format, args...))
	if p.size == nil {
		io.WriteString(p.w, line)
		return
	}
	io.WriteString(p.w, p.eraseLocked()+line)
	p.redrawLocked()
}

// redrawLocked shows the running steps, as many as fit, in place of those shown.
func (p *Progress) redrawLocked() {
	if p.size == nil {
		return
	}
	width, height := p.size()
	var lines []string
	for _, s := range p.running {
		line := fmt.Sprintf("%7s  …       %s (%s)", seconds(time.Since(p.begun)), s.what, seconds(time.Since(s.begun)))
		lines = append(lines, cut(line, width-1)) // a full line would wrap
	}
	if room := max(1, height-1); len(lines) > room {
		lines = lines[:room]
	}
	frame := p.eraseLocked() + strings.Join(lines, "\n")
	p.drawn = len(lines)
	io.WriteString(p.w, frame)
}

// eraseLocked is what takes the running steps off the terminal: to the first of
// their lines, and everything below it gone (ECMA-48: CUU and ED).
func (p *Progress) eraseLocked() string {
	up := ""
	if p.drawn > 1 {
		up = fmt.Sprintf("\x1b[%dA", p.drawn-1)
	}
	p.drawn = 0
	return "\r" + up + "\x1b[J"
}

// cut keeps the first of a line's characters.
func cut(line string, width int) string {
	if characters := []rune(line); len(characters) > max(0, width) {
		return string(characters[:max(0, width)])
	}
	return line
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }
