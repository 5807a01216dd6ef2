package system

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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
	Wait      time.Duration            // how long an image is waited for, whose fetch goes on then; 0 means 3 minutes
	Poll      time.Duration            // how often to look for one that somebody else fetches; 0 means a second
	Jitter    func() float64           // in [0,1), of the delays between attempts; nil means at random
}

// Delays between attempts to fetch an image that cannot be had: others have their
// turn meanwhile, and a registry is left in peace.
const (
	refetchFirst = 15 * time.Second
	refetchMost  = 10 * time.Minute
)

// Podman knows the containers of this machine and fetches their images. It starts
// and stops none: systemd does.
type Podman struct {
	cfg PodmanConfig

	mu     sync.Mutex
	failed map[string]attempt // by image
}

// attempt is the last one to fetch an image, which failed.
type attempt struct {
	err   error
	delay time.Duration // since then until the next
	next  time.Time
}

// NewPodman makes a Podman; it runs nothing.
func NewPodman(cfg PodmanConfig) *Podman {
	if cfg.Wait == 0 {
		cfg.Wait = 3 * time.Minute
	}
	if cfg.Poll == 0 {
		cfg.Poll = time.Second
	}
	if cfg.Jitter == nil {
		cfg.Jitter = rand.Float64
	}
	return &Podman{cfg: cfg, failed: map[string]attempt{}}
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
	Names   []string
	Image   string // as it was asked for
	ImageID string
	Labels  map[string]string
}

// stored is what `podman images` prints of an image.
// https://docs.podman.io/en/latest/markdown/podman-images.1.html
type stored struct {
	ID          string `json:"Id"`
	Digest      string
	RepoDigests []string
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
	ours := slices.DeleteFunc(all, func(l listed) bool { return len(l.Names) == 0 || !slices.Contains(names, l.Names[0]) })
	if len(ours) == 0 {
		return found, nil
	}
	var images []stored
	if err := p.ask(ctx, &images, "images", "--all"); err != nil {
		return nil, err
	}
	for _, l := range ours {
		found[l.Names[0]] = Container{Unit: l.Labels[labelUnit], Made: l.Labels[LabelMade], Image: imageOf(l, images)}
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

// imageOf is the digest of the image that l was made of. An image has a digest of
// its own and those of the indexes that lead to it: the one it was asked for by
// counts, if podman still knows the image by it.
func imageOf(l listed, images []stored) string {
	i := slices.IndexFunc(images, func(s stored) bool { return s.ID == l.ImageID })
	if i < 0 {
		return "unknown, since podman has it no more"
	}
	if _, digest, ok := strings.Cut(l.Image, "@"); ok && slices.Contains(images[i].RepoDigests, l.Image) {
		return digest
	}
	return images[i].Digest
}

// PullImage fetches an image that is named by its digest, unless it is there, and
// makes it durable, which podman leaves to the kernel. It runs in a unit of its own, which goes on when the host ends, or does not wait any
// longer; a fetch of it that goes on is waited for. After one that failed the next
// is not tried before a while, which grows.
func (p *Podman) PullImage(ctx context.Context, image string, note func(string)) error {
	if err := p.able(ctx); err != nil {
		return fmt.Errorf("fetch image: %w", err)
	}
	there, err := p.hasImage(ctx, image)
	if err != nil {
		return err
	}
	if there { // since a moment ago, it may be
		return wrap("make image "+image+" durable", p.cfg.Sync())
	}
	if err := p.rests(image); err != nil {
		return err
	}
	err = p.pull(ctx, image, note)
	if err == nil || ctx.Err() == nil { // what the host's end ends has not failed
		p.came(image, err)
	}
	if err == nil {
		err = wrap("make image "+image+" durable", p.cfg.Sync())
	}
	return err
}

// rests says why an image is not tried yet.
func (p *Podman) rests(image string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.failed[image]
	if left := time.Until(last.next); left > 0 {
		return fmt.Errorf("%w; it is tried again in %s", last.err, left.Round(time.Second))
	}
	return nil
}

// came keeps how an attempt ended.
func (p *Podman) came(image string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		delete(p.failed, image)
		return
	}
	delay := min(max(2*p.failed[image].delay, refetchFirst), refetchMost)
	p.failed[image] = attempt{err, delay, time.Now().Add(delay/2 + time.Duration(p.cfg.Jitter()*float64(delay/2)))}
}

// pull fetches an image, which was not there.
func (p *Podman) pull(ctx context.Context, image string, note func(string)) error {
	_, digest, _ := strings.Cut(image, "@sha256:")
	unit := p.cfg.Change("mesh-host-image-" + digest[:min(len(digest), 16)] + ".service")
	ctx, cancel := context.WithTimeoutCause(ctx, p.cfg.Wait, fmt.Errorf("it is not there after %s; its fetch goes on", p.cfg.Wait))
	defer cancel()
	tick := time.NewTicker(p.cfg.Poll)
	defer tick.Stop()
	for told := ""; ; {
		tell(&told, "fetching "+image, note)
		out, err := unit.Run(ctx, "podman", "pull", "--quiet", "--", image)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("fetch image %s: %w", image, context.Cause(ctx))
		case !strings.Contains(out, "already loaded"):
			return fmt.Errorf("fetch image %s: %w", image, failure("podman", out, err))
		}
		tell(&told, "waiting for the fetch of "+image+" that goes on", note)
		select {
		case <-tick.C:
		case <-ctx.Done():
			continue // which says so
		}
		if there, err := p.hasImage(ctx, image); err != nil || there {
			return err
		}
	}
}

// tell notes what is news.
func tell(told *string, what string, note func(string)) {
	if *told == "" || !strings.HasPrefix(what, "fetching") && *told != what {
		note(what)
		*told = what
	}
}

func (p *Podman) hasImage(ctx context.Context, image string) (bool, error) {
	_, err := p.cfg.Query.Run(ctx, "podman", "image", "exists", "--", image)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &exit) && exit.ExitCode() == 1:
		return false, nil
	}
	return false, fmt.Errorf("ask podman for image %s: %w", image, err)
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
// configuration and the driver of Debian: each change makes new ones, and looking
// makes none.
var podmanFiles = []string{
	podmanStorage + "/overlay-containers/containers.json",
	podmanStorage + "/overlay-images/images.json",
}

const podmanStorage = "/var/lib/containers/storage"

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

// podmanState tells one state of what podman has from every other; empty where it
// is not known to be in podmanFiles.
func podmanState() string {
	if _, err := os.Lstat("/etc/containers/storage.conf"); !errors.Is(err, fs.ErrNotExist) {
		return "" // podman may have been told to keep it elsewhere
	}
	if _, err := os.Stat(podmanFiles[0]); err != nil {
		return ""
	}
	return stateOf(podmanFiles...)
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
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), quiet...)
	complaints := &tail{}
	cmd.Stderr = complaints
	out, err := cmd.Output()
	if err != nil {
		err = failure(argv[0], complaints.String(), err)
	}
	return string(out), err
}
