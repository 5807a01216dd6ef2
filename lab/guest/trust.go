package guest

import (
	"crypto/sha1" //nolint:gosec // names, not secrets
	"crypto/x509"
	"encoding/asn1"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"strings"
	"unicode"
)

// Trust are the files that make a machine trust root certificates (PEM), beside
// those that it trusts: what update-ca-certificates(8) would make, which starts
// a process for every certificate of the system and takes a minute under
// emulation. Run later, it comes to the same.
func Trust(roots []byte) ([]File, error) {
	const certs = "/etc/ssl/certs/"
	var files []File
	seen := map[string]int{}
	for n := 1; ; n++ {
		var block *pem.Block
		if block, roots = pem.Decode(roots); block == nil {
			return files, nil
		}
		hash, err := subjectHash(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("root certificate %d: %w", n, err)
		}
		text := pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})
		name := fmt.Sprintf("world-%d", n)
		source := "/usr/local/share/ca-certificates/" + name + ".crt"
		files = append(files,
			File{Path: source, Mode: 0o644, Content: text},
			File{Path: certs + name + ".pem", Link: source},
			File{Path: fmt.Sprintf("%s%s.%d", certs, hash, seen[hash]), Link: name + ".pem"},
			File{Path: certs + "ca-certificates.crt", Content: text, Append: true},
		)
		seen[hash]++
	}
}

// attribute is one of a distinguished name; relativeSET what X.501 makes of
// several. Package asn1 takes a type whose name ends so for a set.
type attribute struct {
	Type  asn1.ObjectIdentifier
	Value asn1.RawValue
}

type relativeSET []attribute

// subjectHash is the name under which OpenSSL looks for a certificate:
// X509_NAME_hash(3), the first four bytes, little-endian, of the SHA-1 of the
// subject in a canonical form.
func subjectHash(der []byte) (string, error) {
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return "", err
	}
	var name []relativeSET
	if _, err := asn1.Unmarshal(c.RawSubject, &name); err != nil {
		return "", fmt.Errorf("read its subject: %w", err)
	}
	var canonical []byte
	for _, set := range name {
		for i, a := range set {
			switch a.Value.Tag {
			case asn1.TagUTF8String, asn1.TagPrintableString, asn1.TagIA5String:
				text := []byte(canonicalText(string(a.Value.Bytes)))
				set[i].Value = asn1.RawValue{Tag: asn1.TagUTF8String, Bytes: text}
			}
		}
		encoded, err := asn1.Marshal(set)
		if err != nil {
			return "", fmt.Errorf("write its subject: %w", err)
		}
		canonical = append(canonical, encoded...)
	}
	sum := sha1.Sum(canonical)
	return fmt.Sprintf("%08x", binary.LittleEndian.Uint32(sum[:4])), nil
}

// canonicalText is in lower case, as far as that is ASCII, with one space for many.
func canonicalText(s string) string {
	fields := strings.FieldsFunc(s, func(r rune) bool { return r < unicode.MaxASCII && unicode.IsSpace(r) })
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, strings.Join(fields, " "))
}
