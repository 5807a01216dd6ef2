package figures_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// contender is a program that keeps files as they are declared.
type contender struct {
	name    string
	program string   // found in PATH, or a path
	version []string // arguments that make it say its version
	slow    bool     // it gets fewer files, and one run
	prepare func(g ground) error
	command func(g ground, d document) []string // arguments
	env     func(g ground) []string
}

// installed says where its program is.
func (c contender) installed() bool {
	_, err := exec.LookPath(c.program)
	return err == nil
}

// said is the first line it says of its version.
func (c contender) said() string {
	out, err := exec.Command(c.program, c.version...).Output()
	line, _, _ := strings.Cut(string(out), "\n")
	if err != nil || line == "" {
		return "of an unknown version"
	}
	return line
}

const (
	mesh     = "mesh-host"
	cfengine = "CFEngine"
)

func contenders(host string) []contender {
	nothing := func(ground) []string { return nil }
	return []contender{
		{name: mesh, program: host, version: []string{"--version"}, prepare: bundles, env: nothing, command: func(g ground, d document) []string {
			return append(hostFlags(g), "reconcile", filepath.Join(g.work, string(d)+".json"))
		}},
		{name: cfengine, program: "cf-agent", version: []string{"--version"}, prepare: policies, env: nothing, command: func(g ground, d document) []string {
			return []string{"--no-lock", "--file", filepath.Join(g.work, string(d)+".cf")}
		}},
		{name: "Puppet", program: "puppet", version: []string{"--version"}, prepare: manifests, env: locale, command: func(g ground, d document) []string {
			args := []string{"apply", "--log_level=err"}
			for _, dir := range []string{"confdir", "vardir", "rundir", "logdir"} {
				args = append(args, "--"+dir, filepath.Join(g.work, dir))
			}
			return append(args, filepath.Join(g.work, string(d)+".pp"))
		}},
		{name: "Ansible", program: "ansible-playbook", version: []string{"--version"}, slow: true, prepare: playbooks, env: func(g ground) []string {
			return append(locale(g), "HOME="+g.work, "ANSIBLE_NOCOLOR=1", "ANSIBLE_LOCALHOST_WARNING=0")
		}, command: func(g ground, d document) []string {
			return []string{"--connection", "local", "--inventory", "localhost,", filepath.Join(g.work, string(d)+".yml")}
		}},
	}
}

func locale(ground) []string { return []string{"LC_ALL=C.UTF-8"} }

// hostFlags keep a mesh-host apart from the machine's own. What need not last is
// in memory, as on every machine.
func hostFlags(g ground) []string {
	sum := sha256.Sum256([]byte(g.tree))
	return []string{"--state", filepath.Join(filepath.Dir(g.tree), "state"), "--runtime", filepath.Join(runtimeBase(), hex.EncodeToString(sum[:4]))}
}

// runtimeBase is a directory in memory of this process.
func runtimeBase() string { return fmt.Sprintf("/run/mesh-figures-%d", os.Getpid()) }

var documents = []document{first, changed, less}

// write makes one document a file in work.
func (g ground) write(name, text string) error {
	return os.WriteFile(filepath.Join(g.work, name), []byte(text), 0o600)
}

