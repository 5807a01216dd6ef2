package guest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"mesh/lab/guest"
	"mesh/lab/machine"
)

// agent is a strict QEMU guest agent over a file system in memory. It refuses
// what the real one does, and what was seen to hang the real one.
type agent struct {
	// run is asked for whatever command is not one of the few known here.
	run func(args []string, stdin []byte) process

	mu        sync.Mutex
	files     map[string]file
	handles   map[int64]*handle
	processes map[int]*process
	last      int
	killed    []int         // processes that were asked to end
	silent    int           // so many commands from now on are not answered
	short     bool          // writes take half of what they are given
	behind    time.Duration // what its clock is behind
	slow      time.Duration // what a question for the time takes
}

type file struct {
	content string
	mode    fs.FileMode
}

type handle struct {
	path string
	mode string
	at   int
}

// process is what a command comes to.
type process struct {
	polls    int // questions until it has ended
	code     int
	signal   int
	out, err string
}

// maxCommand is what the socket between libvirt and QEMU takes at once.
const maxCommand = 208 << 10

func newAgent() *agent {
	return &agent{files: map[string]file{}, handles: map[int64]*handle{}, processes: map[int]*process{}}
}

// String shows the file system.
func (a *agent) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(a.files)) {
		fmt.Fprintf(&b, "%s %04o %d bytes\n", name, a.files[name].mode, len(a.files[name].content))
	}
	if len(a.handles) > 0 {
		fmt.Fprintf(&b, "%d files are open\n", len(a.handles))
	}
	return b.String()
}

