package identity_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"testing"

	"mesh/host/identity"
)

func seed(b byte) *bytes.Reader { return bytes.NewReader(bytes.Repeat([]byte{b}, 32)) }

func linkKey(b byte) identity.LinkKey {
	k, err := identity.NewLinkKey(seed(b))
	if err != nil {
		panic(err)
	}
	return k
}

func nodeKey(b byte) identity.NodeKey {
	k, err := identity.NewNodeKey(seed(b))
	if err != nil {
		panic(err)
	}
	return k
}

func TestKeysReadBack(t *testing.T) {
	node, err := identity.ParseNodeKey(nodeKey(1).SecretText())
	if err != nil || node.Public() != nodeKey(1).Public() {
		t.Errorf("node key: %v", err)
	}
	link, err := identity.ParseLinkKey(linkKey(1).SecretText())
	if err != nil || link.Pin() != linkKey(1).Pin() {
		t.Errorf("link key: %v", err)
	}
	declaration, _ := identity.NewDeclarationKey(seed(1))
	again, err := identity.ParseDeclarationKey(declaration.SecretText())
	if err != nil || again.Public() != declaration.Public() {
		t.Errorf("declaration key: %v", err)
	}
	public, err := identity.ParseNodePublicKey(node.Public().String())
	if err != nil || public != node.Public() {
		t.Errorf("node public key: %v", err)
	}
	pin, err := identity.ParsePin(link.Pin().String())
	if err != nil || pin != link.Pin() {
		t.Errorf("pin: %v", err)
	}
	verify, err := identity.ParseDeclarationPublicKey(declaration.Public().String())
	if err != nil || verify != declaration.Public() {
		t.Errorf("declaration public key: %v", err)
	}
}

// A key of one role is never read as one of another, and an error never repeats
// what may have been a secret.
func TestKeysRefuse(t *testing.T) {
	secret := nodeKey(1).SecretText()
	digits := secret[len("nodekey-secret:"):]
	for _, text := range []string{"", digits, "linkkey-secret:" + digits, secret + "0", secret[:len(secret)-1], strings.ToUpper(secret), "nodekey-secret:" + strings.Repeat("g", 64), " " + secret} {
		if _, err := identity.ParseNodeKey(text); err == nil || strings.Contains(err.Error(), digits[:8]) {
			t.Errorf("ParseNodeKey(%q): %v", text, err)
		}
	}
	if _, err := identity.ParseNodePublicKey(linkKey(1).Pin().String()); err == nil {
		t.Error("a pin was read as a node key")
	}
	if _, err := identity.NewNodeKey(bytes.NewReader(make([]byte, 31))); err == nil {
		t.Error("a key was made of too little randomness")
	}
}

// The same key gives the same certificate; another gives another.
func TestCertificateIsAFunctionOfTheKey(t *testing.T) {
	first, err := nodeKey(1).Certificate()
	if err != nil {
		t.Fatal(err)
	}
	again, _ := nodeKey(1).Certificate()
	other, _ := nodeKey(2).Certificate()
	if !bytes.Equal(first.Certificate[0], again.Certificate[0]) || bytes.Equal(first.Certificate[0], other.Certificate[0]) {
		t.Error("certificates are not a function of the key")
	}
	if got, err := identity.NodeKeyOf(first.Leaf); err != nil || got != nodeKey(1).Public() {
		t.Errorf("NodeKeyOf = %v, %v", got, err)
	}
	if y := first.Leaf.NotAfter.Year(); y != 9999 || first.Leaf.NotBefore.Unix() != 0 {
		t.Errorf("valid from %s to %s", first.Leaf.NotBefore, first.Leaf.NotAfter)
	}
	link, _ := linkKey(3).Certificate()
	if identity.PinOf(link.Leaf) != linkKey(3).Pin() {
		t.Error("the pin of the certificate is not the pin of the key")
	}
}

func TestNodeKeyOfRefusesOtherKeys(t *testing.T) {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if _, err := identity.NodeKeyOf(&x509.Certificate{PublicKey: &key.PublicKey}); err == nil {
		t.Error("an ECDSA key was taken for a node's")
	}
}

// Both ends of a real handshake see each other's identity and the same exporter.
func TestCertificatesShakeHands(t *testing.T) {
	node, _ := nodeKey(1).Certificate()
	plane, _ := linkKey(2).Certificate()
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	srv := tls.Server(server, &tls.Config{Certificates: []tls.Certificate{plane}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true})
	cli := tls.Client(client, &tls.Config{
		Certificates: []tls.Certificate{node}, MinVersion: tls.VersionTLS13, InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if identity.PinOf(s.PeerCertificates[0]) != linkKey(2).Pin() {
				return errors.New("wrong plane")
			}
			return nil
		},
	})
	done := make(chan error, 1)
	go func() { done <- srv.HandshakeContext(context.Background()) }()
	if err := cli.HandshakeContext(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	state := srv.ConnectionState()
	key, err := identity.NodeKeyOf(state.PeerCertificates[0])
	if err != nil || key != nodeKey(1).Public() {
		t.Fatalf("the server saw %v, %v", key, err)
	}
	mine := cli.ConnectionState()
	a, _ := mine.ExportKeyingMaterial("EXPORTER-test", nil, 32)
	b, _ := state.ExportKeyingMaterial("EXPORTER-test", nil, 32)
	secret := identity.SecretOf([16]byte{1})
	if !identity.VerifyProof(secret, b, key, identity.Proof(secret, a, nodeKey(1).Public())) {
		t.Error("a good proof was refused")
	}
}

func TestProofCoversEverything(t *testing.T) {
	secret, exporter, key := identity.SecretOf([16]byte{1}), []byte("exporter"), nodeKey(1).Public()
	proof := identity.Proof(secret, exporter, key)
	if !identity.VerifyProof(secret, exporter, key, proof) {
		t.Fatal("a good proof was refused")
	}
	if identity.VerifyProof(identity.SecretOf([16]byte{2}), exporter, key, proof) {
		t.Error("another secret")
	}
	if identity.VerifyProof(secret, []byte("exporteR"), key, proof) {
		t.Error("another connection")
	}
	if identity.VerifyProof(secret, exporter, nodeKey(2).Public(), proof) {
		t.Error("another node")
	}
	if identity.VerifyProof(secret, exporter, key, proof[:31]) || identity.VerifyProof(secret, exporter, key, nil) {
		t.Error("a shortened proof")
	}
	zero := identity.Secret{}
	if identity.VerifyProof(zero, exporter, key, identity.Proof(zero, exporter, key)) {
		t.Error("no secret at all proved something")
	}
}

func TestSecretEqual(t *testing.T) {
	a, b, zero := identity.SecretOf([16]byte{1}), identity.SecretOf([16]byte{2}), identity.Secret{}
	if !a.Equal(identity.SecretOf([16]byte{1})) || a.Equal(b) || zero.Equal(identity.SecretOf([16]byte{})) || !zero.Equal(zero) {
		t.Error("Equal is wrong")
	}
	if s, err := identity.NewSecret(seed(4)); err != nil || s.SecretBytes()[15] != 4 {
		t.Errorf("NewSecret: %v", err)
	}
}