// bundles have the content in them.
func bundles(g ground) error {
	type resource struct {
		ID        string         `json:"id"`
		Directory map[string]any `json:"directory,omitempty"`
		File      map[string]any `json:"file,omitempty"`
	}
	for _, d := range documents {
		var all []resource
		for i, dir := range g.directories() {
			all = append(all, resource{ID: fmt.Sprintf("figures/d%d", i), Directory: map[string]any{"path": dir}})
		}
		for i := range g.kept(d) {
			all = append(all, resource{ID: fmt.Sprintf("figures/f%d", i), File: map[string]any{
				"path": g.path(i), "owner": "root", "group": "root", "mode": fmt.Sprintf("%04o", fileMode), "content": g.content(d, i),
			}})
		}
		text, err := json.MarshalIndent(map[string]any{"format": 1, "resources": all}, "", "  ")
		if err == nil {
			err = g.write(string(d)+".json", string(text))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sources writes the content of all files, for programs that copy it.
func (g ground) sources() error {
	for i := range g.files {
		for _, d := range []document{first, changed} {
			if err := os.MkdirAll(filepath.Dir(g.source(d, i)), 0o700); err != nil {
				return err
			}
			if err := os.WriteFile(g.source(d, i), []byte(g.content(d, i)), 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g ground) source(d document, i int) string {
	if i != g.changes() || d == first {
		return filepath.Join(g.work, "source", fmt.Sprintf("f%d", i))
	}
	return filepath.Join(g.work, "source", fmt.Sprintf("f%d-changed", i))
}

// policies compare contents, as mesh-host does; by CFEngine's own choice of times
// a drift that keeps the time is not seen. What goes has to be said.
func policies(g ground) error {
	for _, d := range documents {
		var b strings.Builder
		b.WriteString("bundle agent __main__ {\n  files:\n")
		for _, dir := range g.directories() {
			fmt.Fprintf(&b, "    \"%s/.\" create => \"true\";\n", dir)
		}
		for i := range g.files {
			if i < g.kept(d) {
				fmt.Fprintf(&b, "    %q copy_from => same(%q), perms => owned;\n", g.path(i), g.source(d, i))
			} else {
				fmt.Fprintf(&b, "    %q delete => it;\n", g.path(i))
			}
		}
		fmt.Fprintf(&b, `}
body copy_from same(from) { source => "$(from)"; compare => "digest"; copy_backup => "false"; }
body perms owned { mode => "%04o"; owners => { "root" }; groups => { "root" }; rxdirs => "false"; }
body delete it { dirlinks => "delete"; rmdirs => "false"; }
`, fileMode)
		if err := g.write(string(d)+".cf", b.String()); err != nil {
			return err
		}
	}
	return g.sources()
}

// manifests have the content in them.
func manifests(g ground) error {
	for _, d := range documents {
		var b strings.Builder
		b.WriteString("File { backup => false }\n")
		for _, dir := range g.directories() {
			fmt.Fprintf(&b, "file { '%s': ensure => directory }\n", dir)
		}
		for i := range g.files {
			if i < g.kept(d) {
				fmt.Fprintf(&b, "file { '%s': ensure => file, owner => 'root', group => 'root', mode => '%04o', content => '%s' }\n", g.path(i), fileMode, g.content(d, i))
			} else {
				fmt.Fprintf(&b, "file { '%s': ensure => absent }\n", g.path(i))
			}
		}
		if err := g.write(string(d)+".pp", b.String()); err != nil {
			return err
		}
	}
	return nil
}

// playbooks copy in one loop.
func playbooks(g ground) error {
	for _, d := range documents {
		var b strings.Builder
		b.WriteString("- hosts: localhost\n  gather_facts: false\n  tasks:\n  - file: {path: '{{ item }}', state: directory}\n    loop:\n")
		for _, dir := range g.directories() {
			fmt.Fprintf(&b, "    - %s\n", dir)
		}
		b.WriteString("  - copy: {src: '{{ item.from }}', dest: '{{ item.to }}', owner: root, group: root, mode: '" + fmt.Sprintf("%04o", fileMode) + "'}\n    loop:\n")
		for i := range g.kept(d) {
			fmt.Fprintf(&b, "    - {from: %s, to: %s}\n", g.source(d, i), g.path(i))
		}
		if g.kept(d) < g.files {
			b.WriteString("  - file: {path: '{{ item }}', state: absent}\n    loop:\n")
		}
		for i := g.kept(d); i < g.files; i++ {
			fmt.Fprintf(&b, "    - %s\n", g.path(i))
		}
		if err := g.write(string(d)+".yml", b.String()); err != nil {
			return err
		}
	}
	return g.sources()
}
