package system

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// JournalSocket is where systemd's journal takes entries with fields of their own:
// https://systemd.io/JOURNAL_NATIVE_PROTOCOL/.
const JournalSocket = "/run/systemd/journal/socket"

// journalIdentifier is what entries are found by with `journalctl -t`.
const journalIdentifier = "mesh-host"

// maxJournalField bounds one field, so that an entry fits in a datagram.
const maxJournalField = 8 << 10

// Journal is a slog.Handler whose entries have their attributes as fields, so that
// `journalctl MESH_RESOURCE=welcome/page` finds them. These names are kept:
//
//	MESSAGE            what happened, and all attributes as key=value behind it
//	PRIORITY           3 for an error, 4 for a warning, 6 for what is of note, 7 for the rest
//	SYSLOG_IDENTIFIER  mesh-host
//	MESH_EVENT         what happened, alone: "changed", "removed", "kept", "failed" of a resource
//	MESH_RESOURCE      id of a resource, beside MESH_KIND and MESH_WHERE (path, package, unit)
//	MESH_WHY, MESH_ERR why it was done, or was not
//	MESH_EPOCH, MESH_GENERATION, MESH_DIGEST   of the declaration it was done for
//	MESH_NODE, MESH_MESH, MESH_ADDRESS         of the membership and its link
//
// Any other attribute is MESH_ and its key, in capitals. A value that is a secret
// writes itself as a word that tells nothing. An entry that the journal does not
// take goes to Otherwise.
type Journal struct {
	Otherwise slog.Handler

	socket *journalSocket
	fields []field // of With, in order
	group  string
}

type field struct{ key, value string }

// journalSocket is shared by all that came of one Journal.
type journalSocket struct {
	path string
	mu   sync.Mutex
	conn net.Conn // nil: not connected
}

// NewJournal writes to the journal that listens at path.
func NewJournal(path string, otherwise slog.Handler) *Journal {
	return &Journal{Otherwise: otherwise, socket: &journalSocket{path: path}}
}

// IsJournal says whether out is the journal's, by what JOURNAL_STREAM says:
// systemd.exec(5).
func IsJournal(stream string, out *os.File) bool {
	var st unix.Stat_t
	if err := unix.Fstat(int(out.Fd()), &st); err != nil {
		return false
	}
	return stream == fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// Enabled implements slog.Handler.
func (j *Journal) Enabled(ctx context.Context, level slog.Level) bool {
	return j.Otherwise.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (j *Journal) Handle(ctx context.Context, r slog.Record) error {
	var fields []field
	r.Attrs(func(a slog.Attr) bool {
		fields = appendAttr(fields, j.group, a)
		return true
	})
	if err := j.socket.send(entry(r.Level, r.Message, append(fields, j.fields...))); err != nil {
		return j.Otherwise.Handle(ctx, r)
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (j *Journal) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *j
	next.Otherwise = j.Otherwise.WithAttrs(attrs)
	next.fields = slices.Clone(j.fields)
	for _, a := range attrs {
		next.fields = appendAttr(next.fields, j.group, a)
	}
	return &next
}

// WithGroup implements slog.Handler.
func (j *Journal) WithGroup(name string) slog.Handler {
	next := *j
	next.Otherwise = j.Otherwise.WithGroup(name)
	next.group = j.group + name + "_"
	return &next
}

func appendAttr(fields []field, group string, a slog.Attr) []field {
	value := a.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		if a.Key != "" {
			group += a.Key + "_"
		}
		for _, inner := range value.Group() {
			fields = appendAttr(fields, group, inner)
		}
		return fields
	}
	return append(fields, field{group + a.Key, value.String()})
}

// entry is an entry in the journal's protocol.
func entry(level slog.Level, message string, fields []field) []byte {
	text := message
	for _, f := range fields {
		value := f.value
		if value == "" || strings.ContainsAny(value, " =\"\n\t") {
			value = strconv.Quote(value)
		}
		text += " " + f.key + "=" + value
	}
	all := []field{
		{"MESSAGE", text}, {"PRIORITY", priority(level)}, {"SYSLOG_IDENTIFIER", journalIdentifier}, {"MESH_EVENT", message},
	}
	for _, f := range fields {
		all = append(all, field{fieldName(f.key), f.value})
	}
	var b []byte
	for _, f := range all {
		value := f.value
		if len(value) > maxJournalField {
			value = strings.ToValidUTF8(value[:maxJournalField], "") + "…"
		}
		b = append(b, f.key...)
		if strings.Contains(value, "\n") {
			b = append(b, '\n')
			b = binary.LittleEndian.AppendUint64(b, uint64(len(value)))
		} else {
			b = append(b, '=')
		}
		b = append(append(b, value...), '\n')
	}
	return b
}

// priority is a level as syslog(3) numbers it.
func priority(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return "3"
	case level >= slog.LevelWarn:
		return "4"
	case level >= slog.LevelInfo:
		return "6"
	}
	return "7"
}

// fieldName is a key as the journal takes it: capitals, digits and underscores.
func fieldName(key string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, key)
	return "MESH_" + name[:min(len(name), 48)]
}

// send passes an entry on; a journal that was started anew is found again.
func (s *journalSocket) send(entry []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for fresh := s.conn == nil; ; fresh = true {
		if s.conn == nil {
			conn, err := net.Dial("unixgram", s.path)
			if err != nil {
				return err
			}
			s.conn = conn
		}
		_, err := s.conn.Write(entry)
		if err == nil {
			return nil
		}
		_ = s.conn.Close()
		s.conn = nil
		if fresh {
			return err
		}
	}
}
