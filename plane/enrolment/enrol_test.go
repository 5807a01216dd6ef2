package enrolment_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mesh/host/declaration"
	"mesh/host/identity"
	"mesh/host/inventory"
	"mesh/host/link"
	"mesh/plane/config"
	"mesh/plane/enrolment"
	"mesh/plane/planetest"
	"mesh/plane/refusal"
	"mesh/plane/registry"
)

// refused checks that err is a refusal of the link with this reason, in one line
// that says each of these.
func refused(t *testing.T, err error, reason link.Reason, says ...string) {
	t.Helper()
	var r *link.Refusal
	if !errors.As(err, &r) {
		t.Fatalf("got %v, want a refusal because of %s", err, reason)
	}
	if r.Reason != reason {
		t.Errorf("refused because of %s, want %s: %s", r.Reason, reason, r.Message)
	}
	if strings.Contains(r.Message, "\n") {
		t.Errorf("more than one line: %q", r.Message)
	}
	for _, s := range says {
		if !strings.Contains(r.Message, s) {
			t.Errorf("%q does not say %q", r.Message, s)
		}
	}
}

func TestEnrolGivesNameAddressesAndTheFirstGeneration(t *testing.T) {
	p := planetest.New(t, planetest.Options{})
	m := planetest.NewMachine("Web")
	grant, err := p.Enrolments.Enrol(t.Context(), m.With(p.Token(t, enrolment.TokenRequest{})))
	if err != nil {
		t.Fatal(err)
	}
	want := enrolment.Grant{Node: "web", Addresses: []netip.Addr{netip.MustParseAddr("10.77.0.1"), netip.MustParseAddr("fd5e:8b6f:3a21::1")}}
	if d := cmp.Diff(want, grant, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Error(d)
	}
	linked, err := p.Store.Linked(t.Context(), m.Key.Public())
	if err != nil {
		t.Fatal(err)
	}
	signed, err := p.Store.Signed(t.Context(), m.Key.Public(), linked.Declared.Digest)
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := declaration.Open(signed, p.Mesh.DeclarationKey.Public())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(declaration.Declaration{Format: declaration.FormatFor(nil), Mesh: "test", Node: "web", Epoch: 1, Generation: 1, Resources: []declaration.Resource{}}, got); d != "" {
		t.Error(d)
	}
}

func TestEnrolAssignsTheModulesOfTheToken(t *testing.T) {
	p := planetest.New(t, planetest.Options{})
	m := planetest.NewMachine("a")
	if _, err := p.Enrolments.Enrol(t.Context(), m.With(p.Token(t, enrolment.TokenRequest{Node: "web", Modules: []string{"welcome", "welcome"}}))); err != nil {
		t.Fatal(err)
	}
	n := p.Node(t, "web")
	if d := cmp.Diff([]string{"welcome"}, n.Modules); d != "" || n.Declared.Generation != 1 {
		t.Errorf("generation %d, %s", n.Declared.Generation, d)
	}
}

func TestTheMachineOfThePlaneIsRecognised(t *testing.T) {
	p := planetest.New(t, planetest.Options{PlaneMachine: planetest.MachineID("one")})
	p.Enrol(t, "two")
	p.Enrol(t, "one", "welcome")
	if d := cmp.Diff([]string{"plane", "welcome"}, p.Node(t, "one").Modules); d != "" {
		t.Error(d)
	}
	if got := p.Node(t, "two").Modules; got != nil {
		t.Errorf("the other machine has %v", got)
	}

	_, err := p.Enrolments.Issue(t.Context(), enrolment.TokenRequest{Modules: []string{"plane"}})
	if r := refusal.Of(err); r == nil || !strings.Contains(r.Why, `node "one" has it`) {
		t.Errorf("a second plane: %v", err)
	}
	if err := p.Enrolments.Remove(t.Context(), "one"); refusal.Of(err) == nil {
		t.Errorf("the node of the plane was removed: %v", err)
	}
}

