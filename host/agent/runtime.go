package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"mesh/host/apply"
	"mesh/host/link"
)

// Files in the runtime folder, for those who look. Nothing is decided by them;
// they are gone after a reboot, as is what they speak of.
const (
	linkName    = "link.json"
	passName    = "pass.json"
	outcomeName = "outcome.json" // a declaration.Outcome: of the last pass that finished
)

// Process names one run of a program: a number alone is given again.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // since boot, in ticks
}

// FindProcess reads proc_pid_stat(5) below fsys, which is rooted at "/". The
// error matches fs.ErrNotExist when there is no such process, or it has ended
// and nobody has asked for its status yet.
func FindProcess(fsys fs.FS, pid int) (Process, error) {
	b, err := fs.ReadFile(fsys, fmt.Sprintf("proc/%d/stat", pid))
	if err != nil {
		return Process{}, err
	}
	text := string(b)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:]) // from field 3 on
	if len(fields) < 20 {
		return Process{}, fmt.Errorf("read /proc/%d/stat: it has %d fields", pid, len(fields)+2)
	}
	if state := fields[0]; state == "Z" || state == "X" {
		return Process{}, &fs.PathError{Op: "find process", Path: fmt.Sprintf("/proc/%d", pid), Err: fs.ErrNotExist}
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return Process{}, fmt.Errorf("read /proc/%d/stat: %v", pid, err)
	}
	return Process{PID: pid, Start: start}, nil
}

// LinkState is what became of the link.
type LinkState struct {
	Process Process       `json:"process"`
	Up      bool          `json:"up"`
	Since   time.Time     `json:"since"`
	Address string        `json:"address,omitempty"` // of the plane, while up
	Error   string        `json:"error,omitempty"`   // why not, while down
	Refused *link.Refused `json:"refused,omitempty"` // what the plane offers and is not followed
}

// PassState is the pass that is going on, or the last one. What a pass came to may be
// large, changes seldom, and is published apart, before it is said that it finished.
type PassState struct {
	Process  Process         `json:"process"`
	Started  time.Time       `json:"started"`
	Finished time.Time       `json:"finished,omitzero"` // zero: it goes on, if the process lives
	Activity *apply.Activity `json:"activity,omitempty"`
	Error    string          `json:"error,omitempty"` // of the pass as a whole
}

// publish writes a runtime file. That nobody can look is no reason to stop.
// room is about how many bytes it takes; 0 means few.
func publish(folder Folder, log *slog.Logger, name string, v any, room int) {
	var text bytes.Buffer
	text.Grow(room)
	err := json.MarshalWrite(&text, v, json.Deterministic(true))
	if err == nil {
		text.WriteByte('\n')
		err = folder.Replace(name, text.Bytes())
	}
	if err != nil {
		log.Warn("status cannot be published", "err", err)
	}
}

// load reads a runtime file; nil when there is none. One that makes no sense is
// none: a later one replaces it.
func load[T any](folder Folder, name string) (*T, error) {
	b, err := folder.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	v := new(T)
	if json.Unmarshal(b, v) != nil {
		return nil, nil
	}
	return v, nil
}

// board publishes the state of the link.
type board struct {
	folder  Folder
	log     *slog.Logger
	process Process
	now     func() time.Time

	mu    sync.Mutex
	state LinkState
}

func (b *board) linkUp(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log.Info("the link to the plane is up", "address", address)
	b.publishLocked(LinkState{Up: true, Since: b.now().UTC(), Address: address, Refused: b.state.Refused})
}

// begin says that there is no link yet.
func (b *board) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.publishLocked(LinkState{Since: b.now().UTC(), Error: "mesh-host has just started"})
}

// linkDown keeps since when the link is down while only the reason changes.
func (b *board) linkDown(reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state.Error != reason {
		b.log.Warn("there is no link to the plane", "err", reason)
	}
	b.downLocked(reason)
}

func (b *board) refused(r link.Refused) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := b.state
	next.Refused = &r
	b.publishLocked(next)
}

// follows says that what the plane offers is held, or taken.
func (b *board) follows() {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := b.state
	next.Refused = nil
	b.publishLocked(next)
}

// stopped is written when the agent ends; that is no trouble to warn of.
func (b *board) stopped() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.downLocked("mesh-host was stopped")
}

func (b *board) downLocked(reason string) {
	next := b.state
	if next.Up {
		next = LinkState{Since: b.now().UTC(), Refused: b.state.Refused}
	}
	next.Error = reason
	b.publishLocked(next)
}

func (b *board) publishLocked(next LinkState) {
	next.Process = b.process
	if next == b.state {
		return
	}
	b.state = next
	publish(b.folder, b.log, linkName, next, 0)
}
