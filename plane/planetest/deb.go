package planetest

import (
	"archive/tar"
	"bytes"
	"fmt"
)

// Deb is a Debian package that says this of itself, and holds no more than data.
func Deb(name, version, architecture, data string) []byte {
	control := fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: %s\n", name, version, architecture)
	var inner bytes.Buffer
	w := tar.NewWriter(&inner)
	// A buffer takes everything.
	_ = w.WriteHeader(&tar.Header{Name: "./control", Mode: 0o644, Size: int64(len(control))})
	_, _ = w.Write([]byte(control))
	_ = w.Close()
	out := bytes.NewBufferString("!<arch>\n")
	for _, m := range []struct{ name, data string }{{"debian-binary", "2.0\n"}, {"control.tar", inner.String()}, {"data.tar", data}} {
		fmt.Fprintf(out, "%-16s%-12d%-6d%-6d%-8s%-10d`\n%s", m.name, 0, 0, 0, "100644", len(m.data), m.data)
		if len(m.data)%2 == 1 {
			out.WriteByte('\n')
		}
	}
	return out.Bytes()
}
