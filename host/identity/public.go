package identity

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
)

// NodePublicKey is what the plane knows a node by. Comparable; usable as a map
// key. The zero value is no key.
type NodePublicKey struct{ key [ed25519.PublicKeySize]byte }

// ParseNodePublicKey reads what String wrote.
func ParseNodePublicKey(text string) (NodePublicKey, error) {
	k, err := parseKey(nodePublic, text)
	return NodePublicKey{k}, err
}

// NodeKeyOf takes a node's identity from the leaf of a connection. The caller
// must know that the peer holds the key, as a finished TLS handshake shows. Any
// key but Ed25519 is refused.
func NodeKeyOf(leaf *x509.Certificate) (NodePublicKey, error) {
	public, ok := leaf.PublicKey.(ed25519.PublicKey)
	if !ok || len(public) != ed25519.PublicKeySize {
		return NodePublicKey{}, errors.New("read node key: the certificate is not one of an Ed25519 key")
	}
	return NodePublicKey{[ed25519.PublicKeySize]byte(public)}, nil
}

// IsZero tells whether there is no key.
func (k NodePublicKey) IsZero() bool { return k == NodePublicKey{} }

// String is "nodekey:" and 64 hex digits.
func (k NodePublicKey) String() string { return nodePublic + hex.EncodeToString(k.key[:]) }

// MarshalText writes String.
func (k NodePublicKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads String.
func (k *NodePublicKey) UnmarshalText(text []byte) (err error) {
	*k, err = ParseNodePublicKey(string(text))
	return err
}

// DeclarationPublicKey is what a host verifies declarations with. Comparable.
// The zero value is no key and verifies nothing.
type DeclarationPublicKey struct{ key [ed25519.PublicKeySize]byte }

// ParseDeclarationPublicKey reads what String wrote.
func ParseDeclarationPublicKey(text string) (DeclarationPublicKey, error) {
	k, err := parseKey(declarationPublic, text)
	return DeclarationPublicKey{k}, err
}

// Verify tells whether signature is Sign of the same message and context.
func (k DeclarationPublicKey) Verify(message []byte, context string, signature []byte) bool {
	return !k.IsZero() &&
		ed25519.VerifyWithOptions(k.key[:], message, signature, &ed25519.Options{Context: context}) == nil
}

// IsZero tells whether there is no key.
func (k DeclarationPublicKey) IsZero() bool { return k == DeclarationPublicKey{} }

// String is "declkey:" and 64 hex digits.
func (k DeclarationPublicKey) String() string {
	return declarationPublic + hex.EncodeToString(k.key[:])
}

// MarshalText writes String.
func (k DeclarationPublicKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads String.
func (k *DeclarationPublicKey) UnmarshalText(text []byte) (err error) {
	*k, err = ParseDeclarationPublicKey(string(text))
	return err
}

const pinPrefix = "pin:"

// Pin is what hosts know the plane by: the SHA-256 of its link key's
// SubjectPublicKeyInfo. Comparable. The zero value is no pin.
type Pin struct{ sum [sha256.Size]byte }

func pinOf(spki []byte) Pin { return Pin{sha256.Sum256(spki)} }

// PinOf is the pin of the key in a certificate.
func PinOf(leaf *x509.Certificate) Pin { return pinOf(leaf.RawSubjectPublicKeyInfo) }

// ParsePin reads what String wrote.
func ParsePin(text string) (Pin, error) {
	sum, err := parseKey(pinPrefix, text)
	if err != nil {
		return Pin{}, fmt.Errorf("read pin: %v", err)
	}
	return Pin{sum}, nil
}

// IsZero tells whether there is no pin.
func (p Pin) IsZero() bool { return p == Pin{} }

// String is "pin:" and 64 hex digits.
func (p Pin) String() string { return pinPrefix + hex.EncodeToString(p.sum[:]) }

// MarshalText writes String.
func (p Pin) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads String.
func (p *Pin) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePin(string(text))
	return err
}
