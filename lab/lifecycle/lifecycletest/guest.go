package lifecycletest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
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
		if len(c.Args) == 7 && strings.HasPrefix(script, "/usr/bin/perl -e # mesh-lab fault") {
			d.Held = maps.Clone(d.Held)
			out = g.fault(&d, c.Args[4], c.Args[5], c.Args[6])
			return g.put("domain", name, d)
		}
		out = g.shell(d, script, c.Stdin)
		return nil
	})
	return out, err
}

// What a guest is told of itself, in memory.
const (
	heldHostname  = "hostname"
	heldMachineID = "machine-id"
)

// Settle refuses what a real machine would choke on.
func (g guests) Settle(ctx context.Context, name string, id guest.Identity) (f guest.Facts, err error) {
	err = g.change(ctx, "settle "+name, func() error {
		d, err := g.running(name)
		if err != nil {
			return err
		}
		if id.MachineID != "" && len(id.Entropy) < 32 {
			return errors.New("a machine gets a name before it has random numbers of its own")
		}
		d.Held = maps.Clone(d.Held)
		for key, value := range map[string]string{heldHostname: id.Hostname, heldMachineID: id.MachineID} {
			if value != "" {
				d.Held[key] = value
			}
		}
		for _, file := range id.Files {
			content := file.Content
			if file.Append {
				content = append(readDisk(d.Spec.Disk)[file.Path], content...)
			}
			if file.Link != "" {
				content = []byte("-> " + file.Link)
			}
			if err := writeDisk(d, file.Path, content); err != nil {
				return err
			}
		}
		f = guest.Facts{Hostname: d.hostname(), MachineID: d.machineID(), Addresses: g.addresses(d)}
		return g.put("domain", name, d)
	})
	return f, err
}

// hostname is what the guest was told, or what its kernel was booted with.
func (d domain) hostname() string {
	return cmp.Or(d.Held[heldHostname], argument(d.Held[heldCmdline], "systemd.hostname"))
}

func (d domain) machineID() string {
	return cmp.Or(d.Held[heldMachineID], argument(d.Held[heldCmdline], "systemd.machine_id"))
}

func (g guests) shell(d domain, script string, stdin []byte) (out guest.Result) {
	word, rest, _ := strings.Cut(script, " ")
	switch {
	case strings.HasPrefix(script, "systemctl is-system-running --wait"), strings.Contains(script, "apt-get install"),
		word == "mkdir":
	case word == "journalctl":
		out.Stdout = []byte("journal of " + d.hostname() + "\n")
	case word == "echo":
		out.Stdout = []byte(rest + "\n")
	case script == "cat /proc/sys/kernel/random/boot_id":
		out.Stdout = fmt.Appendf(nil, "%d\n", d.Resets)
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

// removeDisk takes a file off a machine's own layer; none there is success.
func removeDisk(d domain, path string) error {
	files := readLayer(d.Spec.Disk)
	delete(files, path)
	text, err := json.Marshal(files)
	if err != nil {
		return err
	}
	return os.WriteFile(d.Spec.Disk, text, 0o644)
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
