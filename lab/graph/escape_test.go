package graph_test

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"mesh/lab/graph"
)

// hostile has everything that means something in one of the formats.
const hostile = "a\"] --> b; <b>&amp;</b>\\\" \n%%{init: {}}%%\r\n}}`x` #35; -->|y| --- \u202e\x00\xff click s0"

// named is a small graph in which everything that can be written is s.
func named(s string) graph.Graph {
	at := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	return graph.Graph{
		Name: s, About: s,
		Segments: []graph.Segment{
			{Name: s, Kind: "public", Ranges: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}},
			{Name: s, Ranges: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, Faults: []string{s}},
		},
		Routers:  []graph.Router{{Name: s, NAT: "easy", Outside: graph.Link{Segment: 0, Addrs: at}, Inside: graph.Link{Segment: 1, Addrs: at}, Faults: []string{s}}},
		Machines: []graph.Machine{{Name: s, Image: s, MemoryBytes: 512 << 20, CPUs: 1, Links: []graph.Link{{Segment: 1, Addrs: at}}, Faults: []string{s}}},
	}
}

func TestEscaping(t *testing.T) {
	for _, c := range []struct{ name, in, mermaid, xml string }{
		{"a plain name", "home-1", "home-1", "home-1"},
		{"the end of a quoted label", `a"] --> b`, `a#34;#93; --#62; b`, `a&#34;] --&gt; b`},
		{"a tag", `<script>x</script>`, `#60;script#62;x#60;/script#62;`, `&lt;script&gt;x&lt;/script&gt;`},
		{"entities", `&amp; #35;`, `#38;amp#59; #35;35#59;`, `&amp;amp; #35;`},
		{"a backslash before the end", `a\`, `a#92;`, `a\`},
		{"the end of an HTML-like label", `a>]`, `a#62;#93;`, `a&gt;]`},
		{"a comment, a directive", `%%{init: {}}%%`, `#37;#37;#123;init: #123;#125;#125;#37;#37;`, `%%{init: {}}%%`},
		{"Markdown", "`**a** _b_ ~c~`", `#96;#42;#42;a#42;#42; #95;b#95; #126;c#126;#96;`, "`**a** _b_ ~c~`"},
		{"the end of an edge's label", `|b| c`, `#124;b#124; c`, `|b| c`},
		{"other lines", "a\nb\r\nc\u2028d", "a b  c d", "a b  c d"},
		{"what is not seen", "a\x00b\u202ec\u200bd\x1b[0m", "a b c d #91;0m", "a b c d [0m"},
		{"no UTF-8", "a\xffb", "a\uFFFDb", "a\uFFFDb"},
		{"other scripts", "héllo 世界", "héllo 世界", "héllo 世界"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := named(c.in)
			demand(t, g.Mermaid(), `m0["<b>`+c.mermaid+`</b><br/>`+c.mermaid+`<br/>512 MiB`)
			demand(t, g.Mermaid(), `s1["<b>`+c.mermaid+`</b>`)
			demand(t, g.Mermaid(), `r0{{"<b>`+c.mermaid+`</b>`)
			demand(t, g.DOT(), `label=<<b>`+c.xml+`</b><br/><font point-size="10">`+c.xml+`<br/>512 MiB`)
			demand(t, g.DOT(), `label=<<b>`+c.xml+`: `+c.xml+`</b>>`)
			demand(t, g.SVG(), `text-anchor="middle">`+c.xml+`</text>`)
			demand(t, g.SVG(), `<title>`+c.xml+`: `+c.xml+`</title>`)
		})
	}
}

func demand(t *testing.T, text, part string) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Errorf("the text does not hold\n%s\nbut is\n%s", part, text)
	}
}

// TestNothingBreaksOut: whatever names are, the text has the form that it has
// with plain ones.
func TestNothingBreaksOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.Just(hostile), rapid.String(),
			rapid.StringOfN(rapid.SampledFrom([]rune("a\"#&<>;[](){}|`\\%-\n\r \u2028")), 1, 12, -1)).Draw(t, "name")
		g, tame := named(name), named("x")
		for _, f := range formats {
			if got, want := strings.Count(f.write(g), "\n"), strings.Count(f.write(tame), "\n"); got != want {
				t.Errorf("%s: %d lines, want %d:\n%s", f.ending, got, want, f.write(g))
			}
		}
		lines := strings.Split(g.Mermaid(), "\n")
		var title string
		if err := json.Unmarshal([]byte(strings.TrimPrefix(lines[1], "title: ")), &title); err != nil {
			t.Errorf("the title %s: %v", lines[1], err)
		}
		// Quotes stand around labels only.
		for i, line := range strings.Split(tame.Mermaid(), "\n")[3:] {
			if got := strings.Count(lines[3+i], `"`); got != strings.Count(line, `"`) {
				t.Errorf("%d quotes in %s", got, lines[3+i])
			}
		}
		// Tags are the text's own.
		for _, tag := range []string{"<", ">"} {
			if got, want := strings.Count(g.DOT(), tag), strings.Count(tame.DOT(), tag); got != want {
				t.Errorf("dot: %d times %s, want %d:\n%s", got, tag, want, g.DOT())
			}
		}
		read(t, g.SVG())
	})
}
