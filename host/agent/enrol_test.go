package agent_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mesh/host/agent"
	"mesh/host/identity"
	"mesh/host/inventory"
	"mesh/host/link"
)

var facts = agent.Facts{
	Profile: func() (inventory.Profile, error) {
		return inventory.Profile{HostVersion: "1.0.0", Formats: []int{1}, OS: "debian"}, nil
	},
	Inventory: func() (inventory.Inventory, error) {
		return inventory.Inventory{MachineID: strings.Repeat("a", 32), Hostname: "box", CPUs: 2, Interfaces: []inventory.Interface{}}, nil
	},
}

// applicant is a machine that enrols, with everything it says.
type applicant struct {
	agent.Enrolment
	folder *memory
	notes  []string
}

func newApplicant() *applicant {
	a := &applicant{folder: newMemory()}
	a.Enrolment = agent.Enrolment{
		Identity: a.folder, Facts: facts, Random: rand.Reader, Now: time.Now,
		Note: func(line string) { a.notes = append(a.notes, line) },
	}
	return a
}

// loopback starts the plane on this machine and returns its address.
func loopback(t *testing.T, p *fakePlane) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.serve(l))
	return l.Addr().String()
}

// closed is an address nobody answers at.
func closed(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestEnrol(t *testing.T) {
	p := newPlane(t, 1)
	token := p.token("one", loopback(t, p))
	a := newApplicant()
	m, err := a.Run(context.Background(), " "+token.Encode()+"\n")
	if err != nil {
		t.Fatal(err)
	}
	if m.Mesh != "home" || m.Node != "one" || m.DeclarationKey != p.sign.Public() || p.nodes[m.Key.Public()] != "one" {
		t.Errorf("granted %+v, the plane knows %v", m, p.nodes)
	}
	again, err := agent.ReadMembership(a.folder)
	if err != nil || again.Key.Public() != m.Key.Public() || again.Plane[0] != token.Addresses[0] || again.Pins[0] != p.link.Pin() || len(again.Addresses) != 2 {
		t.Errorf("recorded %+v, %v", again, err)
	}
	if diff := cmp.Diff([]string{"enrol box with 0100000000000000"}, p.took()); diff != "" {
		t.Errorf("the plane was asked (-want +got):\n%s", diff)
	}
	secret := token.Secret.SecretBytes()
	if strings.Contains(a.folder.String(), hex.EncodeToString(secret[:])) {
		t.Error("the token's secret was kept")
	}
}

// Every refusal is one line and leaves the machine as it was (issue "Bad input",
// case P9).
func TestCaseP9EnrolRefused(t *testing.T) {
	p, other := newPlane(t, 1), newPlane(t, 2)
	here, there := loopback(t, p), loopback(t, other)
	issue := func(change func(*identity.Token)) string {
		token := p.token("one", here)
		change(&token)
		return token.Encode()
	}
	answer := func(r link.Reason, message string) string {
		return issue(func(t *identity.Token) { p.refused[t.IDText()] = &link.Refusal{Reason: r, Message: message} })
	}
	spent := p.token("two", here)
	if _, err := newApplicant().Run(context.Background(), spent.Encode()); err != nil {
		t.Fatal(err)
	}
	good := issue(func(*identity.Token) {})
	letter := []byte(good)
	letter[50] ^= 1
	p.took()

	for _, tc := range []struct {
		name, token, want string
		code              int
		asked             bool
	}{
		{"cut short", good[:100], "token cannot be used: it is cut short after 100 characters; copy the whole line", 2, false},
		{"one letter changed", string(letter), "token cannot be used: its checksum does not match: a character was changed, lost or added; copy it again", 2, false},
		{"not a token", "hello", `token cannot be used: it does not begin with "mesh1", so it is not a token of a mesh this host can join; copy the whole line`, 2, false},
		{"expired", answer(link.ReasonTokenExpired, "the token expired at 10:00; issue another"), "enrol: the plane refused: the token expired at 10:00; issue another", 2, true},
		{"spent", spent.Encode(), "enrol: the plane refused: the token was used by another machine", 2, true},
		{"secret changed", issue(func(t *identity.Token) { t.Secret = identity.SecretOf([16]byte{1}) }), "enrol: the plane refused: the token is not one of this plane", 2, true},
		{"name taken", answer(link.ReasonNameTaken, "the name one\nis node two's"), "enrol: the plane refused: the name one is node two's", 1, true},
		{"another plane", issue(func(t *identity.Token) { t.Addresses[0] = netip.MustParseAddrPort(there) }),
			"enrol: the token is for another plane than the one at its address: " + there + ": another plane answers there (it has " + other.link.Pin().String() + "); issue a token at the plane this machine shall join", 2, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newApplicant()
			_, err := a.Run(context.Background(), tc.token)
			if err == nil || err.Error() != tc.want {
				t.Errorf("\n got: %v\nwant: %s", err, tc.want)
			}
			if got := a.folder.String(); got != "" {
				t.Errorf("something was left behind:\n%s", got)
			}
			var coder interface{ ExitCode() int }
			if code := 1; errors.As(err, &coder) && coder.ExitCode() != tc.code || coder == nil && code != tc.code {
				t.Errorf("exit code is not %d", tc.code)
			}
			if asked := len(p.took()) > 0; asked != tc.asked {
				t.Errorf("the plane was asked: %t", asked)
			}
		})
	}
	if len(p.nodes) != 1 || len(other.took()) != 0 {
		t.Errorf("nodes: %v", p.nodes)
	}
}

