package guest_test

import (
	"bytes"
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/guest"
)

const said = "0123456789abcdef0123456789abcdef\none\n" +
	`[{"address":"52:54:00:00:00:01","addr_info":[{"local":"203.0.113.10","prefixlen":24},` +
	`{"local":"fe80::1","prefixlen":64,"tentative":true},{"local":"2001:db8::1","prefixlen":64,"dadfailed":true}]}]`

func TestSettle(t *testing.T) {
	var got string
	a := newAgent()
	a.run = func(_ []string, in []byte) process {
		got = string(in)
		return process{polls: 3, out: said}
	}
	_, g := raised(t, a)
	facts, err := g.Settle(t.Context(), one, guest.Identity{
		KeepClock: true, Hostname: "one", MachineID: "0123", BootID: "b00t", Entropy: []byte("a\nb"),
		Files: []guest.File{
			{Path: "/etc/x", Mode: 0o600, Content: []byte("1\n2\n")},
			{Path: "/etc/y", Content: []byte("more"), Append: true},
			{Path: "/etc/z", Link: "/etc/x"},
		},
		Addresses: []guest.Address{
			{MAC: "52:54:00:00:00:01", Prefix: netip.MustParsePrefix("203.0.113.10/24")},
			{MAC: "52:54:00:00:00:01", Prefix: netip.MustParsePrefix("2001:db8::1/64")},
		},
		Patience: 1500 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `entropy 3
a
bhostname 3
onemachine-id 4
0123boot-id 4
b00tfile /etc/x 0600 4
1
2
append /etc/y 4
morelink /etc/z 6
/etc/xawait 26
52:54:00:00:00:01 cb00710aawait 50
52:54:00:00:00:01 20010db8000000000000000000000001patience 4
1.50`
	if diff := cmp.Diff(want, strings.ReplaceAll(got, "clock 1\n0", "")); diff != "" {
		t.Errorf("what is to be done (-want +got):\n%s", diff)
	}
	wantFacts := guest.Facts{
		MachineID: "0123456789abcdef0123456789abcdef", Hostname: "one",
		Addresses: map[string][]string{"52:54:00:00:00:01": {"203.0.113.10/24"}},
	}
	if diff := cmp.Diff(wantFacts, facts); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
}

// Case L5: the clock is the lab machine's to 100 ms, however long the way to the
// machine and back takes.
func TestCaseL5ClockIsSetWhateverTheWayTakes(t *testing.T) {
	for _, slow := range []time.Duration{time.Millisecond, 80 * time.Millisecond, time.Second} {
		for _, behind := range []time.Duration{40 * 24 * time.Hour, -time.Hour, 0} {
			synctest.Test(t, func(t *testing.T) {
				a := newAgent()
				a.slow, a.behind = slow, behind
				a.run = func(_ []string, in []byte) process {
					_, rest, found := strings.Cut(string(in), "clock ")
					if !found {
						t.Errorf("the clock is not set: %q", in)
					}
					_, value, _ := strings.Cut(rest, "\n")
					value, _, _ = strings.Cut(value, "patience")
					set, err := time.ParseDuration(value + "ns")
					if err != nil {
						t.Fatal(err)
					}
					if wrong := (behind - set).Abs(); wrong > 100*time.Millisecond {
						t.Errorf("behind by %v, %v a question: set wrong by %v", behind, slow, wrong)
					}
					return process{out: said}
				}
				_, g := raised(t, a)
				if _, err := g.Settle(t.Context(), one, guest.Identity{}); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

func TestSettleWithMoreThanFits(t *testing.T) {
	var got []byte
	a := newAgent()
	a.run = func(_ []string, in []byte) process {
		got = in
		return process{out: said}
	}
	_, g := raised(t, a)
	big := guest.File{Path: "/big", Content: bytes.Repeat([]byte("x"), 300<<10)}
	if _, err := g.Settle(t.Context(), one, guest.Identity{Files: []guest.File{big}}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(got, big.Content) {
		t.Errorf("%d bytes came, not all", len(got))
	}
	if left := a.String(); left != "" {
		t.Errorf("left on the machine:\n%s", left)
	}
}

func TestSettleFails(t *testing.T) {
	for want, end := range map[string]process{
		"exit code 2: RNDADDENTROPY: no": {code: 2, err: "RNDADDENTROPY: no\n"},
		"cut short":                      {out: "0123\n"},
		"read its addresses":             {out: "0123\none\nip: not found\n"},
	} {
		a := newAgent()
		a.run = func([]string, []byte) process { return end }
		_, g := raised(t, a)
		if _, err := g.Settle(t.Context(), one, guest.Identity{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	_, g := raised(t, newAgent())
	for _, path := range []string{"etc/x", "/etc/a b", "/etc/a\nhostname"} {
		if _, err := g.Settle(t.Context(), one, guest.Identity{Files: []guest.File{{Path: path}}}); err == nil {
			t.Errorf("%q is taken for a path", path)
		}
	}
}

func FuzzFacts(f *testing.F) {
	f.Add(said)
	f.Add("\n\n[]")
	f.Add("a\nb\n[{\"addr_info\":null}]")
	f.Fuzz(func(t *testing.T, text string) {
		facts, err := guest.ParseFacts(text)
		if err == nil && strings.ContainsRune(facts.MachineID+facts.Hostname, '\n') {
			t.Errorf("%+v", facts)
		}
	})
}

// settler runs the real program here with words that touch only a directory.
func settler(t *testing.T, words string) (out string, took time.Duration, err error) {
	t.Helper()
	for _, program := range []string{"perl", "ip"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("needs " + program)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "perl", "-Mstrict", "-w", "-e", guest.Settler)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(words), &stdout, &stderr
	begun := time.Now()
	if err = cmd.Run(); err != nil {
		return stderr.String(), time.Since(begun), err
	}
	if stderr.Len() > 0 {
		t.Errorf("it complains: %s", stderr.String())
	}
	return stdout.String(), time.Since(begun), nil
}

func TestSettlerWritesFiles(t *testing.T) {
	dir := t.TempDir()
	words := "file " + dir + "/a/b/key 0600 4\nk\ney" + "file " + dir + "/list 0644 2\nx\n" +
		strings.Repeat("append "+dir+"/list 2\ny\n", 2) + "append " + dir + "/new 1\nz" +
		"link " + dir + "/link 4\nlist" + "link " + dir + "/link 4\nlist" + "patience 1\n0"
	out, _, err := settler(t, words)
	if err != nil {
		t.Fatal(out, err)
	}
	if facts, err := guest.ParseFacts(out); err != nil || facts.Hostname == "" {
		t.Errorf("it says %q, %v", out, err)
	}
	for name, want := range map[string]string{"a/b/key": "k\ney", "list": "x\ny\n", "new": "z", "link": "x\ny\n"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v, want %q", name, got, err, want)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "a/b/key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key: %v, %v", info, err)
	}
	if to, err := os.Readlink(filepath.Join(dir, "link")); to != "list" {
		t.Errorf("link leads to %q, %v", to, err)
	}
}

func TestSettlerRefuses(t *testing.T) {
	for words, want := range map[string]string{
		"destroy 1\nx":          "unknown word destroy",
		"file /tmp/x 0600 10\n": "file: cut short",
	} {
		if said, _, err := settler(t, words); err == nil || !strings.Contains(said, want) {
			t.Errorf("%q: %v, %q", words, err, said)
		}
	}
}

// Addresses are waited for no longer than it takes them to come.
func TestSettlerAwaits(t *testing.T) {
	const lo = "00:00:00:00:00:00 "
	if _, took, err := settler(t, "await 26\n"+lo+"7f000001patience 2\n10"); err != nil || took > 5*time.Second {
		t.Errorf("for one that is there: %v, %v", took, err)
	}
	if _, took, err := settler(t, "await 26\n"+lo+"7f000002patience 3\n0.5"); err != nil || took < 500*time.Millisecond {
		t.Errorf("for one that is not: %v, %v", took, err)
	}
}