func TestThePlaneGoesToNoOtherMachine(t *testing.T) {
	p := planetest.New(t, planetest.Options{PlaneMachine: planetest.MachineID("one")})
	_, err := p.Enrolments.Enrol(t.Context(), planetest.NewMachine("two").With(p.Token(t, enrolment.TokenRequest{Modules: []string{"plane"}})))
	refused(t, err, link.ReasonModule, "plane", planetest.MachineID("one"), planetest.MachineID("two"))

	blind := planetest.New(t, planetest.Options{}) // it does not know its own machine
	blind.Enrol(t, "one", "plane")
	if !blind.Node(t, "one").Has("plane") {
		t.Error("a plane that does not know its machine takes the operator's word")
	}
}

func TestEveryTokenThatDoesNotAdmit(t *testing.T) {
	p := planetest.New(t, planetest.Options{})
	foreign := planetest.New(t, planetest.Options{})
	good := p.Token(t, enrolment.TokenRequest{})
	m := planetest.NewMachine("web")

	altered := good
	secret := good.Secret.SecretBytes()
	secret[3] ^= 1
	altered.Secret = identity.SecretOf(secret)

	elsewhere := m.With(good)
	elsewhere.Exporter = []byte("exporter of another connection")

	otherKey := m.With(good)
	otherKey.Key = planetest.NewMachine("web").Key.Public()

	garbled := m.With(good)
	garbled.TokenID = "zz"

	for name, tt := range map[string]struct {
		attempt enrolment.Attempt
		reason  link.Reason
	}{
		"of another plane":                {m.With(foreign.Token(t, enrolment.TokenRequest{})), link.ReasonTokenUnknown},
		"with another secret":             {m.With(altered), link.ReasonTokenUnknown},
		"proved on another connection":    {elsewhere, link.ReasonTokenUnknown},
		"proved by another key":           {otherKey, link.ReasonTokenUnknown},
		"without a proof":                 {enrolment.Attempt{TokenID: good.IDText(), Key: m.Key.Public()}, link.ReasonTokenUnknown},
		"whose id is none":                {garbled, link.ReasonMalformed},
		"whose id is empty, with nothing": {enrolment.Attempt{}, link.ReasonMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.Enrolments.Enrol(t.Context(), tt.attempt)
			refused(t, err, tt.reason)
		})
	}

	t.Run("expired", func(t *testing.T) {
		short := p.Token(t, enrolment.TokenRequest{Lifetime: time.Minute})
		p.Advance(time.Minute)
		_, err := p.Enrolments.Enrol(t.Context(), m.With(short))
		refused(t, err, link.ReasonTokenExpired, "2026-11-30T12:01:00Z")
		if err := p.Store.ForgetExpired(t.Context(), p.Now()); err != nil {
			t.Fatal(err)
		}
		_, err = p.Enrolments.Enrol(t.Context(), m.With(short))
		refused(t, err, link.ReasonTokenExpired)
	})
	t.Run("spent", func(t *testing.T) {
		if _, err := p.Enrolments.Enrol(t.Context(), m.With(good)); err != nil {
			t.Fatalf("what was refused spent the token: %v", err)
		}
		_, err := p.Enrolments.Enrol(t.Context(), planetest.NewMachine("other").With(good))
		refused(t, err, link.ReasonTokenSpent)
	})
}

func TestTheSameAnswerAgain(t *testing.T) {
	p := planetest.New(t, planetest.Options{})
	token := p.Token(t, enrolment.TokenRequest{})
	m := planetest.NewMachine("web")
	first, err := p.Enrolments.Enrol(t.Context(), m.With(token))
	if err != nil {
		t.Fatal(err)
	}
	again, err := p.Enrolments.Enrol(t.Context(), m.With(token))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(first, again, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Error(d)
	}
	if got := p.Node(t, "web").Declared.Generation; got != 1 {
		t.Errorf("generation %d, want 1", got)
	}
	_, err = p.Enrolments.Enrol(t.Context(), p.Enrol(t, "db").With(token))
	refused(t, err, link.ReasonTokenSpent)
}

