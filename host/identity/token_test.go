package identity_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"mesh/host/identity"
)

var comparable = cmp.Options{
	cmpopts.EquateComparable(identity.Pin{}, identity.NodePublicKey{}, identity.DeclarationPublicKey{}, netip.AddrPort{}),
}

func sampleToken() identity.Token {
	return identity.Token{
		Expires:   time.Date(2026, 12, 1, 10, 30, 0, 0, time.UTC),
		Pins:      []identity.Pin{linkKey(7).Pin()},
		Addresses: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.10:7443"), netip.MustParseAddrPort("[2001:db8::10]:7443")},
		ID:        [8]byte{1, 2, 3, 4, 5, 6, 7, 8},
		Secret:    identity.SecretOf([16]byte{9, 9, 9, 1}),
	}
}

// sampleText is sampleToken, written once and for all: tokens are in use while
// planes and hosts are upgraded.
const sampleText = "mesh1aeaaaaaanmhkdkabgjf6fxvixrcemgycgpsr7jejalwwwhggohtxhgxskupax7ti6vhaebgaaabauhitcaqacdnyaaaaaaaaaaaaaaaaaaib2eybaibqibiga4eascijaeaaaaaaaaaaaaaaaaaaayzyqnka"

func TestTokenReadsBack(t *testing.T) {
	want := sampleToken()
	text := want.Encode()
	if text != sampleText {
		t.Errorf("Encode() = %s\nwant       %s", text, sampleText)
	}
	for _, around := range []string{text, "  " + text + "\r\n", "\n" + text} {
		got, err := identity.ParseToken(around)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, comparable); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if got := want.IDText(); got != "0102030405060708" {
		t.Errorf("IDText() = %s", got)
	}
}

// Each mistake a person makes with a token is one line that says which.
func TestParseTokenRefuses(t *testing.T) {
	text := sampleToken().Encode()
	changed := []byte(text)
	changed[60]++
	for _, tc := range []struct{ name, text, want string }{
		{"empty", " \n", "token cannot be used: it is empty; issue one with `mesh-plane token issue`"},
		{"cut to the prefix", "mes", "token cannot be used: it is cut short after 3 characters; copy the whole line"},
		{"cut short", text[:90], "token cannot be used: it is cut short after 90 characters; copy the whole line"},
		{"cut by one", text[:len(text)-1], "token cannot be used: it is cut short after 160 characters; copy the whole line"},
		{"one letter changed", string(changed), "token cannot be used: its checksum does not match: a character was changed, lost or added; copy it again"},
		{"one letter added", text + "a", "token cannot be used: its checksum does not match: a character was changed, lost or added; copy it again"},
		{"wrong prefix", "nebula" + text, `token cannot be used: it does not begin with "mesh1", so it is not a token of a mesh this host can join; copy the whole line`},
		{"newer kind", "mesh2" + text[5:], `token cannot be used: it does not begin with "mesh1", so it is not a token of a mesh this host can join; copy the whole line`},
		{"upper case", text[:20] + strings.ToUpper(text[20:21]) + text[21:], "token cannot be used: character 21 is not one a token has; copy it again"},
		{"a space in it", text[:20] + " " + text[20:], "token cannot be used: character 21 is not one a token has; copy it again"},
		{"two lines", text + text + text + text + text + text, "copy one line only"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := identity.ParseToken(tc.text)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("\n got: %v\nwant: …%s…, one line", err, tc.want)
			}
			var coder interface{ ExitCode() int }
			if !errors.Is(err, identity.ErrToken) || !errors.As(err, &coder) || coder.ExitCode() != 2 {
				t.Errorf("%v: want ErrToken with exit code 2", err)
			}
			if err != nil && len(tc.text) > 30 && strings.Contains(err.Error(), tc.text[20:30]) {
				t.Errorf("the error repeats the token: %v", err)
			}
		})
	}
}

func tokens() *rapid.Generator[identity.Token] {
	addr := rapid.Custom(func(t *rapid.T) netip.AddrPort {
		port := rapid.Uint16Min(1).Draw(t, "port")
		if rapid.Bool().Draw(t, "v6") {
			b := [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "addr"))
			b[0] = 0x20
			return netip.AddrPortFrom(netip.AddrFrom16(b), port)
		}
		b := [4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "addr"))
		b[0] |= 1
		return netip.AddrPortFrom(netip.AddrFrom4(b), port)
	})
	return rapid.Custom(func(t *rapid.T) identity.Token {
		tok := identity.Token{
			Expires:   time.Unix(rapid.Int64Range(1, 1<<40).Draw(t, "expires"), 0).UTC(),
			Addresses: rapid.SliceOfN(addr, 1, identity.MaxTokenAddresses).Draw(t, "addresses"),
			ID:        [8]byte(rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "id")),
			Secret:    identity.SecretOf([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "secret"))),
		}
		for range rapid.IntRange(1, identity.MaxTokenPins).Draw(t, "pins") {
			tok.Pins = append(tok.Pins, linkKey(rapid.Byte().Draw(t, "key")).Pin())
		}
		return tok
	})
}

func TestPropertyTokenReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := tokens().Draw(t, "token")
		got, err := identity.ParseToken(want.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, comparable); diff != "" {
			t.Fatal(diff)
		}
	})
}

// Every single character changed, removed or added is refused: not sampled, all
// of them, for one token; and sampled for many.
func TestOneCharacterWrongIsRefused(t *testing.T) {
	const letters = "abcdefghijklmnopqrstuvwxyz234567A018 -é"
	text := sampleToken().Encode()
	try := func(damaged string) {
		if got, err := identity.ParseToken(damaged); err == nil {
			t.Errorf("%s\nwas read as %v", damaged, got)
		}
	}
	for i := range len(text) {
		try(text[:i] + text[i+1:])
		for _, c := range letters {
			if string(c) != text[i:i+1] {
				try(text[:i] + string(c) + text[i+1:])
			}
			if outside := c == ' ' && i == 0; !outside {
				try(text[:i] + string(c) + text[i:])
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text := tokens().Draw(t, "token").Encode()
		i := rapid.IntRange(0, len(text)-1).Draw(t, "at")
		c := rapid.SampledFrom([]byte("abcdefghijklmnopqrstuvwxyz234567")).Filter(func(c byte) bool { return c != text[i] }).Draw(t, "letter")
		for _, damaged := range []string{text[:i] + string(c) + text[i+1:], text[:i] + text[i+1:], text[:i] + string(c) + text[i:]} {
			if _, err := identity.ParseToken(damaged); err == nil {
				t.Fatalf("%s was accepted", damaged)
			}
		}
	})
}

func TestCheckTime(t *testing.T) {
	tok := sampleToken()
	if err := tok.CheckTime(tok.Expires.Add(-time.Second)); err != nil {
		t.Error(err)
	}
	err := tok.CheckTime(tok.Expires)
	const want = "token has expired: it could be used until 2026-12-01T10:30:00Z and now it is 2026-12-01T10:30:00Z; issue another with `mesh-plane token issue`"
	if !errors.Is(err, identity.ErrExpired) || err.Error() != want {
		t.Errorf("\n got: %v\nwant: %s", err, want)
	}
}

func TestTokenCheck(t *testing.T) {
	for _, tc := range []struct {
		want   string
		change func(*identity.Token)
	}{
		{"no expiry", func(t *identity.Token) { t.Expires = time.Time{} }},
		{"0 pins", func(t *identity.Token) { t.Pins = nil }},
		{"9 pins", func(t *identity.Token) { t.Pins = make([]identity.Pin, 9) }},
		{"0 addresses", func(t *identity.Token) { t.Addresses = nil }},
		{"no secret", func(t *identity.Token) { t.Secret = identity.Secret{} }},
		{"0.0.0.0:1", func(t *identity.Token) { t.Addresses[0] = netip.MustParseAddrPort("0.0.0.0:1") }},
		{":0", func(t *identity.Token) { t.Addresses[0] = netip.MustParseAddrPort("192.0.2.1:0") }},
		{"fe80::1%eth0", func(t *identity.Token) { t.Addresses[0] = netip.MustParseAddrPort("[fe80::1%eth0]:1") }},
		{"::ffff:", func(t *identity.Token) { t.Addresses[0] = netip.MustParseAddrPort("[::ffff:192.0.2.1]:1") }},
	} {
		tok := sampleToken()
		tc.change(&tok)
		if err := tok.Check(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("Check() = %v, want …%s…", err, tc.want)
		}
		if text := tok.Encode(); text != "" {
			t.Errorf("%s: was written", tc.want)
		}
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add(sampleToken().Encode())
	f.Add("mesh1")
	f.Add("mesh1aeaaaa")
	f.Fuzz(func(t *testing.T, text string) {
		tok, err := identity.ParseToken(text)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("more than one line: %q", err)
			}
			return
		}
		if again := tok.Encode(); again != strings.TrimSpace(text) {
			t.Fatalf("%q reads as a token that is written %q", text, again)
		}
	})
}
