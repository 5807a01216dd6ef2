package guest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
)

const (
	// inChunk is how much content travels in one command to the agent, in base64.
	// A command longer than a UNIX socket's buffer (net.core.wmem_default, 208 KiB)
	// never arrives: seen with libvirt 9.0.
	inChunk = 96 << 10
	// outChunk is how much travels in one answer; answers have no such limit.
	outChunk = 1 << 20
)

// CopyIn writes content to the absolute path to, whose directory must exist,
// with the permissions of mode. The file appears whole or not at all: it is
// written beside its place and renamed.
func (g *Guests) CopyIn(ctx context.Context, name string, content io.Reader, to string, mode fs.FileMode) error {
	if !path.IsAbs(to) || strings.HasSuffix(to, "/") {
		return fmt.Errorf("copy to machine %s: %q is not the absolute path of a file", name, to)
	}
	tmp := partName(path.Dir(to))
	err := g.writeFile(ctx, name, content, tmp)
	if err == nil {
		err = g.must(ctx, name, "/bin/sh", "-c", `chmod "$1" "$2" && mv -fT "$2" "$3"`, "sh", fmt.Sprintf("%04o", mode.Perm()), tmp, to)
	}
	if err == nil {
		return nil
	}
	tidy, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTime)
	defer cancel()
	_ = g.must(tidy, name, "/bin/rm", "-f", tmp)
	return fmt.Errorf("copy to %s on machine %s: %w", to, name, err)
}

// partName is a new name in dir for a file that is not to stay.
func partName(dir string) string { return path.Join(dir, "."+rand.Text()+".part") }

// writeFile makes a file anew.
func (g *Guests) writeFile(ctx context.Context, name string, content io.Reader, file string) error {
	return g.withFile(ctx, name, file, "w", func(handle int64) error {
		buf := make([]byte, inChunk)
		for {
			n, err := io.ReadFull(content, buf)
			for rest := buf[:n]; len(rest) > 0; {
				var wrote struct {
					Count int `json:"count"`
				}
				if err := g.call(ctx, name, "guest-file-write", map[string]any{"handle": handle, "buf-b64": rest}, &wrote); err != nil {
					return err
				}
				if wrote.Count <= 0 || wrote.Count > len(rest) {
					return fmt.Errorf("the guest agent wrote %d of %d bytes", wrote.Count, len(rest))
				}
				rest = rest[wrote.Count:]
			}
			switch {
			case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
				return g.call(ctx, name, "guest-file-flush", map[string]any{"handle": handle}, nil)
			case err != nil:
				return fmt.Errorf("read what is to be copied: %w", err)
			}
		}
	})
}

// CopyOut reads the file at the absolute path from. What was written to to
// before an error stays written.
func (g *Guests) CopyOut(ctx context.Context, name, from string, to io.Writer) error {
	err := g.withFile(ctx, name, from, "r", func(handle int64) error {
		for {
			var read struct {
				Buf []byte `json:"buf-b64"`
				EOF bool   `json:"eof"`
			}
			if err := g.call(ctx, name, "guest-file-read", map[string]any{"handle": handle, "count": outChunk}, &read); err != nil {
				return err
			}
			if _, err := to.Write(read.Buf); err != nil {
				return fmt.Errorf("write what was copied: %w", err)
			}
			if read.EOF || len(read.Buf) == 0 {
				return nil
			}
		}
	})
	if err != nil {
		return fmt.Errorf("copy %s from machine %s: %w", from, name, err)
	}
	return nil
}

// withFile opens a file in a machine for f and closes it again, also when ctx
// has ended: an agent has few handles.
func (g *Guests) withFile(ctx context.Context, name, file, mode string, f func(handle int64) error) error {
	var handle int64
	if err := g.call(ctx, name, "guest-file-open", map[string]string{"path": file, "mode": mode}, &handle); err != nil {
		return err
	}
	err := f(handle)
	tidy, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTime)
	defer cancel()
	if closeErr := g.call(tidy, name, "guest-file-close", map[string]any{"handle": handle}, nil); err == nil {
		err = closeErr
	}
	return err
}

// must runs a command that has to succeed.
func (g *Guests) must(ctx context.Context, name string, args ...string) error {
	r, err := g.exec(ctx, name, Command{Args: args}, lastPoll)
	if err != nil {
		return err
	}
	if r.ExitCode != 0 {
		return fmt.Errorf("exit code %d: %s", r.ExitCode, strings.TrimSpace(string(r.Stderr)))
	}
	return nil
}
