package identity

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
)

// SecretSize is the length of a token's secret in bytes.
const SecretSize = 16

// Secret is what a token proves by. It lives in a closure, so that printing a
// value that holds one in an unexported field, where package fmt calls no
// methods, shows an address at most. The zero value holds no secret.
type Secret struct{ reveal func() [SecretSize]byte }

// NewSecret reads a secret from random.
func NewSecret(random io.Reader) (Secret, error) {
	var b [SecretSize]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return Secret{}, fmt.Errorf("make secret: %v", err)
	}
	return SecretOf(b), nil
}

// SecretOf copies b into a Secret.
func SecretOf(b [SecretSize]byte) Secret {
	return Secret{func() [SecretSize]byte { return b }}
}

// SecretBytes is the secret itself; all zero for the zero value.
func (s Secret) SecretBytes() [SecretSize]byte {
	if s.IsZero() {
		return [SecretSize]byte{}
	}
	return s.reveal()
}

// IsZero tells whether s holds no secret.
func (s Secret) IsZero() bool { return s.reveal == nil }

// Equal compares in constant time.
func (s Secret) Equal(other Secret) bool {
	a, b := s.SecretBytes(), other.SecretBytes()
	return s.IsZero() == other.IsZero() && hmac.Equal(a[:], b[:])
}

const redacted = "redacted"

// String does not show the secret; nor do GoString, Format and LogValue.
func (s Secret) String() string               { return redacted }
func (s Secret) GoString() string             { return redacted }
func (s Secret) Format(f fmt.State, _ rune)   { io.WriteString(f, redacted) }
func (s Secret) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// proofFor keeps this MAC apart from any other use of the same secret.
const proofFor = "mesh enrol 1\x00"

// Proof shows knowledge of s on one TLS connection without sending it: the
// HMAC-SHA256 over the connection's exporter value (link.ExporterLabel) and the
// node's public key.
func Proof(s Secret, exporter []byte, key NodePublicKey) []byte {
	secret := s.SecretBytes()
	mac := hmac.New(sha256.New, secret[:])
	mac.Write([]byte(proofFor))
	mac.Write(key.key[:])
	mac.Write(exporter)
	return mac.Sum(nil)
}

// VerifyProof tells in constant time whether proof is Proof of the same values.
// A zero Secret verifies nothing.
func VerifyProof(s Secret, exporter []byte, key NodePublicKey, proof []byte) bool {
	return !s.IsZero() && hmac.Equal(Proof(s, exporter, key), proof)
}
