package declaration_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mesh/host/declaration"
	"mesh/host/identity"
)

var update = flag.Bool("update", false, "write goldens anew")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// fixedKey is the key whose seed is one byte repeated.
func fixedKey(t testing.TB, b byte) identity.DeclarationKey {
	t.Helper()
	key, err := identity.NewDeclarationKey(bytes.NewReader(bytes.Repeat([]byte{b}, 32)))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sample() declaration.Declaration {
	disabled := false
	d := valid(
		declaration.Resource{ID: "demo/directory", Directory: &declaration.Directory{Path: "/etc/demo", Owner: "root", Group: "adm", Mode: "2750"}},
		declaration.Resource{ID: "demo/config", File: &declaration.File{Path: "/etc/demo/demo.conf", Mode: "0640", Content: "key = \"<&>\"\n\tü\u2028\n"}},
		declaration.Resource{ID: "demo/empty", File: &declaration.File{Path: "/etc/demo/empty"}},
		declaration.Resource{ID: "demo/package", Package: &declaration.Package{Name: "nginx", Version: "1:1.26.3-3+deb13u1~x"}},
		service("demo/service", "nginx.service", "demo/config", "demo/package"),
		declaration.Resource{ID: "demo/timer", Service: &declaration.Service{Unit: "demo.timer", State: "stopped", Enabled: &disabled}},
	)
	d.Epoch, d.Generation = 3, 1<<63
	return d
}

// The bytes that are signed must never change for a value of this format: every
// host out there holds signatures over them.
func TestGoldenCanonicalSignedAndBundle(t *testing.T) {
	d := sample()
	canonical, err := d.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "canonical.json", canonical)
	parsed, err := declaration.Parse(canonical)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(d, parsed); diff != "" {
		t.Errorf("canonical form does not read back (-want +got):\n%s", diff)
	}

	signed, digest, err := declaration.Sign(d, fixedKey(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "signed", signed)
	if digest != declaration.Digest(canonical) {
		t.Errorf("digest %s is not of the canonical bytes", digest)
	}

	b := declaration.Bundle{Format: 1, Resources: d.Resources}
	text, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "bundle.json", text)
	again, err := declaration.ParseBundle(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b, again); diff != "" {
		t.Errorf("bundle does not read back (-want +got):\n%s", diff)
	}
}

func TestOpenRefuses(t *testing.T) {
	d, key := sample(), fixedKey(t, 1)
	signed, _, err := declaration.Sign(d, key)
	if err != nil {
		t.Fatal(err)
	}
	canonical, _ := d.Canonical()
	seal := func(context, payload string) []byte {
		return enclose(ed25519Sign(1, context, payload), payload)
	}
	for _, tc := range []struct {
		name   string
		signed []byte
		key    identity.DeclarationPublicKey
		is     error
		want   string
	}{
		{"another key", signed, fixedKey(t, 2).Public(), declaration.ErrSignature, "is not one of declkey:"},
		{"no key", signed, identity.DeclarationPublicKey{}, declaration.ErrSignature, "is not one of"},
		{"nothing", nil, key.Public(), declaration.ErrSignature, "the envelope is missing"},
		{"not signed", canonical, key.Public(), declaration.ErrSignature, "the envelope is missing"},
		{"cut in the signature", signed[:60], key.Public(), declaration.ErrSignature, "the signature cannot be read"},
		{"cut in the payload", signed[:len(signed)-1], key.Public(), declaration.ErrSignature, "is not one of"},
		{"signed for something else", seal("mesh something", string(canonical)), key.Public(), declaration.ErrSignature, "is not one of"},
		{"signed without a context", seal("", string(canonical)), key.Public(), declaration.ErrSignature, "is not one of"},
		{"newer envelope", bytes.Replace(signed, []byte("declaration 1"), []byte("declaration 2"), 1), key.Public(), declaration.ErrFormat, "upgrade mesh-host"},
		{"newer document, well signed", seal("mesh declaration 1", `{"format":4,"x":[]}`), key.Public(), declaration.ErrFormat, "the host is too old"},
		{"unknown key, well signed", seal("mesh declaration 1", strings.Replace(string(canonical), `"mode"`, `"mod"`, 1)), key.Public(), nil, `did you mean "mode"?`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, digest, err := declaration.Open(tc.signed, tc.key)
			if err == nil || !strings.Contains(err.Error(), tc.want) || tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("\n got: %v\nwant: …%s… matching %v", err, tc.want, tc.is)
			}
			if got.Format != 0 || digest != "" {
				t.Errorf("a refused declaration came out: %+v %s", got, digest)
			}
		})
	}
}

