package libvirt

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"mesh/lab/machine"
)

// logDir is where libvirt keeps the error output of its QEMU processes, one
// file for each name of a domain, that of an earlier domain first.
const logDir = "/var/log/libvirt/qemu"

// stderrTail bounds what is kept of a process's error output, in bytes.
const stderrTail = 4 << 10

// What libvirt itself writes into such a file: a line as a process starts, its
// environment and command line with each word but the last continued by a
// backslash, what it thinks of the domain's document, what the process says, and
// a line as it ends.
var (
	starting = regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\+0000: starting up`)
	ending   = regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\+0000: shutting down, reason=(\S+)`)
	tainted  = regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\+0000: Domain id=\d+ is tainted: `)
	assigned = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*=`)
)

// reasons are libvirt's words for why a domain was shut off.
var reasons = map[string]machine.Cause{
	"destroyed": machine.Destroyed,
	"shutdown":  machine.ShutDown,
	"saved":     machine.Saved,
	"crashed":   machine.Failed,
	"failed":    machine.Failed,
}

// killer is who ended QEMU by a signal, as far as QEMU could still say.
type killer int

const (
	notKilled killer = iota
	killedByDaemon
	killedByOther
)

// signalled is QEMU's last word on a signal: who sent it.
var signalled = regexp.MustCompile(`terminating on signal \d+ from pid \d+ \((.*)\)$`)

// processLog is what a log says of the last process in it.
type processLog struct {
	command string // without its environment
	stderr  string // the last stderrTail bytes, whole lines
	reason  string // libvirt's word for its end; empty while it runs
	killer  killer
}

// parseLog reads a log to its end.
func parseLog(r io.Reader) (processLog, error) {
	var l processLog
	var command []string
	var stderr bytes.Buffer
	inCommand := false
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		line = strings.TrimRight(line, "\n")
		switch match := ending.FindStringSubmatch(line); {
		case line == "" && err != nil, tainted.MatchString(line):
		case starting.MatchString(line):
			l, command, inCommand = processLog{}, nil, true
			stderr.Reset()
		case inCommand:
			word, more := strings.CutSuffix(line, ` \`)
			if len(command) > 0 || !assigned.MatchString(word) {
				command = append(command, word)
			}
			inCommand = more
		case match != nil:
			l.reason = match[1]
		default:
			if by := signalled.FindStringSubmatch(line); by != nil {
				l.killer = killedByOther
				if name := filepath.Base(by[1]); name == "libvirtd" || name == "virtqemud" {
					l.killer = killedByDaemon
				}
			}
			stderr.WriteString(line + "\n")
			keepTail(&stderr)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return processLog{}, err
		}
	}
	l.command = strings.Join(command, " ")
	l.stderr = stderr.String()
	return l, nil
}

// keepTail drops whole lines from the front of b until it is short enough; of
// a single line that is too long it keeps the end.
func keepTail(b *bytes.Buffer) {
	for b.Len() > stderrTail {
		if end := bytes.IndexByte(b.Bytes(), '\n') + 1; end < b.Len() {
			b.Next(end)
		} else {
			b.Next(b.Len() - stderrTail)
		}
	}
}

func logFile(name string) string { return filepath.Join(logDir, filepath.Base(name)+".log") }

// readLog reads what libvirt logged of a machine; no log is an empty one.
func readLog(name string) (processLog, error) {
	f, err := os.Open(logFile(name))
	if errors.Is(err, fs.ErrNotExist) {
		return processLog{}, nil
	}
	if err != nil {
		return processLog{}, err
	}
	defer f.Close()
	return parseLog(f)
}

// stillborn reads the log of a process that could not be started, once it says
// why or a second has passed: the words of QEMU go through another daemon, which
// may write them after libvirt has told of the end.
func stillborn(ctx context.Context, name string) processLog {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for {
		l, err := readLog(name)
		if err != nil || l.command == "" || l.stderr != "" {
			return l
		}
		select {
		case <-ctx.Done():
			return l
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// removeLogs removes a machine's log and the older ones that were moved aside
// when it grew (virtlogd adds .0, .1, …).
func removeLogs(name string) error {
	entries, err := os.ReadDir(logDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list logs: %w", err)
	}
	own := regexp.MustCompile(`^` + regexp.QuoteMeta(name) + `\.log(\.\d+)?$`)
	var failed []error
	for _, e := range entries {
		if !own.MatchString(e.Name()) {
			continue
		}
		if err := os.Remove(filepath.Join(logDir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}
