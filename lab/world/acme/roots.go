package acme

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// Names of the two roots, as their certificates and their comments in PEM say.
const (
	transportRoot = "Lab world, root of its own servers"
	issuingRoot   = "Lab world, root of the public issuer"
)

// lifetime is how long the servers' root and certificate last; a snapshot of a
// scenario may be restored long after.
const lifetime = 10 * 365 * 24 * time.Hour

// newTransport makes a root of its own and a certificate under it for a server
// with that name and those addresses. The root's key is thrown away.
func newTransport(name string, addrs []netip.Addr, now time.Time) (root *x509.Certificate, leaf tls.Certificate, err error) {
	rootKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, leaf, fmt.Errorf("make a root key: %v", err)
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, leaf, fmt.Errorf("make a server key: %v", err)
	}
	rootForm := &x509.Certificate{
		Subject:               pkix.Name{CommonName: transportRoot},
		NotBefore:             now.Add(-time.Hour), // for machines whose clock is a little late
		NotAfter:              now.Add(lifetime),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	rootDER, err := x509.CreateCertificate(rand.Reader, rootForm, rootForm, rootKey.Public(), rootKey)
	if err == nil {
		root, err = x509.ParseCertificate(rootDER)
	}
	if err != nil {
		return nil, leaf, fmt.Errorf("make a root certificate: %v", err)
	}
	leafForm := &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		DNSNames:    []string{name},
		NotBefore:   rootForm.NotBefore,
		NotAfter:    rootForm.NotAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, a := range addrs {
		leafForm.IPAddresses = append(leafForm.IPAddresses, net.IP(a.AsSlice()))
	}
	der, err := x509.CreateCertificate(rand.Reader, leafForm, root, leafKey.Public(), rootKey)
	if err != nil {
		return nil, leaf, fmt.Errorf("make a server certificate: %v", err)
	}
	return root, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: leafKey}, nil
}

// newExpired makes a root whose time is over and, under it, a certificate for the
// issuer's own intermediate that ended with it: what was issued stays what it is,
// and everything above it has expired. Both DER. The root's key is thrown away.
func newExpired(of *x509.Certificate, now time.Time) (root, intermediate []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a root key: %v", err)
	}
	rootForm := &x509.Certificate{
		Subject:   pkix.Name{CommonName: issuingRoot + ", expired"},
		NotBefore: now.Add(-lifetime), NotAfter: now.Add(-24 * time.Hour),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true, IsCA: true,
	}
	root, err = x509.CreateCertificate(rand.Reader, rootForm, rootForm, key.Public(), key)
	if err != nil {
		return nil, nil, fmt.Errorf("make an expired root: %v", err)
	}
	parent, err := x509.ParseCertificate(root)
	if err != nil {
		return nil, nil, fmt.Errorf("make an expired root: %v", err)
	}
	form := &x509.Certificate{
		RawSubject: of.RawSubject, SubjectKeyId: of.SubjectKeyId,
		NotBefore: rootForm.NotBefore, NotAfter: rootForm.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: of.ExtKeyUsage,
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	intermediate, err = x509.CreateCertificate(rand.Reader, form, parent, of.PublicKey, key)
	if err != nil {
		return nil, nil, fmt.Errorf("make an expired intermediate: %v", err)
	}
	return root, intermediate, nil
}

// chain writes certificates in PEM, one after the other.
func chain(ders ...[]byte) (text []byte) {
	for _, der := range ders {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return text
}

// bundle writes certificates in PEM, each under a line that says what it is:
// text between the blocks is allowed (RFC 7468, section 2).
func bundle(roots ...namedRoot) []byte {
	var b bytes.Buffer
	for _, r := range roots {
		fmt.Fprintf(&b, "# %s\n", r.name)
		b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.der}))
	}
	return b.Bytes()
}

type namedRoot struct {
	name string
	der  []byte
}
