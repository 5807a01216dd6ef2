package system

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// ErrInUse is matched when an image is not removed, because something is made of it.
var ErrInUse = errors.New("something is made of it")

// stored is what `podman images` prints of an image.
// https://docs.podman.io/en/latest/markdown/podman-images.1.html
type stored struct {
	ID          string `json:"Id"`
	Digest      string
	RepoDigests []string
}

// Images says which of these images, named by their digests, are there, and for
// each the names of the containers that are made of it. Errors match ErrNoContainers.
func (p *Podman) Images(ctx context.Context, names []string) (map[string][]string, error) {
	found := map[string][]string{}
	if len(names) == 0 {
		return found, nil
	}
	if err := p.able(ctx); err != nil {
		return nil, err
	}
	var images []stored
	if err := p.ask(ctx, &images, "images", "--all"); err != nil {
		return nil, err
	}
	var containers []listed
	if err := p.ask(ctx, &containers, "ps", "--all"); err != nil {
		return nil, err
	}
	for _, name := range names {
		i := slices.IndexFunc(images, func(s stored) bool { return slices.Contains(s.RepoDigests, name) })
		if i < 0 {
			continue
		}
		found[name] = nil
		for _, l := range containers {
			if l.ImageID == images[i].ID {
				found[name] = append(found[name], l.name())
			}
		}
		slices.Sort(found[name])
	}
	return found, nil
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
// makes it durable, which podman leaves to the kernel. It runs in FetchUnit, which
// goes on when the host ends, or does not wait any longer; a fetch of it that goes
// on is waited for. After one that failed the next is not tried before a while,
// which grows.
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
	if err := p.attempts.rests(image, ""); err != nil {
		return err
	}
	if err := p.cfg.Room(); err != nil {
		return fmt.Errorf("fetch image %s: %w", image, err)
	}
	err = p.pull(ctx, image, note)
	if err == nil || ctx.Err() == nil { // what the host's end ends has not failed
		p.attempts.came(image, "", err)
	}
	if err == nil {
		err = wrap("make image "+image+" durable", p.cfg.Sync())
	}
	return err
}

// pull fetches an image, which was not there.
func (p *Podman) pull(ctx context.Context, image string, note func(string)) error {
	unit := p.cfg.Change(FetchUnit(image))
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

// FetchUnit is the systemd unit in which an image is fetched.
func FetchUnit(image string) string {
	_, digest, _ := strings.Cut(image, "@sha256:")
	return "mesh-host-image-" + digest[:min(len(digest), 16)] + ".service"
}

// RemoveImage removes an image by its name, durably, and nothing that it stands on;
// one that is not there is no error. Errors match ErrInUse when podman says that
// something is made of it.
// https://docs.podman.io/en/latest/markdown/podman-rmi.1.html
func (p *Podman) RemoveImage(ctx context.Context, image string) error {
	if err := p.able(ctx); err != nil {
		return err
	}
	_, err := p.cfg.Query.Run(ctx, "podman", "image", "rm", "--ignore", "--no-prune", "--", image)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == 2:
		return fmt.Errorf("remove image %s: %w: %v", image, ErrInUse, err)
	case err != nil:
		return fmt.Errorf("remove image %s: %w", image, err)
	}
	return wrap("make the removal of image "+image+" durable", p.cfg.Sync())
}