func TestTheSameMachineAgain(t *testing.T) {
	p := planetest.New(t, planetest.Options{})
	old := p.Enrol(t, "web", "welcome")
	before := p.Node(t, "web")
	renewed := p.Enrol(t, "web")
	after := p.Node(t, "web")

	if after.Key != renewed.Key.Public() {
		t.Error("the node has its old key")
	}
	if d := cmp.Diff(before.Addresses, after.Addresses, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Errorf("its addresses changed: %s", d)
	}
	if !after.Has("welcome") || after.Declared != before.Declared {
		t.Errorf("its modules or its declaration changed: %v %v", after.Modules, after.Declared)
	}
	if _, err := p.Store.Linked(t.Context(), old.Key.Public()); !errors.Is(err, registry.ErrUnknown) {
		t.Errorf("its old key is known still: %v", err)
	}
	_, err := p.Enrolments.Enrol(t.Context(), old.With(p.Token(t, enrolment.TokenRequest{})))
	refused(t, err, link.ReasonKeyKnown, "for ever")
}

// A machine whose node was removed may hold the node's last declaration still,
// and takes none of a lower generation: numbering goes on.
func TestAMachineThatComesBackAfterItsNodeWasRemoved(t *testing.T) {
	p := planetest.New(t, planetest.Options{})
	p.Enrol(t, "web", "welcome")
	if _, err := p.Declarer.Unassign(t.Context(), "web", "welcome"); err != nil {
		t.Fatal(err)
	}
	for generation := uint64(3); generation < 6; generation++ {
		if err := p.Enrolments.Remove(t.Context(), "web"); err != nil {
			t.Fatal(err)
		}
		p.Enrol(t, "web")
		n := p.Node(t, "web")
		if n.Declared.Generation != generation || len(n.Modules) != 0 {
			t.Errorf("generation %d with %v, want %d with no module", n.Declared.Generation, n.Modules, generation)
		}
		if _, err := p.Store.Signed(t.Context(), n.Key, n.Declared.Digest); err != nil {
			t.Error(err)
		}
	}
	p.Enrol(t, "db")
	if got := p.Node(t, "db").Declared.Generation; got != 1 {
		t.Errorf("another machine begins at generation %d", got)
	}
}

