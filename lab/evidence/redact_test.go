package evidence_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mesh/lab/evidence"
)

func TestRedact(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"plain", "unit one.service failed\n", "unit one.service failed\n"},
		{"no end", "password: hunter2hunter2", "password: (left out)"},
		{"token", "use mesh1abcdefgh234567, now\n", "use (token, left out), now\n"},
		{"a word", "mesh1 is no token\n", "mesh1 is no token\n"},
		{"key", "before\n-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----\nafter\n", "before\n(private key, left out)\nafter\n"},
		{"key in one line", `{"key":"-----BEGIN PRIVATE KEY-----\nMHc\n-----END PRIVATE KEY-----\n"}` + "\nafter\n", `{"key":"(private key, left out)` + "\nafter\n"},
		{"certificate", "-----BEGIN CERTIFICATE-----\nMIIB\n", "-----BEGIN CERTIFICATE-----\nMIIB\n"},
		{"wireguard", "PrivateKey = aGVsbG8gdGhlcmUgaGVsbG8gdGhlcmU=\n", "PrivateKey = (left out)\n"},
		{"public", "PublicKey = aGVsbG8gdGhlcmUgaGVsbG8gdGhlcmU=\n", "PublicKey = aGVsbG8gdGhlcmUgaGVsbG8gdGhlcmU=\n"},
		{"json", `{"token": "abcdefghijklmnop", "n": 1}` + "\n", `{"token": "(left out)", "n": 1}` + "\n"},
		{"short", "token: expired\n", "token: expired\n"},
		{"told", "it said swordfish\n", "it said (left out)\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, evidence.Redact([]string{"", " swordfish\n"}, c.text)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestRedactHoweverItComes: what is left out does not depend on how the text is
// cut into parts.
func TestRedactHoweverItComes(t *testing.T) {
	words := []string{"mesh1abcdefgh", " ", "\n", "swordfish", "word", "-----BEGIN PRIVATE KEY-----\n", "-----END PRIVATE KEY-----\n"}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 0, 20).Draw(t, "words"), "")
		cut := rapid.IntRange(0, len(text)).Draw(t, "cut")
		secrets := []string{"swordfish"}
		whole, parts := evidence.Redact(secrets, text), evidence.Redact(secrets, text[:cut], text[cut:])
		if whole != parts {
			t.Fatalf("%q: whole %q, in parts %q", text, whole, parts)
		}
		if strings.Contains(whole, "swordfish") || strings.Contains(whole, "BEGIN") {
			t.Fatalf("%q: %q", text, whole)
		}
	})
}

func FuzzRedact(f *testing.F) {
	f.Add("token=abcdefghijklmnop\n", "mesh1abcdefgh")
	f.Add("-----BEGIN PRIVATE KEY-----", "x")
	f.Fuzz(func(t *testing.T, text, secret string) {
		got := evidence.Redact([]string{secret}, text)
		if strings.Count(got, "\n") > strings.Count(text, "\n")+1 {
			t.Errorf("%q became %q", text, got)
		}
	})
}