func TestEnrolWhenEnrolled(t *testing.T) {
	p := newPlane(t, 1)
	address := loopback(t, p)
	a := newApplicant()
	if _, err := a.Run(context.Background(), p.token("one", address).Encode()); err != nil {
		t.Fatal(err)
	}
	before := a.folder.String()
	_, err := a.Run(context.Background(), p.token("two", address).Encode())
	const want = "enrol: this machine is node one of mesh home already, and a machine is a member of one mesh; to give that up for what the token is for, use --again"
	if err == nil || err.Error() != want || a.folder.String() != before {
		t.Errorf("\n got: %v\nwant: %s", err, want)
	}
}

// A member enrols again: with a new key, and until it is admitted it stays what
// it was, whatever comes of it.
func TestEnrolAgain(t *testing.T) {
	p := newPlane(t, 1)
	address := loopback(t, p)
	a := newApplicant()
	old, err := a.Run(context.Background(), p.token("one", address).Encode())
	if err != nil {
		t.Fatal(err)
	}
	before := a.folder.String()
	a.Again = true
	refused := p.token("two", address)
	p.refused[refused.IDText()] = &link.Refusal{Reason: link.ReasonNameTaken, Message: "no"}
	if _, err := a.Run(context.Background(), refused.Encode()); err == nil || a.folder.String() != before {
		t.Errorf("%v; a refusal left\n%s", err, a.folder)
	}
	lost := p.token("three", address).Encode()
	p.abort = true
	if _, err := a.Run(context.Background(), lost); err == nil {
		t.Error("a lost answer is no error")
	}
	if m, err := agent.ReadMembership(a.folder); err != nil || m.Node != "one" || m.Key.Public() != old.Key.Public() {
		t.Errorf("after a lost answer: %+v, %v", m, err)
	}
	m, err := a.Run(context.Background(), lost)
	if err != nil || m.Node != "three" || m.Key.Public() == old.Key.Public() || len(p.nodes) != 2 {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestEnrolTriesEachAddress(t *testing.T) {
	p, other := newPlane(t, 1), newPlane(t, 2)
	dead, wrong, right := closed(t), loopback(t, other), loopback(t, p)
	m, err := newApplicant().Run(context.Background(), p.token("one", dead, wrong, right).Encode())
	if err != nil || m.Node != "one" {
		t.Fatalf("%+v, %v", m, err)
	}
	a := newApplicant()
	_, err = a.Run(context.Background(), p.token("two", dead, wrong).Encode())
	want := "enrol: no plane answers at the token's addresses: " + dead + ": connection refused; " + wrong + ": another plane answers there"
	if err == nil || !strings.HasPrefix(err.Error(), want) || a.folder.String() != "" {
		t.Errorf("\n got: %v\nwant: %s…", err, want)
	}
}

// The plane granted, and this machine stopped, or the answer was lost, before
// the grant was recorded: the same token works again and makes no second node.
func TestEnrolAnswerLost(t *testing.T) {
	p := newPlane(t, 1)
	token := p.token("one", loopback(t, p)).Encode()
	p.abort = true
	a := newApplicant()
	_, err := a.Run(context.Background(), token)
	if err == nil || !strings.Contains(err.Error(), "its answer is not known") || !strings.Contains(err.Error(), "with the same token again") {
		t.Fatalf("got: %v", err)
	}
	if m, err := agent.ReadMembership(a.folder); err != nil || m != nil {
		t.Fatalf("membership after a lost answer: %+v, %v", m, err)
	}
	m, err := a.Run(context.Background(), token)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.nodes) != 1 || p.nodes[m.Key.Public()] != "one" {
		t.Errorf("nodes: %v", p.nodes)
	}
	if len(a.notes) != 1 || !strings.HasPrefix(a.notes[0], "going on with the enrolment that was begun at ") {
		t.Errorf("notes: %q", a.notes)
	}
	if strings.Contains(a.folder.String(), "attempt") {
		t.Error("the attempt is still recorded")
	}
}

// The key is durable before the plane is asked: when it cannot be, nobody asks.
func TestEnrolKeyDurableFirst(t *testing.T) {
	p := newPlane(t, 1)
	a := newApplicant()
	a.folder.broken = errors.New("no space left on device")
	_, err := a.Run(context.Background(), p.token("one", loopback(t, p)).Encode())
	if err == nil || !strings.Contains(err.Error(), "no space left on device") || len(p.took()) != 0 {
		t.Errorf("got: %v", err)
	}
}

// Nobody answers, so nobody but this machine's clock can say that it is too late.
func TestEnrolExpiredAndUnreachable(t *testing.T) {
	a := newApplicant()
	a.Now = func() time.Time { return time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC) }
	_, err := a.Run(context.Background(), newPlane(t, 1).token("one", closed(t)).Encode())
	if err == nil || !strings.Contains(err.Error(), "no plane answers") || !strings.Contains(err.Error(), "expired") || len(a.notes) != 0 {
		t.Errorf("got %v, notes %q", err, a.notes)
	}
}