func (a *agent) answer(ctx context.Context, command string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.silent > 0 {
		a.silent--
		return "", fmt.Errorf("%w: not connected", machine.ErrAgent)
	}
	if len(command) > maxCommand {
		<-ctx.Done()
		return "", fmt.Errorf("%w: %w", ctx.Err(), machine.ErrAgent)
	}
	var c struct {
		Execute   string          `json:"execute"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if err := strictly([]byte(command), &c); err != nil {
		return "", err
	}
	result, err := a.execute(c.Execute, c.Arguments)
	if err != nil {
		return "", fmt.Errorf("internal error: unable to execute QEMU agent command '%s': %w", c.Execute, err)
	}
	text, err := json.Marshal(map[string]any{"return": result})
	return string(text), err
}

func strictly(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

func (a *agent) execute(name string, arguments json.RawMessage) (any, error) {
	var c struct {
		Path    string   `json:"path"`
		Mode    string   `json:"mode"`
		Handle  int64    `json:"handle"`
		Count   int      `json:"count"`
		Buf     []byte   `json:"buf-b64"`
		Args    []string `json:"arg"`
		Env     []string `json:"env"`
		Input   []byte   `json:"input-data"`
		Capture bool     `json:"capture-output"`
		PID     int      `json:"pid"`
	}
	if arguments != nil {
		if err := strictly(arguments, &c); err != nil {
			return nil, err
		}
	}
	switch name {
	case "guest-ping":
		return struct{}{}, nil
	case "guest-get-time":
		a.mu.Unlock()
		time.Sleep(a.slow) // half on the way there, half on the way back
		a.mu.Lock()
		return time.Now().Add(-a.slow/2 - a.behind).UnixNano(), nil
	case "guest-exec":
		return a.start(append([]string{c.Path}, c.Args...), c.Input)
	case "guest-exec-status":
		return a.status(c.PID)
	case "guest-file-open":
		return a.open(c.Path, c.Mode)
	case "guest-file-read", "guest-file-write", "guest-file-flush", "guest-file-close":
		h := a.handles[c.Handle]
		if h == nil {
			return nil, fmt.Errorf("handle '%d' has not been found", c.Handle)
		}
		return a.file(name, c.Handle, h, c.Count, c.Buf)
	}
	return nil, fmt.Errorf("the command %s has not been found", name)
}

func (a *agent) open(name, mode string) (int64, error) {
	_, there := a.files[name]
	switch mode {
	case "r":
		if !there {
			return 0, fmt.Errorf("failed to open file '%s' (mode: 'r'): No such file or directory", name)
		}
	case "w":
		if strings.HasPrefix(name, "/no/") {
			return 0, fmt.Errorf("failed to open file '%s' (mode: 'w'): No such file or directory", name)
		}
		a.files[name] = file{mode: 0o644}
	default:
		return 0, errors.New("invalid file open mode")
	}
	a.last++
	a.handles[int64(a.last)] = &handle{path: name, mode: mode}
	return int64(a.last), nil
}

func (a *agent) file(command string, number int64, h *handle, count int, buf []byte) (any, error) {
	f := a.files[h.path]
	switch command {
	case "guest-file-read":
		if h.mode != "r" {
			return nil, errors.New("bad file descriptor")
		}
		part := f.content[h.at:min(len(f.content), h.at+count)]
		h.at += len(part)
		return map[string]any{"count": len(part), "buf-b64": []byte(part), "eof": len(part) < count}, nil
	case "guest-file-write":
		if h.mode != "w" {
			return nil, errors.New("bad file descriptor")
		}
		if a.short && len(buf) > 1 {
			buf = buf[:len(buf)/2]
		}
		f.content += string(buf)
		a.files[h.path] = f
		return map[string]any{"count": len(buf), "eof": false}, nil
	case "guest-file-close":
		delete(a.handles, number)
	}
	return struct{}{}, nil
}

func (a *agent) start(args []string, stdin []byte) (any, error) {
	p, known := a.builtIn(args)
	switch {
	case known:
	case a.run == nil:
		return nil, fmt.Errorf("nobody expected %q", args)
	case len(args) >= 3 && args[2] == guest.Settler:
		if len(args) == 4 {
			stdin = []byte(a.files[args[3]].content)
			delete(a.files, args[3])
		}
		p = a.run(args[:2], stdin)
	case len(args) < 6 || args[0] != "/usr/bin/perl" || args[3] != "--":
		return nil, fmt.Errorf("%q is not wrapped", args)
	default:
		p = a.wrapped(args[4], args[5:], stdin)
	}
	a.last++
	a.processes[a.last] = &p
	return map[string]int{"pid": a.last}, nil
}

// wrapped does what the wrapper does.
func (a *agent) wrapped(tmp string, args []string, stdin []byte) process {
	if f, there := a.files[tmp+".i"]; there {
		stdin = []byte(f.content)
		delete(a.files, tmp+".i")
	}
	const most = 1 << 20
	p := a.run(args, stdin)
	for suffix, output := range map[string]*string{".o": &p.out, ".e": &p.err} {
		if len(*output) >= most {
			a.files[tmp+suffix] = file{content: (*output)[most:]}
			*output = (*output)[:most]
		}
	}
	return p
}

// builtIn are the commands that Guests runs for its own ends.
func (a *agent) builtIn(args []string) (process, bool) {
	switch {
	case len(args) == 7 && strings.HasPrefix(args[2], "chmod "):
		mode, err := strconv.ParseUint(args[4], 8, 12)
		f, there := a.files[args[5]]
		if err != nil || !there {
			return process{code: 1, err: "chmod: no"}, true
		}
		if path.Dir(args[5]) != path.Dir(args[6]) {
			return process{code: 1, err: "mv: would not be atomic"}, true
		}
		delete(a.files, args[5])
		a.files[args[6]] = file{f.content, fs.FileMode(mode)}
		return process{}, true
	case args[0] == "/bin/rm":
		for _, name := range args[2:] {
			delete(a.files, name)
		}
		return process{}, true
	case args[0] == "/bin/kill":
		session, _ := strconv.Atoi(args[3])
		a.killed = append(a.killed, -session)
		return process{}, true
	}
	return process{}, false
}

func (a *agent) status(pid int) (any, error) {
	p := a.processes[pid]
	if p == nil {
		return nil, fmt.Errorf("PID %d does not exist", pid)
	}
	if p.polls--; p.polls >= 0 {
		return map[string]any{"exited": false}, nil
	}
	delete(a.processes, pid)
	r := map[string]any{"exited": true, "exitcode": p.code}
	if p.signal != 0 {
		delete(r, "exitcode")
		r["signal"] = p.signal
	}
	if p.out != "" {
		r["out-data"] = []byte(p.out)
	}
	if p.err != "" {
		r["err-data"] = []byte(p.err)
	}
	return r, nil
}
