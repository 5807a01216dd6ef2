package guest_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mesh/lab/guest"
)

// certificate makes one of that subject, in DER.
func certificate(t *testing.T, subject pkix.Name) []byte {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: subject, NotAfter: time.Now().Add(time.Hour), IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func TestSubjectHashIsOpenSSLs(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("needs openssl")
	}
	printable := func(s string) asn1.RawValue {
		return asn1.RawValue{Tag: asn1.TagPrintableString, Bytes: []byte(s)}
	}
	commonName := asn1.ObjectIdentifier{2, 5, 4, 3}
	for name, subject := range map[string]pkix.Name{
		"plain":          {CommonName: "Pebble Root CA 123456"},
		"several":        {CommonName: "Root", Organization: []string{"An Org", "Another"}, Country: []string{"DE"}},
		"spaces":         {CommonName: "  Two  Spaces\tand a tab "},
		"other letters":  {CommonName: "Größe ÄÖÜ"},
		"empty":          {},
		"of another tag": {ExtraNames: []pkix.AttributeTypeAndValue{{Type: commonName, Value: printable("Old  Root")}}},
	} {
		t.Run(name, func(t *testing.T) {
			der := certificate(t, subject)
			file := filepath.Join(t.TempDir(), "c.pem")
			if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
				t.Fatal(err)
			}
			want, err := exec.Command("openssl", "x509", "-noout", "-subject_hash", "-in", file).Output()
			if err != nil {
				t.Fatal(err)
			}
			got, err := guest.SubjectHash(der)
			if err != nil || got != strings.TrimSpace(string(want)) {
				t.Errorf("%q, %v, want %s", got, err, want)
			}
		})
	}
}

// Two roots of one name are both found by their hash.
func TestTrust(t *testing.T) {
	var roots bytes.Buffer
	for range 2 {
		roots.WriteString("# a root\n")
		if err := pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: certificate(t, pkix.Name{CommonName: "Root"})}); err != nil {
			t.Fatal(err)
		}
	}
	files, err := guest.Trust(roots.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	links := map[string]string{}
	bundle := ""
	for _, f := range files {
		if f.Link != "" {
			links[filepath.Base(f.Path)] = f.Link
		}
		if f.Append {
			bundle += string(f.Content)
		}
	}
	hash, err := guest.SubjectHash(certificate(t, pkix.Name{CommonName: "Root"}))
	if err != nil {
		t.Fatal(err)
	}
	if links[hash+".0"] != "world-1.pem" || links[hash+".1"] != "world-2.pem" || !strings.HasSuffix(links["world-2.pem"], "/world-2.crt") {
		t.Errorf("links: %v", links)
	}
	if strings.Count(bundle, "BEGIN CERTIFICATE") != 2 || strings.Contains(bundle, "#") {
		t.Errorf("bundle:\n%s", bundle)
	}
	if _, err := guest.Trust(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("none")})); err == nil {
		t.Error("what is no certificate is trusted")
	}
}
