package stamp

import (
	"bytes"
	"io"
	"time"
)

// layout is RFC 3339 in UTC with milliseconds: all stamps have the same width.
const layout = "2006-01-02T15:04:05.000Z"

// longest is how much of a line is waited for, in bytes; what is longer becomes
// several lines.
const longest = 4 << 10

// Lines gives each line the time at which its first byte came. The zero value
// begins with a line.
type Lines struct {
	begun time.Time
	line  []byte // without its end
}

// Write adds what came at a time and writes the lines that it completes to out,
// each in one call.
func (l *Lines) Write(out io.Writer, at time.Time, data []byte) error {
	for len(data) > 0 {
		if len(l.line) == 0 {
			l.begun = at
		}
		room := data[:min(len(data), longest-len(l.line))]
		end := bytes.IndexByte(room, '\n')
		if end < 0 {
			l.line, data = append(l.line, room...), data[len(room):]
			if len(l.line) < longest {
				return nil
			}
		} else {
			l.line, data = append(l.line, room[:end]...), data[end+1:]
			if len(l.line) == 0 {
				l.begun = at
			}
		}
		if err := l.Flush(out, true); err != nil {
			return err
		}
	}
	return nil
}

// Flush writes the line that is not complete, if it holds anything or if empty
// is set.
func (l *Lines) Flush(out io.Writer, empty bool) error {
	if len(l.line) == 0 && !empty {
		return nil
	}
	text := append(l.begun.UTC().AppendFormat(nil, layout), ' ')
	text = append(append(text, bytes.TrimRight(l.line, "\r")...), '\n')
	l.line = l.line[:0]
	_, err := out.Write(text)
	return err
}
