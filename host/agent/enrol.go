package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"strings"
	"time"
	"unicode"

	"connectrpc.com/connect"

	"mesh/host/identity"
	"mesh/host/link"
	"mesh/host/store"
)

// Enrolment is what asking for membership needs.
type Enrolment struct {
	Identity Folder
	Facts    Facts
	Random   io.Reader
	Now      func() time.Time
	Dial     Dial         // nil means the network of this machine
	Note     func(string) // one line on what is going on; nil means nobody listens

	// EnsureRecord makes this machine's record durably where there is none, before
	// the machine is a member: from then on one that is missing was lost. nil means
	// that there is one.
	EnsureRecord func() error

	// Again lets a machine that is a member of a mesh enrol anew, with a new
	// key. It stays what it was until the plane has admitted it.
	Again bool
}

// ErrEnrolling says that an enrolment of this machine is going on.
var ErrEnrolling = errors.New("another enrolment is running on this machine")

// EnrolledError refuses a token on a machine that is a member already.
type EnrolledError struct{ Mesh, Node string }

func (e *EnrolledError) Error() string {
	return fmt.Sprintf("enrol: this machine is node %s of mesh %s already, and a machine is a member of one mesh; to give that up for what the token is for, use --again", e.Node, e.Mesh)
}

// RefusedError is the plane's answer when it does not admit this machine. The
// machine is as it was.
type RefusedError struct {
	Reason  link.Reason // empty when the plane gave none
	Message string      // one line
}

func (e *RefusedError) Error() string { return "enrol: the plane refused: " + e.Message }

// ExitCode is 2 where the token is at fault, else 1.
func (e *RefusedError) ExitCode() int {
	switch e.Reason {
	case link.ReasonTokenUnknown, link.ReasonTokenExpired, link.ReasonTokenSpent:
		return 2
	}
	return 1
}

// WrongPlaneError says that the addresses in the token lead to planes that do
// not have the keys it names. The secret was not used; the machine is as it was.
type WrongPlaneError struct{ Detail string }

func (e *WrongPlaneError) Error() string {
	return "enrol: the token is for another plane than the one at its address: " + e.Detail + "; issue a token at the plane this machine shall join"
}

// ExitCode is that of a wrong token.
func (e *WrongPlaneError) ExitCode() int { return 2 }

// Run asks the plane named by the token for membership and records it durably.
// Everything that can be known without the plane is checked first. The node's
// key is durable before the request is made: when this machine stops between
// the plane's grant and its record, the same token may be presented again.
//
// Errors: those of identity.ParseToken; *EnrolledError, *RefusedError,
// *WrongPlaneError; ErrEnrolling is matched while another enrolment runs. Of
// all others, and when the plane cannot be reached, nothing is left behind,
// unless the request was made and its answer lost, which the message says.
func (e Enrolment) Run(ctx context.Context, text string) (Membership, error) {
	token, err := identity.ParseToken(text)
	if err != nil {
		return Membership{}, err
	}
	lock, err := e.Identity.Lock(identityLock)
	if errors.Is(err, store.ErrLocked) {
		return Membership{}, fmt.Errorf("enrol: %w", ErrEnrolling)
	}
	if err != nil {
		return Membership{}, fmt.Errorf("enrol: %w", err)
	}
	defer lock.Close()
	m, err := e.locked(ctx, token)
	if _, absent := e.Identity.Read(identityName); err != nil && errors.Is(absent, fs.ErrNotExist) {
		// The lock is all there is: there was nothing to be locked.
		err = errors.Join(err, e.Identity.Remove(identityLock))
	}
	return m, err
}

// locked is Run while no other enrolment of this machine goes on.
func (e Enrolment) locked(ctx context.Context, token identity.Token) (Membership, error) {
	held, err := readIdentity(e.Identity)
	if errors.Is(err, errDamaged) {
		e.note("what was recorded of an earlier identity cannot be read and is replaced")
		held, err = identityFile{}, nil
	}
	if err != nil {
		return Membership{}, fmt.Errorf("enrol: %v", err)
	}
	if held.Member != nil && !e.Again {
		return Membership{}, &EnrolledError{Mesh: held.Member.Mesh, Node: held.Member.Node}
	}
	key, err := e.key(held, token)
	if err != nil {
		return Membership{}, err
	}
	return e.ask(ctx, token, key, held)
}

// key is the key of an earlier attempt with the same token, else a new one. It
// is not durable yet.
func (e Enrolment) key(held identityFile, token identity.Token) (identity.NodeKey, error) {
	if held.Attempt != nil && held.Attempt.TokenID == token.IDText() {
		if key, err := identity.ParseNodeKey(held.Attempt.Key); err == nil {
			e.note("going on with the enrolment that was begun at " + held.Attempt.Time.Format(time.RFC3339))
			return key, nil
		}
	}
	key, err := identity.NewNodeKey(e.Random)
	if err != nil {
		return identity.NodeKey{}, fmt.Errorf("enrol: %v", err)
	}
	return key, nil
}

