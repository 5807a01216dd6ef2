package identity

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"time"
)

// noExpiry is the date of certificates with no well-defined expiry:
// https://www.rfc-editor.org/rfc/rfc5280#section-4.1.2.5
var noExpiry = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// selfSigned is a pure function of key and name: fixed serial, fixed dates, and
// an Ed25519 signature, which takes no randomness.
func selfSigned(key ed25519.PrivateKey, name string) (tls.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Unix(0, 0).UTC(),
		NotAfter:     noExpiry,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make certificate for %s: %v", name, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make certificate for %s: %v", name, err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}
