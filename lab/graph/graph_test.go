package graph_test

import (
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/fault"
	"mesh/lab/graph"
	"mesh/lab/scenario"
	"mesh/lab/underlay"
	"mesh/scenarios"
)

var update = flag.Bool("update", false, "write the goldens anew")

// format is a way to write a graph, and the ending of its goldens.
type format struct {
	ending string
	write  func(graph.Graph) string
}

var formats = []format{{"mmd", graph.Graph.Mermaid}, {"dot", graph.Graph.DOT}, {"svg", graph.Graph.SVG}}

// TestGoldens compares the pictures of each shipped scenario, and of one with a
// bit of everything, with their goldens.
func TestGoldens(t *testing.T) {
	for _, name := range append(scenarios.Names(), "campus", "kinds") {
		for _, f := range formats {
			t.Run(name+"."+f.ending, func(t *testing.T) {
				text := f.write(draw(t, name, "0123abcd"))
				golden(t, name+"."+f.ending, text)
				if again := f.write(draw(t, name, "ffffffff")); again != text {
					t.Errorf("the same scenario gives another text under another run (-first +second):\n%s", cmp.Diff(text, again))
				}
			})
		}
	}
}

// TestStruck compares the pictures of a scenario in which somebody is away and
// every kind of target is struck with their goldens.
func TestStruck(t *testing.T) {
	u, machines := plan(t, "sites", "0123abcd")
	for _, move := range [][2]string{{"laptop", "cabin"}, {"home-box", "mobile"}} {
		moved, err := u.Roam(move[0], move[1])
		if err != nil {
			t.Fatal(err)
		}
		u = moved
	}
	one := func(text string) []fault.Target {
		target, err := fault.ParseTarget(text)
		if err != nil {
			t.Fatal(err)
		}
		return []fault.Target{target}
	}
	still := graph.New("sites", "as it is", u, machines)
	g := still.Struck([]fault.Fault{
		{Kind: fault.DiskError, On: one("machine:laptop"), How: fault.Writes},
		{Kind: fault.Loss, On: one("machine:laptop@cabin"), Share: 300_000, Direction: fault.Out},
		{Kind: fault.Delay, On: one("router:home-box"), Delay: fault.Duration(150 * time.Millisecond)},
		{Kind: fault.RateLimit, On: one("segment:office"), Rate: 2_000_000},
		{Kind: fault.Partition, On: one("segment:home"), From: append(one("machine:laptop"), one("world")...), Direction: fault.In},
		{Kind: fault.DNSFailing, How: fault.Silent},
		{Kind: fault.ServiceStopped, On: one("service:issuer")},
	})
	for _, f := range formats {
		golden(t, "struck."+f.ending, f.write(g))
		if strings.Contains(f.write(still), "fault:") {
			t.Errorf("%s: striking the graph has changed what it was made of", f.ending)
		}
	}
}

// TestOrder: who is declared first is drawn first, in text and from left to right.
func TestOrder(t *testing.T) {
	g := draw(t, "campus", "0123abcd")
	for _, f := range formats {
		text, at := f.write(g), 0
		for _, name := range []string{">web<", ">laptop<", ">desk<", ">jump<", ">wine<"} {
			i := strings.Index(text[at:], name)
			if i < 0 {
				t.Fatalf("%s: %s is not drawn, or not after those declared before it:\n%s", f.ending, name, text)
			}
			at += i
		}
	}
	boxes := map[string]shape{}
	for _, b := range read(t, g.SVG()).boxes {
		boxes[b.name] = b
	}
	if boxes["laptop"].x >= boxes["jump"].x {
		t.Errorf("laptop stands at %d, right of jump at %d, which is declared after it", boxes["laptop"].x, boxes["jump"].x)
	}
}

// TestGraphvizReads has the real parser read each graph in DOT.
func TestGraphvizReads(t *testing.T) {
	if _, err := exec.LookPath("dot"); err != nil {
		t.Skip("graphviz is not installed: the text is compared, and not read by the real parser")
	}
	for _, g := range []graph.Graph{draw(t, "first-node", "0123abcd"), draw(t, "campus", "0123abcd"), draw(t, "kinds", "0123abcd"), named(hostile), named("x")} {
		cmd := exec.CommandContext(t.Context(), "dot", "-Tplain")
		cmd.Stdin = strings.NewReader(g.DOT())
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil || said.Len() > 0 {
			t.Errorf("dot refuses the graph of %s: %v\n%s", g.Name, err, said.String())
		}
		want := len(g.Segments) + len(g.Routers) + len(g.Machines)
		if got := strings.Count("\n"+string(out), "\nnode "); got != want {
			t.Errorf("dot sees %d nodes in the graph of %s, want %d", got, g.Name, want)
		}
	}
}

// draw makes the graph of a scenario that ships, or of one in testdata.
func draw(t *testing.T, name, run string) graph.Graph {
	t.Helper()
	s := declared(t, name)
	u, _ := plan(t, name, run)
	return graph.New(s.Name, s.About, u, s.Machines)
}

func plan(t *testing.T, name, run string) (underlay.Underlay, []scenario.Machine) {
	t.Helper()
	s := declared(t, name)
	u, err := underlay.Plan(s, run)
	if err != nil {
		t.Fatal(err)
	}
	return *u, s.Machines
}

func declared(t *testing.T, name string) *scenario.Scenario {
	t.Helper()
	var r io.Reader
	if text, err := scenarios.Files.ReadFile(name + ".yaml"); err == nil {
		r = strings.NewReader(string(text))
	} else {
		f, err := os.Open(filepath.Join("testdata", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		r = f
	}
	s, err := scenario.Parse(name, r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-golden +got; -update writes it anew):\n%s", path, diff)
	}
}
