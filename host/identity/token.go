package identity

import (
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"strings"
	"time"
)

// Errors of ParseToken and CheckTime match one of these.
var (
	ErrToken   = errors.New("token cannot be used") // not a whole, unchanged token of a version read here
	ErrExpired = errors.New("token has expired")
)

// Limits of a token, so that it stays one line.
const (
	MaxTokenPins      = 8
	MaxTokenAddresses = 16
)

// Token lets one machine ask for membership once. Everything about it but the
// secret can be checked by who holds it, offline.
type Token struct {
	Expires   time.Time        // whole seconds, UTC, by the plane's clock
	Pins      []Pin            // the plane is proved by any of them; at least one
	Addresses []netip.AddrPort // the plane over the underlay, in the order to try; at least one
	ID        [8]byte          // names the token at the plane; not secret
	Secret    Secret
}

const (
	tokenName    = "mesh"
	tokenPrefix  = tokenName + "1"
	tokenVersion = 1
)

var (
	// RFC 4648 §6 in lower case, so that it is read aloud and typed with one hand.
	tokenText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
	// A CRC-32 finds every burst of up to 32 bits, so every single letter changed.
	tokenSum = crc32.MakeTable(crc32.Castagnoli)
)

// Check reports the first thing that keeps t from being written.
func (t Token) Check() error {
	switch {
	case t.Expires.Unix() <= 0:
		return errors.New("token has no expiry")
	case len(t.Pins) == 0 || len(t.Pins) > MaxTokenPins:
		return fmt.Errorf("token has %d pins, wanted 1 to %d", len(t.Pins), MaxTokenPins)
	case len(t.Addresses) == 0 || len(t.Addresses) > MaxTokenAddresses:
		return fmt.Errorf("token has %d addresses, wanted 1 to %d", len(t.Addresses), MaxTokenAddresses)
	case t.Secret.IsZero():
		return errors.New("token has no secret")
	}
	for _, a := range t.Addresses {
		if !a.IsValid() || a.Port() == 0 || a.Addr().IsUnspecified() || a.Addr().Zone() != "" || a.Addr().Is4In6() {
			return fmt.Errorf("token has address %s, which cannot be dialled from another machine", a)
		}
	}
	return nil
}

// IDText is the id in hex, as link.EnrolRequest carries it.
func (t Token) IDText() string { return hex.EncodeToString(t.ID[:]) }

// Encode writes the token as its one line of text, which holds the secret.
// A token that fails Check is the empty string.
func (t Token) Encode() string {
	if t.Check() != nil {
		return ""
	}
	b := []byte{tokenVersion}
	b = binary.BigEndian.AppendUint64(b, uint64(t.Expires.Unix()))
	b = append(b, byte(len(t.Pins)))
	for _, p := range t.Pins {
		b = append(b, p.sum[:]...)
	}
	b = append(b, byte(len(t.Addresses)))
	for _, a := range t.Addresses {
		b = append(b, byte(a.Addr().BitLen()/8))
		b = append(b, a.Addr().AsSlice()...)
		b = binary.BigEndian.AppendUint16(b, a.Port())
	}
	b = append(b, t.ID[:]...)
	secret := t.Secret.SecretBytes()
	b = append(b, secret[:]...)
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, tokenSum))
	return tokenPrefix + tokenText.EncodeToString(b)
}

// tokenError is one line about a token, never with any of it but a position.
type tokenError struct{ why string }

func (e tokenError) Error() string        { return "token cannot be used: " + e.why }
func (e tokenError) Is(target error) bool { return target == ErrToken }
func (e tokenError) ExitCode() int        { return 2 }

func badToken(format string, args ...any) (Token, error) {
	return Token{}, tokenError{fmt.Sprintf(format, args...)}
}

