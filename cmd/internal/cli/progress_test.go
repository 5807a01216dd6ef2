package cli_test

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"mesh/cmd/internal/cli"
)

// TestPlainProgress: a log shows what is going on, with no more lines than that.
func TestPlainProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p := cli.NewProgress(&log)

		done := p.Step("short")
		time.Sleep(900 * time.Millisecond)
		done(nil)

		image := p.Step("build image")
		time.Sleep(500 * time.Millisecond)
		disk := p.Step("make disk")
		time.Sleep(time.Second)
		p.Note("machines run by %s", "tcg")
		time.Sleep(time.Second)
		disk(errors.New("no space"))
		image(nil)

		want := `   0.9s  ok      short (0.9s)
   1.9s  ...     build image
   2.4s  machines run by tcg
   2.4s  ...     make disk
   3.4s  FAILED  make disk (2.0s)
   3.4s  ok      build image (2.5s)
`
		if diff := cmp.Diff(sorted(want), sorted(log.String())); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestEndIsLast: whenever a step ends, nothing is said of it afterwards.
func TestEndIsLast(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			p := cli.NewProgress(&log)
			done := p.Step("boot")
			time.Sleep(time.Second) // the instant at which it is announced
			done(nil)
			synctest.Wait()
			if !strings.HasSuffix(log.String(), "ok      boot (1.0s)\n") {
				t.Fatalf("%q", log.String())
			}
		})
	}
}

// sorted is for lines of one instant, whose order is nobody's promise.
func sorted(log string) []string {
	lines := strings.SplitAfter(log, "\n")
	for i := range lines {
		for j := i; j > 0 && lines[j] < lines[j-1] && lines[j] != ""; j-- {
			lines[j], lines[j-1] = lines[j-1], lines[j]
		}
	}
	return lines
}

// TestTerminalProgress looks at the screen at instants of two steps.
func TestTerminalProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &screen{}
		p := cli.NewTerminal(s, 40, 10, false)
		look := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(want, s.text()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}

		one := p.Step("boot one")
		look("   0.0s  …       boot one (0.0s)")
		time.Sleep(1050 * time.Millisecond) // it ticks by itself
		look("   1.0s  …       boot one (1.0s)")

		two := p.Step("boot two, whose name is too long for it")
		look("   1.1s  …       boot one (1.1s)",
			"   1.1s  …       boot two, whose name i")
		p.Note("machines run by tcg")
		look("   1.1s  machines run by tcg",
			"   1.1s  …       boot one (1.1s)",
			"   1.1s  …       boot two, whose name i")
		time.Sleep(time.Second)
		one(errors.New("panic"))
		look("   1.1s  machines run by tcg",
			"   2.0s  FAILED  boot one (2.0s)",
			"   2.0s  …       boot two, whose name i")
		two(nil)
		look("   1.1s  machines run by tcg",
			"   2.0s  FAILED  boot one (2.0s)",
			"   2.0s  ok      boot two, whose name is too long for it (1.0s)")
		if s.column != 0 {
			t.Errorf("the cursor is left in column %d", s.column)
		}
	})
}

// TestMoreStepsThanLines: what does not fit is left out, and nothing is left over.
func TestMoreStepsThanLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &screen{}
		p := cli.NewTerminal(s, 80, 4, false)
		var ends []func(error)
		for i := range 6 {
			ends = append(ends, p.Step("step "+strconv.Itoa(i)))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := len(s.text()); got != 3 {
			t.Errorf("%d lines on a terminal of 4: %q", got, s.text())
		}
		for _, end := range ends {
			end(nil)
		}
		for i, line := range s.text() {
			if want := fmt.Sprintf("   1.0s  ok      step %d (1.0s)", i); line != want {
				t.Errorf("got %q, want %q", line, want)
			}
		}
	})
}

func TestColour(t *testing.T) {
	for _, colour := range []bool{true, false} {
		var out bytes.Buffer
		p := cli.NewTerminal(&out, 80, 24, colour)
		p.Step("a")(nil)
		p.Step("b")(errors.New("x"))
		if got := strings.Contains(out.String(), "\x1b[32mok"); got != colour {
			t.Errorf("colour %v: %q", colour, out.String())
		}
		for _, word := range []string{"ok", "FAILED"} { // never the only carrier of meaning
			if !strings.Contains(out.String(), word) {
				t.Errorf("colour %v: no %s in %q", colour, word, out.String())
			}
		}
	}
}

// TestProgressOwnsItsGoroutines: many steps at once, and none leaves anything.
func TestProgressOwnsItsGoroutines(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, p := range []*cli.Progress{cli.NewProgress(&bytes.Buffer{}), cli.NewTerminal(&bytes.Buffer{}, 80, 24, true)} {
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				done := p.Step(strconv.Itoa(i))
				p.Note("%d runs", i)
				done(nil)
			})
		}
		all.Wait()
	}
}

// screen is a terminal that knows the few commands Progress uses, and refuses
// others. It does not scroll, and lines do not wrap.
type screen struct {
	mu          sync.Mutex
	lines       [][]rune
	row, column int
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := []rune(string(b))
	for len(rest) > 0 {
		for len(s.lines) <= s.row {
			s.lines = append(s.lines, nil)
		}
		switch {
		case rest[0] == '\n':
			s.row, s.column = s.row+1, 0
		case rest[0] == '\r':
			s.column = 0
		case strings.HasPrefix(string(rest), "\x1b[J"):
			s.lines = append(s.lines[:s.row], s.lines[s.row][:s.column])
			rest = rest[2:]
		case rest[0] == '\x1b':
			digits, _, found := strings.Cut(string(rest[2:]), "A")
			up, err := strconv.Atoi(digits)
			if !found || err != nil || up > s.row {
				panic(fmt.Sprintf("a command this terminal does not know: %q", rest))
			}
			s.row -= up
			rest = rest[2+len(digits):]
		default:
			s.lines[s.row] = append(s.lines[s.row][:s.column], rest[0])
			s.column++
		}
		rest = rest[1:]
	}
	return len(b), nil
}

// text is what is on the screen, without empty lines at the end.
func (s *screen) text() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var text []string
	for _, line := range s.lines {
		text = append(text, string(line))
	}
	for len(text) > 0 && text[len(text)-1] == "" {
		text = text[:len(text)-1]
	}
	return text
}
