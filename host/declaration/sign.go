package declaration

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"

	"mesh/host/identity"
)

// ErrSignature is matched by errors of Open when the bytes were not signed by
// the key given, or were changed since.
var ErrSignature = errors.New("declaration is not signed by this mesh")

// A signed declaration is text: this line, the signature in hex on a line, and
// the canonical declaration up to the end. The number is the version of this
// envelope; the declaration inside has its own.
const (
	envelopeName = "mesh signed declaration "
	envelope     = envelopeName + "1\n"
)

// maxSignature bounds the line of the signature that is looked at.
const maxSignature = 4096

// signedFor is the Ed25519ctx context (RFC 8032 §5.1): a signature made for
// anything else with the same key is not one of a declaration.
const signedFor = "mesh declaration 1"

// Sign writes d for the link: canonical, with the signature before it. digest
// names the canonical bytes. It refuses what Check refuses.
func Sign(d Declaration, key identity.DeclarationKey) (signed []byte, digest string, err error) {
	payload, err := d.Canonical()
	if err != nil {
		return nil, "", err
	}
	if len(payload) > MaxBytes {
		return nil, "", refuse("declaration", Problem{Message: fmt.Sprintf("it has %d bytes, at most %d are read", len(payload), MaxBytes)})
	}
	signature := key.Sign(payload, signedFor)
	signed = make([]byte, 0, len(envelope)+2*len(signature)+1+len(payload))
	signed = append(signed, envelope...)
	signed = hex.AppendEncode(signed, signature)
	signed = append(signed, '\n')
	return append(signed, payload...), Digest(payload), nil
}

// Open verifies signed with key and only then reads the declaration in it, as
// strictly as Parse. The string is the digest of the declaration's bytes. It
// does not know which node, epoch or generation is wanted: that is the caller's
// to compare. Its errors match ErrSignature or ErrFormat, or are a
// *DocumentError.
func Open(signed []byte, key identity.DeclarationPublicKey) (Declaration, string, error) {
	signature, payload, err := split(signed)
	if err != nil {
		return Declaration{}, "", err
	}
	if !key.Verify(payload, signedFor, signature) {
		return Declaration{}, "", fmt.Errorf("open declaration: %w: the signature is not one of %s", ErrSignature, key)
	}
	return read(payload)
}

// Reopen reads what Open accepted once, from a record that nobody else can
// write, without the key. It verifies nothing.
func Reopen(signed []byte) (Declaration, string, error) {
	_, payload, err := split(signed)
	if err != nil {
		return Declaration{}, "", err
	}
	return read(payload)
}

func split(signed []byte) (signature, payload []byte, err error) {
	body, ok := bytes.CutPrefix(signed, []byte(envelope))
	if !ok && bytes.HasPrefix(signed, []byte(envelopeName)) {
		return nil, nil, fmt.Errorf("open declaration: %w: its envelope is of another version: upgrade mesh-host", ErrFormat)
	}
	if !ok {
		return nil, nil, fmt.Errorf("open declaration: %w: the envelope is missing", ErrSignature)
	}
	text, payload, ok := bytes.Cut(body, []byte("\n"))
	signature, err = hex.DecodeString(string(text[:min(len(text), maxSignature)]))
	if !ok || err != nil {
		return nil, nil, fmt.Errorf("open declaration: %w: the signature cannot be read", ErrSignature)
	}
	return signature, payload, nil
}

func read(payload []byte) (Declaration, string, error) {
	d, err := Parse(payload)
	if err != nil {
		return Declaration{}, "", err
	}
	return d, Digest(payload), nil
}