// ParseToken reads what Encode wrote; white space around it does not matter.
// Its errors match ErrToken and are one line each. It does not look at the
// expiry: see CheckTime.
func ParseToken(text string) (Token, error) {
	text = strings.TrimSpace(text)
	body, ok := strings.CutPrefix(text, tokenPrefix)
	switch {
	case text == "":
		return badToken("it is empty; issue one with `mesh-plane token issue`")
	case !ok && strings.HasPrefix(tokenPrefix, text):
		return badToken("it is cut short after %d characters; copy the whole line", len(text))
	case !ok:
		return badToken("it does not begin with %q, so it is not a token of a mesh this host can join; copy the whole line", tokenPrefix)
	case len(body) > maxTokenText:
		return badToken("it has %d characters, no token has more than %d; copy one line only", len(text), len(tokenPrefix)+maxTokenText)
	}
	if i := strings.IndexFunc(body, func(r rune) bool { return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz234567", r) }); i >= 0 {
		return badToken("character %d is not one a token has; copy it again", len(tokenPrefix)+i+1)
	}
	b, err := tokenText.DecodeString(body)
	whole := err == nil && tokenText.EncodeToString(b) == body
	if whole && len(b) > 4 && crc32.Checksum(b[:len(b)-4], tokenSum) == binary.BigEndian.Uint32(b[len(b)-4:]) {
		return readToken(b[:len(b)-4])
	}
	have := len(body) * 5 / 8
	if tokenBytes(b) > have {
		return badToken("it is cut short after %d characters; copy the whole line", len(text))
	}
	return badToken("its checksum does not match: a character was changed, lost or added; copy it again")
}

// maxTokenText is the length of the longest body, every address an IPv6 one.
var maxTokenText = tokenText.EncodedLen(1 + 8 + 1 + MaxTokenPins*32 + 1 + MaxTokenAddresses*19 + 8 + SecretSize + 4)

// tokenBytes is how many bytes a token with this beginning has, at least.
func tokenBytes(b []byte) int {
	r := reader{b: b}
	r.take(9)
	r.take(32 * int(r.byte()))
	for range r.byte() {
		r.take(int(r.byte()) + 2)
	}
	r.take(8 + SecretSize + 4)
	return r.asked
}

// readToken reads bytes whose checksum was right.
func readToken(b []byte) (Token, error) {
	r := reader{b: b}
	if version := r.byte(); version != tokenVersion {
		return badToken("it is of version %d and this host reads version %d: upgrade mesh-host", version, tokenVersion)
	}
	t := Token{Expires: time.Unix(int64(binary.BigEndian.Uint64(r.take(8))), 0).UTC()}
	for range min(r.byte(), MaxTokenPins+1) {
		t.Pins = append(t.Pins, Pin{[32]byte(r.take(32))})
	}
	for range min(r.byte(), MaxTokenAddresses+1) {
		addr, ok := netip.AddrFromSlice(r.take(int(r.byte())))
		port := binary.BigEndian.Uint16(r.take(2))
		if !ok {
			return badToken("an address in it is of no known family")
		}
		t.Addresses = append(t.Addresses, netip.AddrPortFrom(addr, port))
	}
	copy(t.ID[:], r.take(8))
	t.Secret = SecretOf([SecretSize]byte(r.take(SecretSize)))
	if r.asked != len(b) {
		return badToken("its parts do not add up")
	}
	if err := t.Check(); err != nil {
		return badToken("%v", err)
	}
	return t, nil
}

// reader takes bytes from the front; past the end it gives zeros and goes on
// counting what was asked for.
type reader struct {
	b     []byte
	asked int
}

func (r *reader) take(n int) []byte {
	out := make([]byte, n)
	if r.asked < len(r.b) {
		copy(out, r.b[r.asked:])
	}
	r.asked += n
	return out
}

func (r *reader) byte() byte { return r.take(1)[0] }

// CheckTime reports, matching ErrExpired, a token that had its time at now. The
// plane's clock decides; a machine whose own clock is wrong is not to be kept
// out by this.
func (t Token) CheckTime(now time.Time) error {
	if now.Before(t.Expires) {
		return nil
	}
	return fmt.Errorf("%w: it could be used until %s and now it is %s; issue another with `mesh-plane token issue`",
		ErrExpired, t.Expires.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
}
