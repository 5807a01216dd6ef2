package system_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"mesh/host/identity"
	"mesh/host/system"
)

var update = flag.Bool("update", false, "write goldens anew")

// journald takes entries as systemd's journal does.
type journald struct {
	t    *testing.T
	conn *net.UnixConn
}

func newJournald(t *testing.T, path string) *journald {
	t.Helper()
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &journald{t, conn}
}

// next is the next entry, a line for each field, read by the rules of
// https://systemd.io/JOURNAL_NATIVE_PROTOCOL/.
func (j *journald) next() string {
	j.t.Helper()
	if err := j.conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		j.t.Fatal(err)
	}
	datagram := make([]byte, 256<<10)
	n, err := j.conn.Read(datagram)
	if err != nil {
		j.t.Fatal(err)
	}
	var out strings.Builder
	for rest := datagram[:n]; len(rest) > 0; {
		end := bytes.IndexAny(rest, "=\n")
		name, value := string(rest[:end]), []byte(nil)
		if rest[end] == '=' {
			value, rest, _ = bytes.Cut(rest[end+1:], []byte("\n"))
		} else {
			length := binary.LittleEndian.Uint64(rest[end+1:])
			value, rest = rest[end+9:][:length], rest[end+9+int(length)+1:]
		}
		if strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" || strings.HasPrefix(name, "_") || len(name) > 64 {
			j.t.Errorf("the journal does not take a field %q", name)
		}
		fmt.Fprintf(&out, "%s=%q\n", name, value)
	}
	return out.String()
}

// TestJournal pins down the fields that people search the journal for.
func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	j := newJournald(t, path)
	secret := identity.SecretOf([16]byte{0xAB, 0xAB, 0xAB, 0xAB})
	log := slog.New(system.NewJournal(path, slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelDebug})))
	pass := log.With("epoch", 1, "generation", 7)
	var got strings.Builder
	for _, say := range []func(){
		func() {
			pass.Info("changed", "resource", "welcome/page", "kind", "file", "where", "/srv/welcome/index.html", "why", "its content is another")
		},
		func() {
			pass.Warn("failed", "resource", "welcome/package", "kind", "package", "where", "nginx", "err", "apt-get: exit status 100\nE: no such package")
		},
		func() {
			log.Error("a declaration is refused as a whole, the one held stays in force", "err", errors.New(""))
		},
		func() { log.Debug("of little note") },
		func() {
			log.WithGroup("odd key").Info("odd", "a-b", secret, slog.Group("in", slog.Any("ner", []identity.Secret{secret})), "at", time.Minute)
		},
	} {
		say()
		entry := j.next()
		if strings.Contains(entry, "abab") || strings.Contains(entry, `\xab`) {
			t.Errorf("a secret is in the journal:\n%s", entry)
		}
		got.WriteString(entry + "\n")
	}
	golden := filepath.Join("testdata", "journal.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got.String()); d != "" {
		t.Errorf("entries (-want +got):\n%s", d)
	}
}

// An entry is no longer than the journal takes, whatever is in it.
func TestJournalEntryIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	j := newJournald(t, path)
	slog.New(system.NewJournal(path, slog.NewTextHandler(io.Discard, nil))).Info("long", "why", strings.Repeat("ä", 1<<20))
	if entry := j.next(); len(entry) > 40<<10 || strings.Count(entry, `…"`) != 2 {
		t.Errorf("%d bytes: %.200s", len(entry), entry)
	}
}

// TestJournalIsStartedAnew: entries go elsewhere while it is away, with all their
// attributes, and to it again when it is back.
func TestJournalIsStartedAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	var otherwise bytes.Buffer
	log := slog.New(system.NewJournal(path, slog.NewTextHandler(&otherwise, nil))).With("generation", 7)
	log.Info("one")
	j := newJournald(t, path)
	log.Info("two")
	two := j.next()
	j.conn.Close()
	log.Info("three")
	again := newJournald(t, path)
	log.Info("four")
	if four := again.next(); !strings.Contains(two, `MESH_EVENT="two"`) || !strings.Contains(four, `MESH_EVENT="four"`) {
		t.Errorf("%s\n%s", two, four)
	}
	for i, want := range []string{"msg=one generation=7", "msg=three generation=7"} {
		lines := strings.Split(otherwise.String(), "\n")
		if len(lines) != 3 || !strings.HasSuffix(lines[i], want) {
			t.Errorf("elsewhere:\n%s", &otherwise)
		}
	}
}

func TestIsJournal(t *testing.T) {
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(out.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	if !system.IsJournal(fmt.Sprintf("%d:%d", st.Dev, st.Ino), out) || system.IsJournal("", out) || system.IsJournal(fmt.Sprintf("%d:%d", st.Dev, st.Ino+1), out) {
		t.Error("what is the journal's is taken for something else")
	}
}