// The machine's clock is fifty years off either way: it joins, and says so.
func TestCaseP7EnrolWithAWrongClock(t *testing.T) {
	for year, want := range map[int]string{1970: "behind the plane's", 2099: "ahead of the plane's"} {
		p := newPlane(t, 1)
		a := newApplicant()
		a.Now = func() time.Time { return time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC) }
		if _, err := a.Run(context.Background(), p.token("one", loopback(t, p)).Encode()); err != nil {
			t.Errorf("in %d: %v", year, err)
		}
		if len(a.notes) != 1 || !strings.HasSuffix(a.notes[0], want) {
			t.Errorf("in %d it said %q, want …%s", year, a.notes, want)
		}
	}
}

func TestEnrolOneAtATime(t *testing.T) {
	a := newApplicant()
	lock, _ := a.folder.Lock("lock")
	defer lock.Close()
	p := newPlane(t, 1)
	if _, err := a.Run(context.Background(), p.token("one", closed(t)).Encode()); !errors.Is(err, agent.ErrEnrolling) {
		t.Errorf("got: %v", err)
	}
}

// A damaged identity is said, and replaced by a new enrolment.
func TestEnrolReplacesADamagedIdentity(t *testing.T) {
	p := newPlane(t, 1)
	a := newApplicant()
	a.folder.files["identity"] = []byte("\x00\x00")
	if _, err := agent.ReadMembership(a.folder); err == nil || !strings.Contains(err.Error(), "enrol it again with a new token") {
		t.Errorf("got: %v", err)
	}
	if _, err := a.Run(context.Background(), p.token("one", loopback(t, p)).Encode()); err != nil {
		t.Fatal(err)
	}
	if len(a.notes) != 1 || !strings.Contains(a.notes[0], "cannot be read and is replaced") {
		t.Errorf("notes: %q", a.notes)
	}
}

func TestEnrolRefusesAGrantThatMakesNoSense(t *testing.T) {
	p := newPlane(t, 1)
	p.mesh = "No\nMesh"
	_, err := newApplicant().Run(context.Background(), p.token("one", loopback(t, p)).Encode())
	if err == nil || !strings.Contains(err.Error(), `"No Mesh" is not the name of a mesh or a node`) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got: %v", err)
	}
}
