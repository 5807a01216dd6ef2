package identity

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// Prefixes of the text forms. Each role has its own, so that a key of one role
// is never taken for one of another.
const (
	nodePublic        = "nodekey:"
	nodeSecret        = "nodekey-secret:"
	linkSecret        = "linkkey-secret:"
	declarationPublic = "declkey:"
	declarationSecret = "declkey-secret:"
)

// private is an Ed25519 private key in a closure, for the reason Secret gives.
// The zero value is no key.
type private struct{ reveal func() [ed25519.SeedSize]byte }

func privateOf(seed [ed25519.SeedSize]byte) private {
	return private{func() [ed25519.SeedSize]byte { return seed }}
}

func newPrivate(random io.Reader) (private, error) {
	var seed [ed25519.SeedSize]byte
	if _, err := io.ReadFull(random, seed[:]); err != nil {
		return private{}, fmt.Errorf("make key: %v", err)
	}
	return privateOf(seed), nil
}

func parsePrivate(prefix, text string) (private, error) {
	b, err := parseKey(prefix, text)
	if err != nil {
		return private{}, err
	}
	return privateOf(b), nil
}

func (p private) key() ed25519.PrivateKey {
	seed := p.reveal()
	return ed25519.NewKeyFromSeed(seed[:])
}

func (p private) secretText(prefix string) string {
	seed := p.reveal()
	return prefix + hex.EncodeToString(seed[:])
}

func (p private) public() (k [ed25519.PublicKeySize]byte) {
	copy(k[:], p.key().Public().(ed25519.PublicKey))
	return k
}

// parseKey never repeats the text in its error: it may be a secret.
func parseKey(prefix, text string) (k [32]byte, err error) {
	digits, ok := strings.CutPrefix(text, prefix)
	if !ok {
		return k, fmt.Errorf("read key: it does not begin with %q", prefix)
	}
	if len(digits) != 2*len(k) || strings.Trim(digits, "0123456789abcdef") != "" {
		return k, fmt.Errorf("read key: %q is not followed by %d lower-case hex digits", prefix, 2*len(k))
	}
	_, err = hex.Decode(k[:], []byte(digits))
	return k, err
}

// NodeKey is a node's private key: made on the machine, never leaving it. The
// zero value is no key and may only be asked IsZero and to be printed.
type NodeKey struct{ private }

// NewNodeKey makes a key from 32 bytes of random.
func NewNodeKey(random io.Reader) (NodeKey, error) {
	p, err := newPrivate(random)
	return NodeKey{p}, err
}

// ParseNodeKey reads what SecretText wrote.
func ParseNodeKey(text string) (NodeKey, error) {
	p, err := parsePrivate(nodeSecret, text)
	return NodeKey{p}, err
}

// SecretText is the private key itself, for the file that keeps it.
func (k NodeKey) SecretText() string { return k.secretText(nodeSecret) }

// Public is the key the plane knows the node by.
func (k NodeKey) Public() NodePublicKey { return NodePublicKey{k.public()} }

// Certificate is the certificate of the host's end of the link: self-signed,
// the same bytes for the same key, valid for ever. The key is the identity;
// nothing in the certificate but the key is looked at.
func (k NodeKey) Certificate() (tls.Certificate, error) { return selfSigned(k.key(), "mesh node") }

// LinkKey is the plane's private key of the link; its Pin is in every token.
// The zero value is no key and may only be asked IsZero and to be printed.
type LinkKey struct{ private }

// NewLinkKey makes a key from 32 bytes of random.
func NewLinkKey(random io.Reader) (LinkKey, error) {
	p, err := newPrivate(random)
	return LinkKey{p}, err
}

// ParseLinkKey reads what SecretText wrote.
func ParseLinkKey(text string) (LinkKey, error) {
	p, err := parsePrivate(linkSecret, text)
	return LinkKey{p}, err
}

// SecretText is the private key itself, for the file that keeps it.
func (k LinkKey) SecretText() string { return k.secretText(linkSecret) }

// Certificate is the certificate of the plane's end of the link, made like a
// node's.
func (k LinkKey) Certificate() (tls.Certificate, error) { return selfSigned(k.key(), "mesh plane") }

// Pin is what hosts know the plane by.
func (k LinkKey) Pin() Pin {
	spki, err := x509.MarshalPKIXPublicKey(k.key().Public())
	if err != nil {
		panic(err) // an Ed25519 key always has this form
	}
	return pinOf(spki)
}

// DeclarationKey is the plane's private key that signs declarations. The zero
// value is no key and may only be asked IsZero and to be printed.
type DeclarationKey struct{ private }

// NewDeclarationKey makes a key from 32 bytes of random.
func NewDeclarationKey(random io.Reader) (DeclarationKey, error) {
	p, err := newPrivate(random)
	return DeclarationKey{p}, err
}

// ParseDeclarationKey reads what SecretText wrote.
func ParseDeclarationKey(text string) (DeclarationKey, error) {
	p, err := parsePrivate(declarationSecret, text)
	return DeclarationKey{p}, err
}

// SecretText is the private key itself, for the file that keeps it.
func (k DeclarationKey) SecretText() string { return k.secretText(declarationSecret) }

// Public is the key hosts pin at enrolment.
func (k DeclarationKey) Public() DeclarationPublicKey { return DeclarationPublicKey{k.public()} }

// Sign signs message for one use, named by context (Ed25519ctx, RFC 8032 §5.1;
// 1 to 255 bytes). The same values give the same signature.
func (k DeclarationKey) Sign(message []byte, context string) []byte {
	signature, err := k.key().Sign(nil, message, &ed25519.Options{Context: context})
	if err != nil {
		panic(err) // only a context of the wrong length, which is a constant of the caller
	}
	return signature
}

// IsZero tells whether there is no key.
func (p private) IsZero() bool { return p.reveal == nil }

// String does not show the key; nor do GoString, Format, LogValue and
// MarshalText.
func (p private) String() string               { return redacted }
func (p private) GoString() string             { return redacted }
func (p private) Format(f fmt.State, _ rune)   { io.WriteString(f, redacted) }
func (p private) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (p private) MarshalText() ([]byte, error) { return []byte(redacted), nil }
