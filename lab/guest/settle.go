package guest

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strings"
	"time"
)

// Identity is what makes a machine the one that it is to be. Zero values leave
// what is there as it is. It may hold private keys: it is not to be printed.
type Identity struct {
	Hostname  string
	MachineID string // 32 hex digits
	// BootID is for a machine that runs on from another's memory, in the form of a
	// UUID; with it daemons that know the source's machine id are begun anew.
	BootID  string
	Entropy []byte // random bytes that nobody else has
	Files   []File // written in order
	// Addresses are waited for, up to Patience.
	Addresses []Address
	Patience  time.Duration
	KeepClock bool // leave the clock as it is
	Silent    bool // it is not to say what it is then, which takes it as long as all the rest
}

// Address is one that a NIC is to have.
type Address struct {
	MAC    string // as Linux writes it
	Prefix netip.Prefix
}

// File is one file on a machine. Directories that it lies in are made.
type File struct {
	Path    string // absolute, without spaces or line ends
	Mode    fs.FileMode
	Content []byte
	Append  bool   // to what is there, unless that holds it already; Mode is 0644
	Link    string // not empty: a symbolic link to there
}

// Facts are what a machine says of itself.
type Facts struct {
	MachineID string
	Hostname  string
	Addresses map[string][]string // usable ones with prefix length, by MAC
	Clock     time.Duration       // how far it was behind the lab machine's before it was set
}

// clockSlack is how well a clock is known before it is set.
const clockSlack = 50 * time.Millisecond

//go:embed settle.pl
var settler string

// Settle sets a machine's clock to the lab machine's, unless it is to keep its own, gives it an identity, and
// waits for its addresses for as long as the identity says; whether they came,
// the facts tell. The clock is set within 100 ms unless the machine is starved.
// Random numbers, clock and names come first, then files. Repeating it is no harm.
func (g *Guests) Settle(ctx context.Context, name string, id Identity) (Facts, error) {
	facts, err := g.settle(ctx, name, id)
	if err != nil {
		return Facts{}, fmt.Errorf("settle machine %s: %w", name, err)
	}
	return facts, nil
}

func (g *Guests) settle(ctx context.Context, name string, id Identity) (Facts, error) {
	var behind time.Duration
	if !id.KeepClock {
		var err error
		if behind, err = g.Behind(ctx, name); err != nil {
			return Facts{}, err
		}
	}
	script, err := id.script(behind)
	if err != nil {
		return Facts{}, err
	}
	c := Command{Args: []string{"/usr/bin/perl", "-e", settler}, Stdin: script}
	if len(script) > inChunk {
		tmp := partName("/run") // in memory, and removed by who reads it
		if err := g.writeFile(ctx, name, bytes.NewReader(script), tmp); err != nil {
			return Facts{}, fmt.Errorf("send what is to be done: %w", err)
		}
		c.Args, c.Stdin = append(c.Args, tmp), nil
	}
	r, err := g.exec(ctx, name, c, soonPoll)
	if err != nil {
		return Facts{}, err
	}
	if r.ExitCode != 0 {
		return Facts{}, fmt.Errorf("exit code %d: %s", r.ExitCode, strings.TrimSpace(string(r.Stderr)))
	}
	if id.Silent {
		return Facts{Clock: behind}, nil
	}
	facts, err := parseFacts(string(r.Stdout))
	facts.Clock = behind
	return facts, err
}

// Behind measures how far a machine's clock is behind the lab machine's. Of an
// answer it is known only that it was given between question and arrival, so
// that a quick one is wanted.
func (g *Guests) Behind(ctx context.Context, name string) (time.Duration, error) {
	var best, slack time.Duration
	for try := range 5 {
		var nanoseconds int64
		asked := time.Now()
		if err := g.call(ctx, name, "guest-get-time", nil, &nanoseconds); err != nil {
			return 0, fmt.Errorf("ask the time: %w", err)
		}
		half := time.Since(asked) / 2
		if try == 0 || half < slack {
			best, slack = asked.Add(half).Sub(time.Unix(0, nanoseconds)), half
		}
		if slack <= clockSlack {
			break
		}
	}
	return best, nil
}

// script writes an identity in the words of settle.pl.
func (id Identity) script(behind time.Duration) ([]byte, error) {
	var b bytes.Buffer
	say := func(words, data string) { fmt.Fprintf(&b, "%s %d\n%s", words, len(data), data) }
	given := func(word, data string) {
		if data != "" {
			say(word, data)
		}
	}
	given("entropy", string(id.Entropy))
	if !id.KeepClock {
		say("clock", fmt.Sprint(behind.Nanoseconds()))
	}
	given("hostname", id.Hostname)
	given("machine-id", id.MachineID)
	given("boot-id", id.BootID)
	for _, f := range id.Files {
		if strings.ContainsAny(f.Path, " \n\x00") || !strings.HasPrefix(f.Path, "/") {
			return nil, fmt.Errorf("file %q: its path is not absolute, or holds a space or line end", f.Path)
		}
		switch {
		case f.Link != "":
			say("link "+f.Path, f.Link)
		case f.Append:
			say("append "+f.Path, string(f.Content))
		default:
			say(fmt.Sprintf("file %s %04o", f.Path, f.Mode.Perm()), string(f.Content))
		}
	}
	for _, a := range id.Addresses {
		say("await", a.words())
	}
	if id.Silent {
		say("silent", "")
	}
	say("patience", fmt.Sprintf("%.2f", id.Patience.Seconds()))
	return b.Bytes(), nil
}

// words is an address as the kernel's tables have it.
func (a Address) words() string {
	return a.MAC + " " + hex.EncodeToString(a.Prefix.Addr().AsSlice())
}

// parseFacts reads what settle.pl prints.
func parseFacts(text string) (Facts, error) {
	id, rest, ok := strings.Cut(text, "\n")
	host, doc, ok2 := strings.Cut(rest, "\n")
	if !ok || !ok2 {
		return Facts{}, errors.New("its answer about itself is cut short")
	}
	var links []struct {
		MAC       string `json:"address"`
		Addresses []struct {
			Local     string `json:"local"`
			Length    int    `json:"prefixlen"`
			Tentative bool   `json:"tentative"`
			Failed    bool   `json:"dadfailed"`
		} `json:"addr_info"`
	}
	if err := json.Unmarshal([]byte(doc), &links); err != nil {
		return Facts{}, fmt.Errorf("read its addresses: %v", err)
	}
	facts := Facts{MachineID: id, Hostname: host, Addresses: map[string][]string{}}
	for _, link := range links {
		for _, a := range link.Addresses {
			if !a.Tentative && !a.Failed {
				facts.Addresses[link.MAC] = append(facts.Addresses[link.MAC], fmt.Sprintf("%s/%d", a.Local, a.Length))
			}
		}
	}
	return facts, nil
}
