package evidence

import (
	"fmt"
	"path/filepath"
	"strings"

	"mesh/lab/lifecycle"
	"mesh/lab/world/stamp"
)

// kind is how a piece is had.
type kind int

const (
	record   kind = iota // the run record
	status               // the scenario as it answers now
	file                 // a file of the lab machine, its end if it is too long
	binary               // files of the lab machine as they are, by pattern
	console              // a recorded console, all its parts
	command              // a command on a machine
	here                 // a command on the lab machine
	diagnose             // the hypervisor's word on a machine
	describe             // the hypervisor's description of a machine
)

// Piece is one thing to collect.
type Piece struct {
	File    string // in the directory; of several files theirs
	What    string // for people
	From    string // for people: a path, a command
	Machine string // of the scenario; empty: of none
	Limit   int64  // bytes

	kind    kind
	domain  string   // of Machine
	path    string   // or pattern
	command []string // what is run
}

// Sizes of pieces, in bytes. What the lab writes and what a person reads is
// small; a capture is not.
const (
	textLimit    = 8 << 20
	captureLimit = 64 << 20
)

// Pieces lists what is to be collected of a scenario, in the order of the index.
func Pieces(r lifecycle.Record) []Piece {
	p := r.Plan
	all := []Piece{
		{File: "record.json", What: "the plan, and what came of each of its steps", From: filepath.Join(p.Directory, "record.json"), kind: record},
		{File: "status.json", What: "what stands, as it answered", From: "lab status " + p.Name + " --json", kind: status},
		{File: "world.log", What: "the world: leases, names, certificates", path: p.World.Log, kind: file},
		{File: "captures", What: "traffic of a segment", path: filepath.Join(p.Directory, "captures", "*.pcap*"), Limit: captureLimit, kind: binary},
	}
	all = append(all, network(r)...)
	for _, m := range p.Machines {
		all = append(all, machinePieces(m)...)
	}
	all = append(all, labMachine()...)
	for i := range all {
		if all[i].Limit == 0 {
			all[i].Limit = textLimit
		}
		if all[i].From == "" {
			all[i].From = all[i].path
		}
	}
	return all
}

// labMachine is what surrounds the scenario.
func labMachine() []Piece {
	return []Piece{
		{File: "lab/kernel.txt", What: "the lab machine's kernel", path: "/proc/version", kind: file},
		{File: "lab/memory.txt", What: "the lab machine's memory", path: "/proc/meminfo", kind: file},
		{File: "lab/load.txt", What: "the lab machine's load", path: "/proc/loadavg", kind: file},
		{File: "lab/pressure.txt", What: "how long work waited for processors", path: "/proc/pressure/cpu", kind: file},
		run("lab/disks.txt", "space on the lab machine's disks", "df", "-h"),
	}
}

// network is what the kernel of the lab machine holds of the scenario's inside.
func network(r lifecycle.Record) []Piece {
	u := r.Plan.World.Underlay
	all := space("network/world.", "the world", u.Namespace)
	for _, router := range u.Routers {
		all = append(all, space("network/router-"+router.Name+".", "router "+router.Name, router.Namespace)...)
	}
	return all
}

// space is what is in one namespace.
func space(file, of, name string) []Piece {
	return []Piece{
		run(file+"links.txt", "links, addresses and counters of "+of, "ip", "-netns", name, "-details", "-statistics", "address"),
		run(file+"routes.txt", "ways of "+of, "ip", "-netns", name, "route", "show", "table", "all"),
		run(file+"routes6.txt", "ways of "+of+", IPv6", "ip", "-netns", name, "-6", "route", "show", "table", "all"),
		run(file+"rules.txt", "filters and translations of "+of, "ip", "netns", "exec", name, "nft", "list", "ruleset"),
	}
}

// run is a command on the lab machine.
func run(file, what string, words ...string) Piece {
	return Piece{File: file, What: what, From: strings.Join(words, " "), kind: here, command: words}
}

// machinePieces is what a machine and its hypervisor tell. What needs no agent
// comes first.
func machinePieces(m lifecycle.Machine) []Piece {
	dir := m.Name + "/"
	all := []Piece{
		{File: dir + "console.log", What: "console, whole", path: m.Spec.ConsoleLog, kind: console},
		{File: dir + "console.stamped.log", What: "console, with the times at which its lines came", path: m.Spec.ConsoleLog + stamp.Suffix, kind: console},
		{File: dir + "domain.xml", What: "the virtual machine as libvirt describes it", From: "libvirt, domain " + m.Spec.Name, kind: describe},
		{File: dir + "qemu.log", What: "error output of its process", From: "libvirt, log of domain " + m.Spec.Name, kind: diagnose},
		ask(dir+"journal.log", "journal of this boot", "journalctl --no-pager --boot --output=short-precise --lines=20000"),
		ask(dir+"failed.txt", "units that failed", "systemctl --no-pager --full --failed"),
		ask(dir+"network.txt", "links, ways, sockets, filters", "for c in 'ip -s address' 'ip route show table all' 'ip -6 route show table all' "+
			"'ss -tulnp' 'nft list ruleset' 'resolvectl status'; do echo \"# $c\"; $c 2>&1; echo; done"),
		ask(dir+"processes.txt", "processes", "ps -eo pid,ppid,stat,etimes,rss,comm"),
		ask(dir+"disk.txt", "space on its disks", "df -h"),
		installed(dir+"host.json", "status of its mesh-host", "mesh-host", "status --json"),
		installed(dir+"plane.json", "nodes of its mesh-plane", "mesh-plane", "node list --json"),
	}
	for i := range all {
		all[i].Machine, all[i].domain = m.Name, m.Spec.Name
		if all[i].kind == command {
			all[i].From = m.Name + ": " + all[i].From
		}
	}
	return all
}

// ask is a script on a machine.
func ask(file, what, script string) Piece {
	return Piece{File: file, What: what, From: script, kind: command, command: []string{"/bin/sh", "-c", script}}
}

// installed is what a program says that need not be there.
func installed(file, what, program, args string) Piece {
	p := ask(file, what, fmt.Sprintf("command -v %[1]s >/dev/null || { echo %[1]s is not installed >&2; exit 127; }; %[1]s %[2]s", program, args))
	p.From = program + " " + args
	return p
}
