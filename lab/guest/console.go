package guest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
)

// Finding is a line that no machine may ever write to its console or journal.
type Finding struct {
	Line int    // from 1
	Kind string // what it means, in a word or two
	Text string // the line, without control characters, at most maxFinding bytes
}

func (f Finding) String() string { return fmt.Sprintf("line %d: %s: %s", f.Line, f.Kind, f.Text) }

const (
	maxFinding  = 400      // bytes of a line that are kept
	maxFindings = 100      // findings that are kept
	maxLine     = 4 << 10  // bytes of a line that are looked at
	maxTail     = 64 << 10 // bytes of a console that Tail looks at
)

// patterns are what a kernel, systemd and a Go program write when they are past
// helping themselves, at the beginning of a line or after the kernel's time
// stamp or a journal's "kernel: " or "name[pid]: ". Stalls and lockups are not
// among them: emulated machines that wait for the lab machine's processors
// complain of both, and get over it.
var patterns = []struct {
	kind string
	form *regexp.Regexp
}{
	{"kernel panic", regexp.MustCompile(`Kernel panic - not syncing`)},
	{"kernel oops", regexp.MustCompile(`(^|\]:? |kernel: )(Oops: |Internal error: Oops|general protection fault[:,]|BUG: |kernel BUG at |Unable to handle kernel |divide error: )`)},
	{"no root file system", regexp.MustCompile(`VFS: (Unable to mount root fs|Cannot open root device)|Gave up waiting for (root|suspend/resume) .*device|ALERT!.* does not exist`)},
	{"emergency shell", regexp.MustCompile(`You are in (emergency|rescue) mode|(Started|Reached target) .*(emergency\.service|rescue\.service|emergency\.target|rescue\.target|Emergency Shell|Rescue Shell|Emergency Mode|Rescue Mode)|^\(initramfs\)|BusyBox v.* built-in shell`)},
	{"init died", regexp.MustCompile(`Attempted to kill init!|systemd\[1\]: (Caught <|Freezing execution)|\[!!!!!!\]`)},
	{"out of memory", regexp.MustCompile(`(Out of memory|Memory cgroup out of memory): Killed process `)},
	{"segmentation fault", regexp.MustCompile(`\[\d+\]: segfault at |(^|\]:? |kernel: )traps: .* (trap|general protection)`)},
	{"file system error", regexp.MustCompile(`(EXT4-fs|XFS|BTRFS) (error|critical)|Buffer I/O error on dev|Remounting filesystem read-only`)},
	{"Go panic", regexp.MustCompile(`(^|\]:? |kernel: )(panic: |fatal error: (all goroutines are asleep|concurrent map|stack overflow|runtime: |unexpected signal|out of memory)|goroutine \d+ \[.*\]:$|WARNING: DATA RACE)`)},
}

// control is what a terminal would not show: escape sequences and the like.
var control = regexp.MustCompile(`\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-Z\\-_]|[\x00-\x08\x0b-\x1f\x7f]`)

// Scan reads a console or a journal to its end and lists what may never be
// there, in order, the first maxFindings of them. What cannot be read ends it.
func Scan(r io.Reader) []Finding {
	var found []Finding
	lines := bufio.NewReaderSize(r, maxLine)
	for n := 1; len(found) < maxFindings; n++ {
		line, long, err := lines.ReadLine()
		if err != nil {
			break
		}
		line = bytes.Clone(line)
		for long && err == nil { // the rest of it is not looked at
			_, long, err = lines.ReadLine()
		}
		text := string(control.ReplaceAll(line, nil))
		for _, p := range patterns {
			if p.form.MatchString(text) {
				found = append(found, Finding{Line: n, Kind: p.kind, Text: text[:min(len(text), maxFinding)]})
				break
			}
		}
	}
	return found
}

// Tail is the last lines of a console, at most n of them and within its last
// 64 KiB, as a terminal would show them.
func Tail(console io.ReadSeeker, n int) (string, error) {
	size, err := console.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = console.Seek(max(0, size-maxTail), io.SeekStart)
	}
	if err != nil {
		return "", fmt.Errorf("find the end of a console: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(console, maxTail))
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read the end of a console: %w", err)
	}
	var lines [][]byte
	for line := range bytes.Lines(data) {
		lines = append(lines, control.ReplaceAll(bytes.TrimRight(line, "\r\n"), nil))
	}
	return string(bytes.Join(lines[max(0, len(lines)-n):], []byte("\n"))), nil
}
