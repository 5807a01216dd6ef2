package lifecycletest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"mesh/lab/guest"
	"mesh/lab/machine"
)

type guests struct{ *Fake }

func (g guests) Wait(_ context.Context, name string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, err := g.running(name)
	return err
}

func (g guests) running(name string) (domain, error) {
	var d domain
	if g.get("domain", name, &d) != nil {
		return d, machine.ErrAbsent
	}
	if d.State != machine.Running {
		return d, machine.ErrAgent
	}
	return d, nil
}

// Exec knows the lab's own scripts and a few words of the shell: echo WORDS,
// exit N, cat, take, which fails without input, fail TEXT, and hang, which ends
// with ctx only. Everything else is not found.
func (g guests) Exec(ctx context.Context, name string, c guest.Command) (out guest.Result, err error) {
	script := strings.Join(c.Args, " ")
	if i := len(c.Args) - 1; i > 0 && c.Args[0] == "/bin/sh" {
		script = c.Args[i]
	}
	if script == "hang" {
		<-ctx.Done()
		return out, ctx.Err()
	}
	err = g.change(ctx, "exec on "+name+": "+script, func() error {
		d, err := g.running(name)
		if err != nil {
			return err
		}
		rest, err := written(d, script)
		out = g.shell(d, rest, c.Stdin)
		return err
	})
	return out, err
}

// written does the here-documents that a script begins with, and gives its rest.
func written(d domain, script string) (string, error) {
	for {
		path, rest, ok := strings.Cut(script, " <<'END-OF-FILE'\n")
		path, is := strings.CutPrefix(path, "cat >")
		if !ok || !is {
			return script, nil
		}
		content, rest, _ := strings.Cut(rest, "END-OF-FILE\n")
		if err := writeDisk(d, path, []byte(content)); err != nil {
			return "", err
		}
		script = rest
	}
}

func (g guests) shell(d domain, script string, stdin []byte) (out guest.Result) {
	word, rest, _ := strings.Cut(script, " ")
	switch {
	case strings.HasPrefix(script, "cat /etc/machine-id"):
		out.Stdout = []byte(argument(d.Held[heldCmdline], "systemd.machine_id") + "\n" +
			argument(d.Held[heldCmdline], "systemd.hostname") + "\n" + g.addresses(d))
	case strings.HasPrefix(script, "cd /etc/ssl/certs\n"), strings.Contains(script, "apt-get install"),
		word == "mkdir":
	case word == "journalctl":
		out.Stdout = []byte("journal of " + argument(d.Held[heldCmdline], "systemd.hostname") + "\n")
	case word == "echo":
		out.Stdout = []byte(rest + "\n")
	case word == "cat":
		out.Stdout = stdin
	case word == "take" && len(stdin) > 0:
	case word == "take":
		out.ExitCode, out.Stderr = 1, []byte("nothing to take\n")
	case word == "exit":
		out.ExitCode, _ = strconv.Atoi(rest)
	case word == "fail":
		out.ExitCode, out.Stdout, out.Stderr = 1, []byte("said "+rest+"\n"), append([]byte(rest+"\n"), stdin...)
	default:
		out.ExitCode, out.Stderr = 127, []byte(word+": not found\n")
	}
	return out
}

// argument finds KEY=VALUE on a kernel's command line.
func argument(cmdline, key string) string {
	for _, word := range strings.Fields(cmdline) {
		if value, ok := strings.CutPrefix(word, key+"="); ok {
			return value
		}
	}
	return ""
}

func (g guests) CopyIn(ctx context.Context, name string, content io.Reader, to string, _ fs.FileMode) error {
	return g.change(ctx, "copy to "+name+": "+to, func() error {
		d, err := g.running(name)
		if err != nil {
			return err
		}
		data, err := io.ReadAll(content)
		if err != nil {
			return err
		}
		return writeDisk(d, to, data)
	})
}

// writeDisk puts a file on a machine's disk.
func writeDisk(d domain, path string, data []byte) error {
	files := readLayer(d.Spec.Disk)
	files[path] = data
	text, err := json.Marshal(files)
	if err != nil {
		return err
	}
	return os.WriteFile(d.Spec.Disk, text, 0o644)
}

func (g guests) CopyOut(_ context.Context, name, from string, to io.Writer) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	d, err := g.running(name)
	if err != nil {
		return err
	}
	data, ok := readDisk(d.Spec.Disk)[from]
	if !ok {
		return fmt.Errorf("open %s: %w", from, fs.ErrNotExist)
	}
	_, err = to.Write(data)
	return err
}