// enclose and ed25519Sign build a signed declaration without the package under
// test, from what its documentation says.
func enclose(signature []byte, payload string) []byte {
	return fmt.Appendf(nil, "mesh signed declaration 1\n%s\n%s", hex.EncodeToString(signature), payload)
}

func ed25519Sign(seed byte, context, payload string) []byte {
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, 32))
	signature, err := key.Sign(nil, []byte(payload), &ed25519.Options{Context: context})
	if err != nil {
		panic(err)
	}
	return signature
}

func TestPropertyOneByteChangedIsRefused(t *testing.T) {
	signed, _, err := declaration.Sign(sample(), fixedKey(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	public := fixedKey(t, 1).Public()
	rapid.Check(t, func(t *rapid.T) {
		i := rapid.IntRange(0, len(signed)-1).Draw(t, "at")
		b := rapid.Byte().Filter(func(b byte) bool { return b != signed[i] }).Draw(t, "byte")
		changed := bytes.Clone(signed)
		changed[i] = b
		if _, _, err := declaration.Open(changed, public); err == nil && !strings.EqualFold(string(changed), string(signed)) {
			t.Fatalf("byte %d changed to %q and opened", i, b)
		}
	})
}

// resources draws a valid list.
func resources() *rapid.Generator[[]declaration.Resource] {
	mode := rapid.SampledFrom([]string{"", "0644", "4755", "0000"})
	owner := rapid.SampledFrom([]string{"", "root", "www-data"})
	return rapid.Custom(func(t *rapid.T) []declaration.Resource {
		var list []declaration.Resource
		for i := range rapid.IntRange(0, 12).Draw(t, "resources") {
			r := declaration.Resource{ID: fmt.Sprintf("%s/r%d", rapid.StringMatching(`[a-z0-9-]{1,8}`).Draw(t, "id"), i)}
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				r.Directory = &declaration.Directory{Path: fmt.Sprintf("/d%d", i), Owner: owner.Draw(t, "owner"), Mode: mode.Draw(t, "mode")}
			case 1:
				r.File = &declaration.File{Path: fmt.Sprintf("/ü f%d", i), Group: owner.Draw(t, "group"), Mode: mode.Draw(t, "mode"), Content: rapid.String().Draw(t, "content")}
			case 2:
				r.Package = &declaration.Package{Name: fmt.Sprintf("p%d", i), Version: rapid.StringMatching(`([0-9][a-z0-9.+~:-]{0,5})?`).Draw(t, "version")}
			case 4:
				r.Container = anyContainer(t, i)
			case 3:
				r.Service = &declaration.Service{Unit: fmt.Sprintf("u%d.service", i), State: rapid.SampledFrom([]string{"", "running", "stopped"}).Draw(t, "state")}
				if rapid.Bool().Draw(t, "says enabled") {
					enabled := rapid.Bool().Draw(t, "enabled")
					r.Service.Enabled = &enabled
				}
				for _, earlier := range list {
					if rapid.Bool().Draw(t, "restart on") {
						r.Service.RestartOn = append(r.Service.RestartOn, earlier.ID)
					}
				}
			}
			list = append(list, r)
		}
		if list == nil {
			list = []declaration.Resource{}
		}
		return list
	})
}

func TestPropertySignedReadsBack(t *testing.T) {
	key := fixedKey(t, 1)
	rapid.Check(t, func(t *rapid.T) {
		d := valid(resources().Draw(t, "list")...)
		d.Format = declaration.FormatFor(d.Resources)
		d.Resources = append([]declaration.Resource{}, d.Resources...)
		d.Epoch, d.Generation = rapid.Uint64Min(1).Draw(t, "epoch"), rapid.Uint64Min(1).Draw(t, "generation")
		signed, digest, err := declaration.Sign(d, key)
		if err != nil {
			t.Fatal(err)
		}
		got, gotDigest, err := declaration.Open(signed, key.Public())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(d, got); diff != "" || gotDigest != digest {
			t.Fatalf("digest %s, want %s; (-want +got):\n%s", gotDigest, digest, diff)
		}
		again, _, err := declaration.Sign(got, key)
		if err != nil || !bytes.Equal(signed, again) {
			t.Fatalf("the same declaration signed twice differs: %v", err)
		}
	})
}

func FuzzParse(f *testing.F) {
	canonical, _ := sample().Canonical()
	f.Add(canonical)
	containers, _ := wholeContainer().Canonical()
	f.Add(containers)
	f.Add([]byte(document(`{"id":"a","file":{"path":"/x","content":"","mode":null}}`)))
	f.Add([]byte(`{"format":4}`))
	f.Add([]byte(`[[[[`))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := declaration.Parse(b)
		if err != nil {
			return
		}
		first, err := d.Canonical()
		if err != nil {
			t.Fatalf("parsed, but has no canonical form: %v", err)
		}
		again, err := declaration.Parse(first)
		if err != nil {
			t.Fatalf("canonical form is refused: %v\n%s", err, first)
		}
		if second, err := again.Canonical(); err != nil || !bytes.Equal(first, second) {
			t.Fatalf("canonical form is not stable: %v\n%s\n%s", err, first, second)
		}
	})
}