func (e Enrolment) ask(ctx context.Context, token identity.Token, key identity.NodeKey, held identityFile) (Membership, error) {
	profile, err := e.Facts.Profile()
	if err != nil {
		return Membership{}, fmt.Errorf("enrol: %v", err)
	}
	has, err := e.Facts.Inventory()
	if err != nil {
		return Membership{}, fmt.Errorf("enrol: %v", err)
	}
	dial := e.Dial
	if dial == nil {
		dial = dialNetwork
	}
	c, err := dialAny(ctx, dial, token.Addresses, token.Pins, key)
	if err != nil {
		return Membership{}, unreached(err, token.CheckTime(e.Now()))
	}
	defer c.Close()
	exporter, err := c.state.ExportKeyingMaterial(link.ExporterLabel, nil, 32)
	if err != nil {
		return Membership{}, fmt.Errorf("enrol: bind the proof to the connection: %v", err)
	}
	held.Attempt = &attempt{Key: key.SecretText(), TokenID: token.IDText(), Time: e.Now().UTC()}
	if err := writeIdentity(e.Identity, held); err != nil {
		return Membership{}, fmt.Errorf("enrol: %v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, enrolTimeout)
	defer cancel()
	response, err := call[link.EnrolRequest, link.EnrolResponse](ctx, c, link.ProcedureEnrol, &link.EnrolRequest{
		Protocol:  link.Protocol,
		TokenID:   token.IDText(),
		Proof:     identity.Proof(token.Secret, exporter, key.Public()),
		Profile:   profile,
		Inventory: has,
	})
	if err != nil {
		return Membership{}, e.refused(err, held)
	}
	return e.record(token, key, response)
}

// unreached is the error where no request was made. The plane's clock decides
// whether a token has expired, because this machine's may be days off; but where
// no plane answers, expired, by this machine's clock, is worth a word.
func unreached(err, expired error) error {
	var failed unreachableError
	if errors.As(err, &failed) && failed.wrongPlane() {
		return &WrongPlaneError{Detail: failed.Error()}
	}
	aside := ""
	if expired != nil {
		aside = "; by this machine's clock the " + expired.Error()
	}
	return fmt.Errorf("enrol: no plane answers at the token's addresses: %s; check that this machine reaches one of them and that mesh-plane runs there%s", plain(err), aside)
}

// refused sorts the errors of the call: an answer that admits nobody, after
// which the machine is made as it was, and silence, after which nobody knows.
func (e Enrolment) refused(err error, held identityFile) error {
	var answer *connect.Error
	if errors.As(err, &answer) && connect.IsWireError(err) && decided(answer.Code()) {
		if err := e.undo(held); err != nil {
			return fmt.Errorf("enrol: the plane refused (%s), and the key made for it cannot be removed: %v", plain(answer), err)
		}
		return &RefusedError{Reason: link.Reason(answer.Meta().Get(link.ReasonHeader)), Message: plain(answer)}
	}
	return fmt.Errorf("enrol: the plane was asked and its answer is not known: %s; run the same command with the same token again", plain(err))
}

// undo takes the attempt out of the record.
func (e Enrolment) undo(held identityFile) error {
	if held.Attempt = nil; held.Member != nil {
		return writeIdentity(e.Identity, held)
	}
	return e.Identity.Remove(identityName)
}

// decided tells whether an answer with this code says that nothing was granted.
func decided(code connect.Code) bool {
	switch code {
	case connect.CodeUnknown, connect.CodeInternal, connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeCanceled, connect.CodeDataLoss:
		return false
	}
	return true
}

// record makes the grant durable.
func (e Enrolment) record(token identity.Token, key identity.NodeKey, r *link.EnrolResponse) (Membership, error) {
	granted, err := checkGrant(r)
	if err != nil {
		return Membership{}, fmt.Errorf("enrol: the plane's grant makes no sense: %v; are mesh-host and mesh-plane of like versions?", err)
	}
	if off := e.Now().Sub(r.Time).Round(time.Second); off.Abs() >= time.Minute && !r.Time.IsZero() {
		e.note(fmt.Sprintf("this machine's clock is %s %s the plane's", off.Abs(), map[bool]string{true: "ahead of", false: "behind"}[off > 0]))
	}
	if err := e.ensureRecord(); err != nil {
		return Membership{}, unrecorded(err)
	}
	f := identityFile{Member: &member{
		Key: key.SecretText(), Mesh: r.Mesh, Node: r.Node, Addresses: r.Addresses,
		Plane: token.Addresses, Pins: token.Pins, DeclarationKey: granted, Since: e.Now().UTC(),
	}}
	if err := writeIdentity(e.Identity, f); err != nil {
		return Membership{}, unrecorded(err)
	}
	m, err := f.membership()
	if err != nil {
		return Membership{}, fmt.Errorf("enrol: %v", err)
	}
	return *m, nil
}

func (e Enrolment) ensureRecord() error {
	if e.EnsureRecord == nil {
		return nil
	}
	return e.EnsureRecord()
}

func unrecorded(err error) error {
	return fmt.Errorf("enrol: the plane admitted this machine, but: %v; run the same command with the same token again", err)
}

// checkGrant refuses a grant that could not be used.
func checkGrant(r *link.EnrolResponse) (identity.DeclarationPublicKey, error) {
	if r.Protocol < link.OldestProtocol || r.Protocol > link.Protocol {
		return identity.DeclarationPublicKey{}, fmt.Errorf("it is of protocol %d, and this mesh-host speaks %d to %d", r.Protocol, link.OldestProtocol, link.Protocol)
	}
	for _, name := range []string{r.Mesh, r.Node} {
		if name == "" || len(name) > 63 || strings.ContainsFunc(name, func(c rune) bool {
			return c > unicode.MaxASCII || c != '-' && !unicode.IsLower(c) && !unicode.IsDigit(c)
		}) {
			return identity.DeclarationPublicKey{}, fmt.Errorf("%q is not the name of a mesh or a node", oneLine(name))
		}
	}
	for _, a := range r.Addresses {
		_, err := netip.ParseAddr(a)
		if _, prefixErr := netip.ParsePrefix(a); err != nil && prefixErr != nil {
			return identity.DeclarationPublicKey{}, fmt.Errorf("%q is not an address", oneLine(a))
		}
	}
	return identity.ParseDeclarationPublicKey(r.DeclarationKey)
}

func (e Enrolment) note(line string) {
	if e.Note != nil {
		e.Note(line)
	}
}