func TestEveryMachineThatIsNotAdmitted(t *testing.T) {
	p := planetest.New(t, planetest.Options{})
	web := p.Enrol(t, "web")

	sameKey := planetest.NewMachine("other")
	sameKey.Key, sameKey.Attempt.Key = web.Key, web.Key.Public()
	copied := planetest.NewMachine("copy")
	copied.Inventory.MachineID = planetest.MachineID("web")
	noID := planetest.NewMachine("other")
	noID.Inventory.MachineID = "uninitialized"
	badName := planetest.NewMachine("host.example.org")
	noFiles := planetest.NewMachine("old")
	noFiles.Profile.Kinds = []string{"directory", "package", "service"}
	noFormat := planetest.NewMachine("old")
	noFormat.Profile.Formats = []int{0}
	overlapping := planetest.NewMachine("lan")
	overlapping.Inventory.Interfaces = append(overlapping.Inventory.Interfaces,
		inventory.Interface{Name: "docker0", Addresses: []netip.Prefix{netip.MustParsePrefix("10.77.9.1/24")}})
	overlapping6 := planetest.NewMachine("lan")
	overlapping6.Inventory.Interfaces[0].Addresses = []netip.Prefix{netip.MustParsePrefix("fd5e:8b6f:3a21:7::9/64")}
	taken := planetest.NewMachine("web")
	taken.Inventory.MachineID = planetest.MachineID("another machine")

	for name, tt := range map[string]struct {
		machine planetest.Machine
		request enrolment.TokenRequest
		reason  link.Reason
		says    []string
	}{
		"a taken name":                     {taken, enrolment.TokenRequest{}, link.ReasonNameTaken, []string{`"web"`, planetest.MachineID("web")}},
		"a taken name in the token":        {planetest.NewMachine("other"), enrolment.TokenRequest{Node: "web"}, link.ReasonNameTaken, []string{`"web"`}},
		"a node under a second name":       {copied, enrolment.TokenRequest{}, link.ReasonNameTaken, []string{`"web"`, `"copy"`, planetest.MachineID("web")}},
		"the key of a node":                {sameKey, enrolment.TokenRequest{}, link.ReasonKeyKnown, []string{`"web"`}},
		"no machine-id":                    {noID, enrolment.TokenRequest{}, link.ReasonMalformed, []string{"uninitialized", "systemd-machine-id-setup"}},
		"a host name that is no node name": {badName, enrolment.TokenRequest{}, link.ReasonMalformed, []string{"host.example.org", "--name"}},
		"a host too old for a module":      {noFiles, enrolment.TokenRequest{Modules: []string{"welcome"}}, link.ReasonModule, []string{"welcome", "file", "1.0.0"}},
		"a host too old for declarations":  {noFormat, enrolment.TokenRequest{}, link.ReasonTooOld, []string{"upgrade mesh-host"}},
		// case P16
		"a network the mesh overlaps":       {overlapping, enrolment.TokenRequest{}, link.ReasonOverlap, []string{`"lan"`, `"docker0"`, "10.77.9.0/24", "10.77.0.0/16"}},
		"an IPv6 network the mesh overlaps": {overlapping6, enrolment.TokenRequest{}, link.ReasonOverlap, []string{`"lan"`, `"eth0"`, "fd5e:8b6f:3a21:7::/64", "fd5e:8b6f:3a21::/48"}},
	} {
		t.Run(name, func(t *testing.T) {
			token := p.Token(t, tt.request)
			_, err := p.Enrolments.Enrol(t.Context(), tt.machine.With(token))
			refused(t, err, tt.reason, tt.says...)
			p.View(t, func(ctx context.Context, v registry.View) error {
				nodes, err := v.Nodes(ctx)
				if len(nodes) != 1 {
					t.Errorf("there are %d nodes now", len(nodes))
				}
				kept, tokenErr := v.Token(ctx, registry.TokenID(token.ID))
				if !kept.SpentBy.IsZero() || kept.Secret.IsZero() {
					t.Error("the token was spent")
				}
				return errors.Join(err, tokenErr)
			})
		})
	}
}

// A node that enrols again stands in the overlay already, with its own address.
func TestItsOwnOverlayAddressIsNoOverlap(t *testing.T) {
	p := planetest.New(t, planetest.Options{})
	p.Enrol(t, "web")
	again := planetest.NewMachine("web")
	again.Inventory.Interfaces = append(again.Inventory.Interfaces,
		inventory.Interface{Name: "mesh", Addresses: []netip.Prefix{netip.MustParsePrefix("10.77.0.1/16")}})
	if _, err := p.Enrolments.Enrol(t.Context(), again.With(p.Token(t, enrolment.TokenRequest{}))); err != nil {
		t.Error(err)
	}
}

func TestIssueRefuses(t *testing.T) {
	p := planetest.New(t, planetest.Options{})
	for name, tt := range map[string]struct {
		request enrolment.TokenRequest
		code    int
	}{
		"a name that is none":      {enrolment.TokenRequest{Node: "Web_1"}, 2},
		"a lifetime in the past":   {enrolment.TokenRequest{Lifetime: -time.Hour}, 2},
		"a lifetime of a year":     {enrolment.TokenRequest{Lifetime: 365 * 24 * time.Hour}, 2},
		"a module that nobody has": {enrolment.TokenRequest{Modules: []string{"welcom"}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.Enrolments.Issue(t.Context(), tt.request)
			if r := refusal.Of(err); r == nil || r.ExitCode() != tt.code {
				t.Errorf("got %v, want a refusal with exit code %d", err, tt.code)
			}
		})
	}
}

