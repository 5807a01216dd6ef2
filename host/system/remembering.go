package system

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// remembering answers a command as it was answered before, as long as what the
// answer depends on is as it was then.
type remembering struct {
	runner Runner
	state  func() string // tells one state from every other; empty: not known

	mu       sync.Mutex
	as       string // the state in which it was answered
	answered map[string]response
}

type response struct {
	output string
	err    error
}

// Run implements Runner.
func (r *remembering) Run(ctx context.Context, argv ...string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := r.state() // before the answer: what changes meanwhile makes it be asked again
	if state == "" || state != r.as {
		r.as, r.answered = state, map[string]response{}
	}
	command := strings.Join(argv, "\x00")
	if known, ok := r.answered[command]; ok {
		return known.output, known.err
	}
	output, err := r.runner.Run(ctx, argv...)
	var exit *exec.ExitError
	if state != "" && (err == nil || errors.As(err, &exit) && exit.Exited() && ctx.Err() == nil) { // one that was killed has not answered
		r.answered[command] = response{output, err}
	}
	return output, err
}

// packageFiles are what dpkg and apt answer from: what is installed, what dpkg
// has not merged into that yet, the lists of what is offered, and the sources and
// preferences by which they are read.
var packageFiles = []string{"/var/lib/dpkg/status", "/var/lib/dpkg/updates", "/var/lib/apt/lists", "/etc/apt"}

// stateOf tells one state of everything below roots from every other, by the
// marks of files and directories; empty when it cannot.
func stateOf(roots ...string) string {
	var b strings.Builder
	for _, root := range roots {
		if real, err := filepath.EvalSymlinks(root); err == nil {
			root = real
		}
		err := filepath.WalkDir(root, func(p string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // gone meanwhile, which its directory tells, or never there
			}
			if err != nil {
				return err
			}
			var st unix.Stat_t // of what a link leads to
			if err := unix.Stat(p, &st); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return &os.PathError{Op: "stat", Path: p, Err: err}
			}
			if entry.Type() == fs.ModeSymlink && st.Mode&unix.S_IFMT == unix.S_IFDIR {
				return fmt.Errorf("%s leads elsewhere, where nobody looks", p)
			}
			fmt.Fprintf(&b, "%s %d %d %d %d %d\n", p, st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano())
			return nil
		})
		if err != nil {
			return ""
		}
	}
	return b.String()
}
