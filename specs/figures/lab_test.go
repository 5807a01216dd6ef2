package figures_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"mesh/specs/bench"
	"mesh/specs/figures"
)

var (
	labBin   = flag.String("lab", "", "path of the lab program; empty skips the benchmark, which raises machines")
	outDir   = flag.String("out", "", "directory for lab.md and lab.json; empty: standard output only")
	runs     = flag.Int("runs", 5, "how often everything is done")
	machines = flag.String("machines", "1,2,3,6", "numbers of machines, each measured")
	peer     = flag.String("peer", "auto", "vagrant beside it: auto (where it is installed), yes, no")
	idle     = flag.Duration("idle", 30*time.Second, "how long an idle scenario is watched")
)

// What is measured, as the tables name it.
const (
	cold     = "raise, cold (`lab raise --cold`)"
	warm     = "raise, warm (`lab raise`)"
	take     = "snapshot taken, the scenario running on"
	restored = "restored in place"
	forked   = "forked beside it"
	ended    = "destroyed"
	vagrant  = "`vagrant up` until SSH answers on all"
)

// measurement is one run of the benchmark.
type measurement struct {
	t      *testing.T
	lab    bench.Lab
	counts []int
	whole  figures.Table // what people wait for
	phases figures.Table // where it goes
	notes  []string
	box    string // work directory of the peer; empty: none runs
}

// TestLab is `make bench-lab`.
func TestLab(t *testing.T) {
	if *labBin == "" {
		t.Skip("raises many virtual machines; run it with `make bench-lab`")
	}
	m := &measurement{t: t, lab: bench.Lab{Bin: *labBin}}
	for _, n := range strings.Split(*machines, ",") {
		count, err := strconv.Atoi(n)
		if err != nil || count < 1 {
			t.Fatalf("-machines: %q is not a number of machines", n)
		}
		m.counts = append(m.counts, count)
	}
	if *peer == "yes" || *peer == "auto" && vagrantInstalled() {
		m.box = t.TempDir()
	}
	ctx := t.Context()
	m.prepare(ctx)
	for run := range *runs {
		for _, n := range m.counts {
			t.Logf("run %d of %d, %d machines", run+1, *runs, n)
			m.once(ctx, n)
		}
	}
	m.report()
}

// prepare makes what is made once: the warm image.
func (m *measurement) prepare(ctx context.Context) {
	file := m.scenario(1)
	for _, args := range [][]string{{"raise", file, "--as", name(1, "w")}, {"destroy", name(1, "w")}} {
		if r := m.lab.Run(ctx, "", args...); r.Code != 0 {
			m.t.Fatal(r.Err())
		}
	}
}

// scenario writes a scenario of n plain machines and gives its file.
func (m *measurement) scenario(n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: figures\nsegments:\n  public:\n    kind: public\n    ipv4: 203.0.113.0/24\n    ipv6: 2001:db8:113::/64\nmachines:\n")
	for i := range n {
		fmt.Fprintf(&b, "  m%d:\n    memory: 512MiB\n    segments: [public]\n", i+1)
	}
	file := filepath.Join(m.t.TempDir(), "figures.yaml")
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		m.t.Fatal(err)
	}
	return file
}

// name is a scenario's of this process.
func name(n int, kind string) string { return fmt.Sprintf("fig%d-%d%s", os.Getpid(), n, kind) }

// once does everything once with n machines. What fails is noted, and the next
// thing tried that can be.
func (m *measurement) once(ctx context.Context, n int) {
	file := m.scenario(n)
	if m.timed(ctx, cold, n, "raise", file, "--as", name(n, "c"), "--cold") {
		m.steps(ctx, "cold", n, name(n, "c"))
	}
	m.quiet(ctx, "destroy", name(n, "c"))

	a, b := name(n, "a"), name(n, "b")
	defer m.quiet(ctx, "destroy", b, "--snapshots")
	defer m.quiet(ctx, "destroy", a, "--snapshots")
	if !m.timed(ctx, warm, n, "raise", file, "--as", a) {
		return
	}
	m.steps(ctx, "warm", n, a)
	m.cost(ctx, n, a)
	if m.timed(ctx, take, n, "snapshot", "take", a, "cut") {
		m.skew(ctx, n, a)
		m.timed(ctx, restored, n, "restore", a, "cut")
		m.timed(ctx, forked, n, "fork", a, "cut", "--as", b)
		m.quiet(ctx, "destroy", b)
	}
	m.timed(ctx, ended, n, "destroy", a)
	m.vagrant(ctx, n)
}

// timed runs a command and notes what it took, or that it failed.
func (m *measurement) timed(ctx context.Context, what string, n int, args ...string) bool {
	r := m.lab.Run(ctx, "", args...)
	if err := r.Err(); err != nil {
		m.whole.Fail(what, n, err)
		m.t.Logf("%s: %v", what, err)
		return false
	}
	m.whole.Add(what, n, r.Took)
	m.t.Logf("%s: %.2f s", what, r.Took.Seconds())
	return true
}

// quiet runs a command that is not measured.
func (m *measurement) quiet(ctx context.Context, args ...string) {
	if err := m.lab.Run(context.WithoutCancel(ctx), "", args...).Err(); err != nil {
		m.t.Logf("beside the measurement: %v", err)
	}
}

// ask decodes what a command answers with --json.
func (m *measurement) ask(ctx context.Context, into any, args ...string) bool {
	r := m.lab.Run(ctx, "", append(args, "--json")...)
	err := r.Err()
	if err == nil {
		err = json.Unmarshal([]byte(r.Stdout), into)
	}
	if err != nil {
		m.t.Logf("beside the measurement: %v", err)
	}
	return err == nil
}

// status is of `lab status --json` what is of use here.
type status struct {
	Accelerator string `json:"accelerator"`
	World       struct {
		PID int `json:"pid"`
	} `json:"world"`
	Machines []struct {
		Domain string `json:"domain"`
		Start  string `json:"start"`
	} `json:"machines"`
	Steps []struct {
		Kind    string  `json:"kind"`
		Seconds float64 `json:"seconds"`
	} `json:"steps"`
}

// steps notes the phases of a raise; of those that ran side by side the longest.
func (m *measurement) steps(ctx context.Context, how string, n int, scenario string) {
	var s status
	if !m.ask(ctx, &s, "status", scenario) {
		return
	}
	longest, order := map[string]float64{}, []string{}
	for _, step := range s.Steps {
		if _, seen := longest[step.Kind]; !seen {
			order = append(order, step.Kind)
		}
		longest[step.Kind] = max(longest[step.Kind], step.Seconds)
	}
	for _, kind := range order {
		m.phases.Add(how+" raise: "+kind+" (longest)", n, time.Duration(longest[kind]*float64(time.Second)))
	}
	for _, machine := range s.Machines {
		if machine.Start != how {
			m.whole.Fail(map[string]string{"cold": cold, "warm": warm}[how], n, fmt.Errorf("machine %s was started %s", machine.Domain, machine.Start))
			return
		}
	}
}

// skew notes what a snapshot says of its own cut.
func (m *measurement) skew(ctx context.Context, n int, scenario string) {
	var s struct {
		Skew float64 `json:"skew_seconds"`
	}
	if m.ask(ctx, &s, "snapshot", "show", scenario, "cut") {
		m.phases.Add("snapshot: between the first and the last pause", n, time.Duration(s.Skew*float64(time.Second)))
	}
}
