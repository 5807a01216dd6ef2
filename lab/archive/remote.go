package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os/exec"
	"strings"

	"mesh/lab/lifecycle"
)

// Remote is the lab of a lab machine that is reached by running a shell there.
type Remote struct {
	Host  string   // as the shell wants it: "root@two.example"
	Port  string   // zero: the shell's own
	Shell []string // program and arguments that run a command on Host: ssh
	Lab   []string // the lab program there, and flags that all its commands get
}

// ParseRemote reads where a scenario is to go, in the form that libvirt has for a
// hypervisor behind ssh: qemu+ssh://[USER@]HOST[:PORT]/system
// (https://libvirt.org/uri.html). The path may be left out.
func ParseRemote(text string) (Remote, error) {
	wrong := func(why string) (Remote, error) {
		return Remote{}, &lifecycle.Error{
			What: fmt.Sprintf("%q is no lab machine to move to", text), Why: why,
			Next: "write qemu+ssh://HOST or qemu+ssh://USER@HOST:PORT/system", Code: codeUsage,
		}
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return wrong("it is no URI")
	case u.Scheme != "qemu+ssh":
		return wrong(fmt.Sprintf("its scheme is %q; scenarios move over ssh, between systems' hypervisors", u.Scheme))
	case u.Hostname() == "" || strings.HasPrefix(u.Hostname(), "-") || strings.HasPrefix(u.User.Username(), "-"):
		return wrong("it names no host")
	case u.Path != "" && u.Path != "/" && u.Path != "/system", u.RawQuery != "", u.Fragment != "":
		return wrong("only the system's hypervisor is of use, without parameters")
	}
	if _, given := u.User.Password(); given {
		return wrong("it has a password; ssh has keys")
	}
	r := Remote{Host: u.Hostname(), Port: u.Port(), Shell: []string{"ssh"}, Lab: []string{"lab"}}
	if user := u.User.Username(); user != "" {
		r.Host = user + "@" + r.Host
	}
	return r, nil
}

// String is Target's.
func (r Remote) String() string { return r.Host }

// run runs the lab there and gives what it printed.
func (r Remote) run(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	words := append([]string{}, r.Shell[1:]...)
	if r.Port != "" {
		words = append(words, "-p", r.Port)
	}
	words = append(words, r.Host)
	for _, word := range append(append([]string{}, r.Lab...), args...) {
		words = append(words, quote(word))
	}
	cmd := exec.CommandContext(ctx, r.Shell[0], words...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("`lab %s` on %s: %v: %s", args[0], r.Host, err, firstLines(stderr.String(), 20))
	}
	return stdout.Bytes(), nil
}

// ask runs a command that answers with JSON.
func (r Remote) ask(ctx context.Context, into any, args ...string) error {
	out, err := r.run(ctx, nil, append(args, "--json")...)
	if err == nil {
		if err = json.Unmarshal(out, into); err != nil {
			err = fmt.Errorf("`lab %s` on %s: read its answer: %v", args[0], r.Host, err)
		}
	}
	return err
}

// Look is Target's.
func (r Remote) Look(ctx context.Context) (Sight, error) {
	var raised []struct {
		Name string `json:"name"`
	}
	var built struct {
		Images []struct {
			Image *struct {
				Content string `json:"content"`
			} `json:"image"`
		} `json:"images"`
	}
	if err := errors.Join(r.ask(ctx, &raised, "list"), r.ask(ctx, &built, "image", "list")); err != nil {
		return Sight{}, err
	}
	var s Sight
	for _, one := range raised {
		s.Raised = append(s.Raised, one.Name)
	}
	for _, one := range built.Images {
		if one.Image != nil {
			s.Contents = append(s.Contents, one.Image.Content)
		}
	}
	return s, nil
}

// Import is Target's.
func (r Remote) Import(ctx context.Context, archive io.Reader) error {
	_, err := r.run(ctx, archive, "import", "-")
	return err
}

// Restore is Target's.
func (r Remote) Restore(ctx context.Context, scenario, snapshot string) error {
	_, err := r.run(ctx, nil, "restore", scenario, snapshot)
	return err
}

// Answering is Target's.
func (r Remote) Answering(ctx context.Context, scenario string) error {
	var status struct {
		Machines []struct {
			Name  string `json:"name"`
			State string `json:"state"`
			Agent bool   `json:"agent"`
		} `json:"machines"`
	}
	if err := r.ask(ctx, &status, "status", scenario); err != nil {
		return err
	}
	for _, m := range status.Machines {
		if !m.Agent && m.State != "off" && m.State != "paused" {
			return fmt.Errorf("machine %s is %s on %s and does not answer", m.Name, m.State, r.Host)
		}
	}
	return nil
}

// Destroy is Target's.
func (r Remote) Destroy(ctx context.Context, scenario string) error {
	_, err := r.run(ctx, nil, "destroy", scenario)
	return err
}

// ComesOf is Target's.
func (r Remote) ComesOf(ctx context.Context, scenario string) (string, error) {
	there, err := r.snapshots(ctx, scenario)
	for _, one := range there {
		if one.Current {
			return one.ID, nil
		}
	}
	return "", err
}

// listed is a snapshot as the lab there lists it.
type listed struct {
	Name    string `json:"name"`
	ID      string `json:"id"`
	Current bool   `json:"current"`
}

func (r Remote) snapshots(ctx context.Context, scenario string) (all []listed, err error) {
	err = r.ask(ctx, &all, "snapshot", "list", scenario)
	return all, err
}

// Forget is Target's.
func (r Remote) Forget(ctx context.Context, scenario, snapshot string) error {
	there, err := r.snapshots(ctx, scenario)
	if err != nil {
		return err
	}
	for _, one := range there {
		if one.Name == snapshot {
			_, err := r.run(ctx, nil, "snapshot", "remove", scenario, snapshot)
			return err
		}
	}
	return nil
}

// quote makes one word of the shell at the other end.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