func FuzzParseBundle(f *testing.F) {
	text, _ := declaration.Bundle{Format: 1, Resources: sample().Resources}.Encode()
	f.Add(text)
	f.Add([]byte(`{"format":1,"resources":[{}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		bundle, err := declaration.ParseBundle(b)
		if err != nil {
			return
		}
		text, err := bundle.Encode()
		if err != nil {
			t.Fatalf("parsed, but cannot be written: %v", err)
		}
		again, err := declaration.ParseBundle(text)
		if err != nil {
			t.Fatalf("what Encode wrote is refused: %v", err)
		}
		if diff := cmp.Diff(bundle, again); diff != "" {
			t.Fatal(diff)
		}
	})
}

// FuzzOpen signs whatever payload is drawn, so that the reader behind the
// signature is reached, and mutates the envelope as well.
func FuzzOpen(f *testing.F) {
	canonical, _ := sample().Canonical()
	f.Add([]byte("mesh signed declaration 1\n"), canonical)
	f.Add([]byte("mesh signed declaration 2\n00\n"), []byte(`{}`))
	f.Fuzz(func(t *testing.T, envelope, payload []byte) {
		public := fixedKey(t, 1).Public()
		if _, _, err := declaration.Open(append(bytes.Clone(envelope), payload...), public); err == nil {
			t.Fatal("opened without a signature")
		}
		signed := enclose(ed25519Sign(1, "mesh declaration 1", string(payload)), string(payload))
		_, digest, err := declaration.Open(signed, public)
		if errors.Is(err, declaration.ErrSignature) {
			t.Fatalf("a good signature was refused: %v", err)
		}
		if _, parseErr := declaration.Parse(payload); (err == nil) != (parseErr == nil) {
			t.Fatalf("Open: %v, Parse: %v", err, parseErr)
		}
		if err == nil && digest != declaration.Digest(payload) {
			t.Fatal("the digest is not of the payload")
		}
	})
}
