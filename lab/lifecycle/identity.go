package lifecycle

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"mesh/lab/guest"
	"mesh/lab/images"
)

// entropyBytes is what a machine's random numbers get from the lab: as much as
// the kernel's own pool holds (256 bits), twice.
const entropyBytes = 64

// identity is all that a machine is given before anything is placed on it. A
// clone also gets a boot id of its own. It holds the machine's private host key.
func (r *raise) identity(ctx context.Context, m Machine, clone bool) (guest.Identity, error) {
	id := guest.Identity{Hostname: m.Name, MachineID: m.MachineID, Entropy: make([]byte, entropyBytes)}
	rand.Read(id.Entropy)
	if clone {
		id.BootID = randomUUID()
	}
	keys, err := sshIdentity(r.plan.SSH, m.Name)
	if err != nil {
		return id, err
	}
	roots, err := r.cfg.World.Roots(ctx, r.plan.World)
	if err != nil {
		return id, fmt.Errorf("ask the world for its root certificates: %w", err)
	}
	trust, err := guest.Trust(roots)
	if err != nil {
		return id, err
	}
	packages, err := r.packages(m.Image)
	if err != nil {
		return id, err
	}
	id.Files = slices.Concat(keys, trust, packages)
	return id, nil
}

// packages are a machine's sources of packages, and the list of those that the
// operator offers, as apt would fetch it. The list of the image's is in the image.
func (r *raise) packages(image string) ([]guest.File, error) {
	host := r.plan.World.Underlay.Services.ArtefactsName
	files := []guest.File{{Path: "/etc/apt/sources.list", Mode: 0o644, Content: []byte(sources(r.plan, image))}}
	dir, offers := r.plan.World.Repositories[offered]
	if !offers {
		return files, nil
	}
	for _, index := range images.Indexes {
		content, err := os.ReadFile(filepath.Join(dir, index))
		if errors.Is(err, fs.ErrNotExist) {
			continue // apt fetches what there is
		}
		if err != nil {
			return nil, fmt.Errorf("read the list of packages: %w", err)
		}
		files = append(files, guest.File{Path: images.ListFile(host, offered, index), Mode: 0o644, Content: content})
	}
	return files, nil
}

// sources is apt's whole list: the world's repositories that are of use to an image.
func sources(p Plan, image string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p.World.Repositories)) {
		if name == offered || name == image {
			fmt.Fprintf(&b, "deb [trusted=yes] http://%s/%s/ ./\n", p.World.Underlay.Services.ArtefactsName, name)
		}
	}
	return b.String()
}

// randomUUID makes a UUID of version 4 (RFC 9562, section 5.4).
func randomUUID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	x := hex.EncodeToString(b[:])
	return x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]
}
