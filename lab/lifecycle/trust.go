package lifecycle

import (
	"context"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"

	"mesh/lab/guest"
)

// trust makes a machine trust the world's issuer and know its repositories.
func (r *raise) trust(ctx context.Context, name string) error {
	m, err := r.plan.Machine(name)
	if err != nil {
		return err
	}
	roots, err := r.cfg.World.Roots(ctx, r.plan.World)
	if err != nil {
		return fmt.Errorf("ask the world for its root certificates: %w", err)
	}
	// One command for all of it: each costs an emulated machine a third of a second.
	script := write("/etc/apt/sources.list", sources(r.plan, m.Image))
	// update-ca-certificates(8) wants one certificate in each file.
	for n, rest := 1, roots; ; n++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		script += write(fmt.Sprintf("/usr/local/share/ca-certificates/world-%d.crt", n), string(pem.EncodeToMemory(block)))
	}
	return r.script(ctx, m, script+trustRoots+"apt-get update -q", nil, nil)
}

// write is a piece of shell that writes a text file.
func write(path, text string) string {
	return "cat >" + path + " <<'END-OF-FILE'\n" + text + "END-OF-FILE\n"
}

// trustRoots does what update-ca-certificates(8) does, for the world's roots
// alone: a link and a link by hash for each, and one bundle of all there are.
// The program itself starts a process for every certificate of the system,
// which takes a minute under emulation; run later, it comes to the same.
const trustRoots = `cd /etc/ssl/certs
for root in /usr/local/share/ca-certificates/world-*.crt; do
	name=$(basename "$root" .crt).pem
	ln -sf "$root" "$name"
	ln -sf "$name" "$(openssl x509 -noout -subject_hash -in "$root").0"
done
cat ./*.pem >ca-certificates.crt.new
mv ca-certificates.crt.new ca-certificates.crt
`

// sources is apt's whole list: the world's repositories that are of use to an image.
func sources(p Plan, image string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p.World.Repositories)) {
		if name == "mesh" || name == image {
			fmt.Fprintf(&b, "deb [trusted=yes] http://%s/%s/ ./\n", p.World.Underlay.Services.ArtefactsName, name)
		}
	}
	return b.String()
}

// script runs a shell script on a machine; it fails when the script does. What
// it says on stdout goes to keep and not into the error, if keep is set.
func (r *raise) script(ctx context.Context, m Machine, script string, stdin []byte, keep func([]byte)) error {
	out, err := r.cfg.Guest.Exec(ctx, m.Spec.Name, guest.Command{Args: []string{"/bin/sh", "-e", "-c", script}, Stdin: stdin})
	if err != nil {
		return fmt.Errorf("run on machine %s: %w", m.Name, err)
	}
	if out.ExitCode == 0 {
		if keep != nil {
			keep(out.Stdout)
		}
		return nil
	}
	said := string(out.Stderr)
	if keep == nil {
		said = string(out.Stdout) + said
	}
	return &Error{
		What:  fmt.Sprintf("a command on machine %s ended with exit code %d", m.Name, out.ExitCode),
		Where: "machine " + m.Name, Why: script + "\n" + lastLines(said, 20), Code: codeFailed,
	}
}

// lastLines keeps the end of a text.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
