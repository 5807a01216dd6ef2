package debian_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mesh/plane/debian"
	"mesh/plane/planetest"
)

func member(name string, data []byte) string {
	s := fmt.Sprintf("%-16s%-12d%-6d%-6d%-8s%-10d`\n%s", name, 0, 0, 0, "100644", len(data), data)
	if len(data)%2 == 1 {
		s += "\n"
	}
	return s
}

func control(text string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range []struct{ name, text string }{{"./md5sums", "odd"}, {"./control", text}} {
		_ = w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.text))})
		_, _ = w.Write([]byte(f.text))
	}
	_ = w.Close()
	return b.Bytes()
}

func gz(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(b)
	_ = w.Close()
	return out.Bytes()
}

const (
	begin = "!<arch>\n"
	text  = "Package: mesh-host\nVersion: 1:2.0~rc1-3\nSection: admin\nArchitecture: arm64\nDescription: x\n more: of it\n"
)

func deb(name string, data []byte) []byte {
	return []byte(begin + member("debian-binary", []byte("2.0\n")) + member(name, data))
}

func TestReadEveryForm(t *testing.T) {
	want := debian.Package{Name: "mesh-host", Version: "1:2.0~rc1-3", Architecture: "arm64"}
	for name, b := range map[string][]byte{
		"plain":           deb("control.tar", control(text)),
		"gzip":            deb("control.tar.gz", gz(control(text))),
		"another writer":  deb("control.tar.gz/", gz(control(text))),
		"of an odd kind":  []byte(begin + member("debian-binary", []byte("2.0")) + member("_odd", []byte("x")) + member("control.tar", control(text))),
		"what tests make": planetest.Deb("mesh-host", "1:2.0~rc1-3", "arm64", "p"),
	} {
		got, err := debian.Read(b)
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%s: %v %s", name, err, d)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	whole := deb("control.tar.gz", gz(control(text)))
	for name, tt := range map[string]struct {
		b    []byte
		says string
	}{
		"nothing":              {nil, "not a Debian package"},
		"text":                 {[]byte("precious"), "not a Debian package"},
		"another archive":      {[]byte(begin + member("a.o", []byte("x"))), "not a Debian package of format 2"},
		"an older format":      {[]byte(begin + member("debian-binary", []byte("1.0\n"))), "not a Debian package of format 2"},
		"half of it":           {whole[:len(whole)/2], "cut short"},
		"the beginning alone":  {[]byte(begin), "cut short"},
		"no header":            {append([]byte(begin), bytes.Repeat([]byte("x"), 60)...), "damaged"},
		"no control file":      {deb("control.tar", nil), "no control file"},
		"not gzip":             {deb("control.tar.gz", []byte("xx")), "damaged"},
		"packed in another":    {deb("control.tar.xz", []byte("xx")), "not read here"},
		"no version":           {deb("control.tar", control("Package: a\nArchitecture: all\n")), "no version"},
		"far too long within":  {deb("control.tar.gz", gz(control(strings.Repeat("x", 5<<20)))), "cannot be read"},
		"without what it says": {deb("control.tar", control(text)[:700]), "no control file"},
	} {
		if _, err := debian.Read(tt.b); err == nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %q", name, err, tt.says)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, b := range [][]byte{
		deb("control.tar", control(text)), deb("control.tar.gz", gz(control(text))),
		[]byte(begin), nil,
	} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := debian.Read(b)
		if err == nil && (p.Name == "" || p.Version == "" || p.Architecture == "") {
			t.Errorf("%+v", p)
		}
	})
}

// versions in ascending order; those in one string are equal.
var versions = []string{
	"0~", "0 00 0-0", "0.0.0-dev", "0.1.0+git9", "0.1.0+git10", "1.0~~", "1.0~~a", "1.0~", "1.0~rc1", "1.0 1.0-0 1.00 0:1.0", "1.0-0.1", "1.0-1", "1.0-10",
	"1.0a", "1.0z", "1.0+b", "1.0.1", "9.0", "9.1", "10", "20261201", "1:0.1", "2:0~",
}

func TestCompare(t *testing.T) {
	for i, a := range versions {
		for j, b := range versions {
			for _, a := range strings.Fields(a) {
				for _, b := range strings.Fields(b) {
					got := debian.Compare(a, b)
					if want := i - j; got < 0 != (want < 0) || got > 0 != (want > 0) {
						t.Errorf("Compare(%s, %s) = %d", a, b, got)
					}
				}
			}
		}
	}
}

// TestCompareAsDpkgDoes asks the one that decides on machines.
func TestCompareAsDpkgDoes(t *testing.T) {
	dpkg, err := exec.LookPath("dpkg")
	if err != nil {
		t.Skip("there is no dpkg")
	}
	version := rapid.StringMatching(`([0-3]:)?[0-9][0-9a-b.+~]{0,4}(-[0-9a-b.+~]{1,3})?`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := version.Draw(t, "a"), version.Draw(t, "b")
		got := debian.Compare(a, b)
		if back := debian.Compare(b, a); got < 0 != (back > 0) || got > 0 != (back < 0) {
			t.Fatalf("Compare(%s, %s) = %d, and %d the other way", a, b, got, back)
		}
		relation := "eq"
		if got < 0 {
			relation = "lt"
		} else if got > 0 {
			relation = "gt"
		}
		if err := exec.Command(dpkg, "--compare-versions", a, relation, b).Run(); err != nil {
			t.Fatalf("dpkg does not say that %s is %s %s", a, relation, b)
		}
	})
}