// TestCaseP1 enrols 200 machines at once into a range with 253 addresses, then
// until it is full: every address is given once, one more is refused by name,
// and the plane goes on.
func TestCaseP1(t *testing.T) {
	p := planetest.New(t, planetest.Options{Overlay: config.Overlay{IPv4: netip.MustParsePrefix("10.77.0.0/24")}})
	p.Enrol(t, "first") // leaves 253

	var mu sync.Mutex
	held := map[netip.Addr]string{}
	enrol := func(i int) error {
		name := fmt.Sprintf("node-%d", i)
		token, err := p.Enrolments.Issue(t.Context(), enrolment.TokenRequest{})
		if err != nil {
			return err
		}
		grant, err := p.Enrolments.Enrol(t.Context(), planetest.NewMachine(name).With(token))
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if other, twice := held[grant.Addresses[0]]; twice {
			return fmt.Errorf("%s and %s both have %s", other, name, grant.Addresses[0])
		}
		held[grant.Addresses[0]] = name
		return nil
	}
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			if err := enrol(i); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := 200; i < 253; i++ {
		if err := enrol(i); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, enrol(253), link.ReasonRangeFull, "10.77.0.0/24", "is full", "254 addresses")

	if err := p.Enrolments.Remove(t.Context(), "node-100"); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	for a, name := range held {
		if name == "node-100" {
			delete(held, a)
		}
	}
	mu.Unlock()
	if err := enrol(254); err != nil {
		t.Errorf("an address is free again: %v", err)
	}
}

// TestCaseP9 redeems one token from 64 callers at once: one node is made. It
// stays spent after the node is removed and after a restart, and its secret is
// in no error, log or file.
func TestCaseP9(t *testing.T) {
	var log bytes.Buffer
	var logging sync.Mutex
	dir := t.TempDir()
	logger := slog.New(slog.NewJSONHandler(writerFunc(func(b []byte) (int, error) {
		logging.Lock()
		defer logging.Unlock()
		return log.Write(b)
	}), &slog.HandlerOptions{Level: slog.LevelDebug}))
	p := planetest.New(t, planetest.Options{Dir: dir, Log: logger})
	token := p.Token(t, enrolment.TokenRequest{})

	grants := make([]enrolment.Grant, 64)
	errs := make([]error, 64)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			m := planetest.NewMachine(fmt.Sprintf("node-%d", i))
			grants[i], errs[i] = p.Enrolments.Enrol(t.Context(), m.With(token))
		})
	}
	wg.Wait()
	var admitted string
	for i := range 64 {
		switch {
		case errs[i] != nil:
			refused(t, errs[i], link.ReasonTokenSpent)
		case admitted != "":
			t.Errorf("both %s and %s were admitted", admitted, grants[i].Node)
		default:
			admitted = grants[i].Node
		}
	}
	if admitted == "" {
		t.Fatal("nobody was admitted")
	}
	if err := p.Enrolments.Remove(t.Context(), admitted); err != nil {
		t.Fatal(err)
	}
	_, err := p.Enrolments.Enrol(t.Context(), planetest.NewMachine(admitted).With(token))
	refused(t, err, link.ReasonTokenSpent)
	if err := p.Store.ForgetExpired(t.Context(), p.Now()); err != nil {
		t.Fatal(err)
	}

	secret := token.Secret.SecretBytes()
	search := func(where string, text []byte) {
		for _, form := range [][]byte{secret[:], []byte(fmt.Sprintf("%x", secret)), []byte(token.Encode())} {
			if bytes.Contains(text, form) {
				t.Errorf("the secret is in %s", where)
			}
		}
	}
	search("the log", log.Bytes())
	search("an error", []byte(errors.Join(append(errs, err)...).Error()))
	search("a printed token", fmt.Appendf(nil, "%v %+v %#v", token, token, token))
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		search(f, b)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// BenchmarkRangeFull is the time of the refusal of case P1, to stay below 100 ms.
func BenchmarkRangeFull(b *testing.B) {
	p := planetest.New(b, planetest.Options{Overlay: config.Overlay{IPv4: netip.MustParsePrefix("10.77.0.0/24")}})
	for i := range 254 {
		p.Enrol(b, fmt.Sprintf("node-%d", i))
	}
	attempt := planetest.NewMachine("late").With(p.Token(b, enrolment.TokenRequest{}))
	for b.Loop() {
		if _, err := p.Enrolments.Enrol(b.Context(), attempt); err == nil {
			b.Fatal("admitted")
		}
	}
}
