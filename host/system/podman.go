package system

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNoContainers is matched when this machine has no podman that makes services
// of unit files.
var ErrNoContainers = errors.New("this machine cannot run containers")

// LabelMade is the label by which a container says what it was made of.
const LabelMade = "mesh-host.made"

// labelUnit is podman's own label of a container that a systemd unit runs.
const labelUnit = "PODMAN_SYSTEMD_UNIT"

// Container is what podman says of one container. The zero value means there is none.
type Container struct {
	Unit  string // the systemd unit that runs it; empty when none does
	Made  string // its LabelMade
	Image string // digest of its image, "sha256:…": the one it was asked for by, if it is that image
}

// PodmanConfig is what Podman needs.
type PodmanConfig struct {
	List      Runner                   // runs what lists containers and images; what it returns is what was printed as the answer
	Query     Runner                   // runs the rest of what comes to its end at once
	Change    func(unit string) Runner // runs what changes something, in a unit of that name, where the host's end does not end it
	Generator func() bool              // there is podman's generator of units
	Sync      func() error             // makes durable what podman keeps
	Room      func() error             // why nothing is to be fetched; nil means that there is always room
	Wait      time.Duration            // how long an image is waited for, whose fetch goes on then; 0 means 3 minutes
	Poll      time.Duration            // how often to look for one that somebody else fetches; 0 means a second
	Jitter    func() float64           // in [0,1), of the delays between attempts; nil means at random
}

// Podman knows the containers of this machine and fetches their images. It starts
// and stops none: systemd does.
type Podman struct {
	cfg      PodmanConfig
	attempts *attempts // by image
}

// NewPodman makes a Podman; it runs nothing.
func NewPodman(cfg PodmanConfig) *Podman {
	if cfg.Wait == 0 {
		cfg.Wait = 3 * time.Minute
	}
	if cfg.Poll == 0 {
		cfg.Poll = time.Second
	}
	if cfg.Room == nil {
		cfg.Room = func() error { return nil }
	}
	return &Podman{cfg, newAttempts(cfg.Jitter)}
}

// able says why there can be no containers here. Errors match ErrNoContainers.
func (p *Podman) able(ctx context.Context) error {
	if p.cfg.Generator() {
		return nil
	}
	out, err := p.cfg.Query.Run(ctx, "podman", "--version")
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("%w: podman is not installed: declare its package before this", ErrNoContainers)
	case err != nil:
		return fmt.Errorf("%w: ask podman for its version: %v", ErrNoContainers, err)
	}
	return fmt.Errorf("%w: %s is installed, which makes no service of a unit file: podman 4.4 or newer does (Debian 13 has it)", ErrNoContainers, strings.TrimSpace(out))
}

// listed is what `podman ps` prints of a container.
// https://docs.podman.io/en/latest/markdown/podman-ps.1.html
type listed struct {
	ID      string `json:"Id"`
	Names   []string
	Image   string // as it was asked for
	ImageID string
	Labels  map[string]string
}

// name is what podman calls l: a container of no name by its ID.
func (l listed) name() string {
	if len(l.Names) == 0 {
		return l.ID
	}
	return l.Names[0]
}

// Containers says what there is of each name, running or not; names of which
// there is nothing are left out. Errors match ErrNoContainers.
func (p *Podman) Containers(ctx context.Context, names []string) (map[string]Container, error) {
	found := map[string]Container{}
	if len(names) == 0 {
		return found, nil
	}
	if err := p.able(ctx); err != nil {
		return nil, err
	}
	var all []listed
	if err := p.ask(ctx, &all, "ps", "--all"); err != nil {
		return nil, err
	}
	ours := slices.DeleteFunc(all, func(l listed) bool { return !slices.Contains(names, l.name()) })
	if len(ours) == 0 {
		return found, nil
	}
	var images []stored
	if err := p.ask(ctx, &images, "images", "--all"); err != nil {
		return nil, err
	}
	for _, l := range ours {
		found[l.name()] = Container{Unit: l.Labels[labelUnit], Made: l.Labels[LabelMade], Image: imageOf(l, images)}
	}
	return found, nil
}

func (p *Podman) ask(ctx context.Context, answer any, argv ...string) error {
	out, err := p.cfg.List.Run(ctx, append(append([]string{"podman"}, argv...), "--no-trunc", "--format", "json")...)
	if err == nil {
		err = json.Unmarshal([]byte(out), answer)
	}
	if err != nil {
		return fmt.Errorf("ask podman for its %s: %w", argv[0], err)
	}
	return nil
}

// RemoveContainer removes a container that stopped, and what podman made for it
// without a name; one that is not there is no error.
func (p *Podman) RemoveContainer(ctx context.Context, name string) error {
	if err := p.able(ctx); err != nil {
		return err
	}
	_, err := p.cfg.Query.Run(ctx, "podman", "rm", "--volumes", "--ignore", "--", name)
	return wrap("remove container "+name, err)
}

// podmanFiles are what podman lists containers and images from, with its own
// configuration and the driver of Debian, below its storage: each change makes new
// ones, and looking makes none. The first two are its own database, of one kind or the
// other, which comes last in a change. A container that goes by itself when it stops,
// as those of units do, is in volatile-containers.json, and every other is in
// containers.json.
var podmanFiles = []string{
	"db.sql", "libpod/bolt_state.db",
	"overlay-containers/containers.json", "overlay-containers/volatile-containers.json",
	"overlay-images/images.json",
}

const podmanStorage = "/var/lib/containers/storage"

// leastImage is what an image takes at least, in bytes. How much one takes is known
// when it is there: podman is kept from filling a disk that is nearly full.
const leastImage = 64 << 20

func roomForImage() error {
	dir := podmanStorage
	if _, err := os.Stat(dir); err != nil {
		dir = "/var/lib" // it is about to be made there
	}
	return roomFor(dir, leastImage)
}

// syncStorage makes durable what lies on the file system of podman's storage.
func syncStorage() error {
	dir, err := os.Open(podmanStorage)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was told to keep it elsewhere
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	return os.NewSyscallError("syncfs", unix.Syncfs(int(dir.Fd())))
}

// podmanState tells one state of what podman has in a storage from every other; empty
// where it is not known to be in podmanFiles.
func podmanState(storage string) string {
	if _, err := os.Lstat("/etc/containers/storage.conf"); !errors.Is(err, fs.ErrNotExist) {
		return "" // podman may have been told to keep it elsewhere
	}
	if _, err := os.Stat(filepath.Join(storage, "overlay-containers")); err != nil {
		return ""
	}
	files := make([]string, len(podmanFiles))
	for i, name := range podmanFiles {
		files[i] = filepath.Join(storage, name)
	}
	return stateOf(files...)
}

// generators are where systemd looks for what makes units.
// https://www.freedesktop.org/software/systemd/man/systemd.generator.html
var generators = []string{"/etc/systemd/system-generators", "/usr/local/lib/systemd/system-generators", "/usr/lib/systemd/system-generators"}

// hasGenerator says whether podman's is there.
func hasGenerator() bool {
	return slices.ContainsFunc(generators, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "podman-system-generator"))
		return !errors.Is(err, fs.ErrNotExist)
	})
}

// answers runs commands as children of the host, and returns what they print as
// their answer; what they complain of is in the error.
type answers struct{}

func (answers) Run(ctx context.Context, argv ...string) (string, error) {
	cmd := command(ctx, argv)
	complaints := &tail{}
	cmd.Stderr = complaints
	out, err := cmd.Output()
	if err = ended(err); err != nil {
		err = failure(argv[0], complaints.String(), err)
	}
	return string(out), err
}
