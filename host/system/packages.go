package system

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Package is what dpkg knows of one package. The zero value means it is not
// installed; what is left of its configuration does not count.
type Package struct {
	Version string
	Status  string // "installed", or in dpkg's words how far it came
}

// Runner runs a command to its end and returns what it printed. It returns an
// *exec.ExitError when the command ran and failed, and one that matches ErrGoesOn
// when it is not waited for any longer.
type Runner interface {
	Run(ctx context.Context, argv ...string) (output string, err error)
}

// PackagesConfig is what Packages needs.
type PackagesConfig struct {
	Query  Runner        // runs what only reads, or knows the answer
	Change Runner        // runs what changes packages, where the host's end does not end it
	Holder func() string // who holds the package lock, in words; empty when nobody does
	Broken func() bool   // dpkg was interrupted in the middle of writing its database
	Wait   time.Duration // how long to wait for the lock; 0 means 10 minutes
	Poll   time.Duration // how often to look at it; 0 means a second

	Sources func() string  // tells one state of apt's sources from every other: after a change of them what failed is tried at once; nil: they never change
	Jitter  func() float64 // in [0,1), of the delays between attempts; nil means at random

	Archives string // directory in which apt keeps what it fetched; empty means /var/cache/apt/archives
}

// Packages installs and removes Debian packages. One change runs at a time; the
// package system's own lock sees to that.
type Packages struct {
	cfg      PackagesConfig
	attempts *attempts // by what is installed
}

// NewPackages makes a Packages; it runs nothing.
func NewPackages(cfg PackagesConfig) *Packages {
	if cfg.Wait == 0 {
		cfg.Wait = 10 * time.Minute
	}
	if cfg.Poll == 0 {
		cfg.Poll = time.Second
	}
	if cfg.Archives == "" {
		cfg.Archives = "/var/cache/apt/archives"
	}
	if cfg.Sources == nil {
		cfg.Sources = func() string { return "" }
	}
	return &Packages{cfg, newAttempts(cfg.Jitter)}
}

// Installed says what is known of each name; names that are not installed are
// left out.
func (p *Packages) Installed(ctx context.Context, names []string) (map[string]Package, error) {
	found := map[string]Package{}
	if len(names) == 0 {
		return found, nil
	}
	argv := []string{"dpkg-query", "-W", "-f", `${Package}\t${db:Status-Status}\t${db:Status-Eflag}\t${Version}\n`, "--"}
	out, err := p.cfg.Query.Run(ctx, append(argv, names...)...)
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) { // 1: some name is unknown
		return nil, fmt.Errorf("ask dpkg what is installed: %w", err)
	}
	for line := range strings.Lines(out) {
		part := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(part) != 4 {
			continue
		}
		status := part[1]
		switch {
		case status == "not-installed", status == "config-files":
			continue
		case part[2] != "ok":
			status = "in need of being installed again"
		case strings.HasPrefix(status, "triggers-"):
			status = "installed" // it works; dpkg has housekeeping left
		}
		if _, twice := found[part[0]]; !twice || status == "installed" {
			found[part[0]] = Package{Version: part[3], Status: status}
		}
	}
	return found, nil
}

// apt asks nothing, keeps configuration files that were changed, and takes no
// other package away.
var apt = []string{"apt-get", "-q", "-y", "--no-remove",
	"-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold",
	"-o", "DPkg::Lock::Timeout=60", "-o", "Dpkg::Use-Pty=0",
	"-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=30", "-o", "Acquire::https::Timeout=30"}

// Install installs a package, in exactly this version if one is given, which
// may be an older one than is installed. It waits for the lock, repairs an
// interrupted dpkg once, and reads the sources anew once; note is told what it
// is at. After one that failed the next is not tried before a while, which grows.
func (p *Packages) Install(ctx context.Context, name, version string, note func(string)) error {
	argv := append(append([]string{}, apt...), "install", "--no-install-recommends")
	what := name
	if version != "" {
		argv = append(argv, "--allow-downgrades")
		what += "=" + version
	}
	argv = append(argv, what)

	return p.try(ctx, what, "", func() error {
		note("installing")
		repaired, err := p.change(ctx, note, false, argv)
		if err == nil || over(ctx, err) {
			return err
		}
		note("reading the package sources, because the first try failed")
		repaired, unread := p.update(ctx, note, repaired)
		if over(ctx, unread) {
			return errors.Join(err, unread)
		}
		note("installing, second try")
		_, err = p.change(ctx, note, repaired, argv)
		return because(err, unread)
	})
}

// try installs something, by a file if it is of one, unless that failed a moment ago.
func (p *Packages) try(ctx context.Context, what, file string, install func() error) error {
	key, as := what+" "+file, p.cfg.Sources()
	if err := p.attempts.rests(key, as); err != nil {
		return err
	}
	err := wrap("install package "+what, install())
	if !over(ctx, err) { // else it was not tried to the end
		p.attempts.came(key, as, err)
	}
	return err
}

// update reads the package sources. That some of them cannot be read is noted: it may
// be somebody else's that has nothing to do with what is installed.
func (p *Packages) update(ctx context.Context, note func(string), repaired bool) (bool, error) {
	repaired, err := p.change(ctx, note, repaired, append(append([]string{}, apt...), "update"))
	if err != nil {
		err = fmt.Errorf("read the package sources: %w", err)
		note("going on with what is known of the package sources, because not all can be read: " + err.Error())
	}
	return repaired, err
}

// over says whether nothing else is to be tried after an error: whoever has the
// package lock keeps it.
func over(ctx context.Context, err error) bool {
	held := (*heldError)(nil)
	return err != nil && (ctx.Err() != nil || errors.Is(err, ErrGoesOn) || errors.As(err, &held))
}

// because is err, with what may be the reason for it.
func because(err, reason error) error {
	if err == nil {
		return nil
	}
	return errors.Join(err, reason)
}

// InstallFile installs the package in a file, and what it depends on.
func (p *Packages) InstallFile(ctx context.Context, name, file string, note func(string)) error {
	argv := append(append([]string{}, apt...), "install", "--no-install-recommends", "--allow-downgrades", "--", file)
	return p.try(ctx, name, file, func() error {
		note("installing")
		_, err := p.change(ctx, note, false, argv)
		return err
	})
}

// InstallFrom installs the newest version of a package that a source offers,
// which is named by its archive or codename.
func (p *Packages) InstallFrom(ctx context.Context, name, release string, note func(string)) error {
	argv := append(append([]string{}, apt...), "install", "--no-install-recommends", "-t", release, "--", name+"/"+release)
	return p.try(ctx, name+" from "+release, "", func() error {
		note("reading the package sources")
		repaired, unread := p.update(ctx, note, false)
		if over(ctx, unread) {
			return unread
		}
		note("installing")
		_, err := p.change(ctx, note, repaired, argv)
		return because(err, unread)
	})
}

// Newest is the newest version of a package that a source offers, as of when
// the sources were read last; empty when it offers none.
func (p *Packages) Newest(ctx context.Context, name, release string) (string, error) {
	out, err := p.cfg.Query.Run(ctx, "apt-cache", "madison", "--", name)
	if err != nil {
		return "", fmt.Errorf("ask apt what is offered of %s: %w", name, err)
	}
	for line := range strings.Lines(out) { // the newest first
		part := strings.Split(line, "|")
		if len(part) != 3 {
			continue
		}
		source := strings.Fields(part[2]) // URL, archive/component, architecture, "Packages"
		if len(source) > 1 && strings.HasPrefix(source[1]+"/", release+"/") {
			return strings.TrimSpace(part[1]), nil
		}
	}
	return "", nil
}

// Fetched is the file of a version of a package that apt fetched and still has.
// The error matches fs.ErrNotExist when there is none.
func (p *Packages) Fetched(name, version string) ([]byte, error) {
	name += "_" + strings.ReplaceAll(version, ":", "%3a") + "_*.deb" // the rest is the architecture
	files, err := filepath.Glob(filepath.Join(p.cfg.Archives, name))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("look for %s in %s: %w", name, p.cfg.Archives, fs.ErrNotExist)
	}
	return os.ReadFile(files[0])
}

// Uninstall removes a package and leaves its configuration files. It refuses
// when another package needs it.
func (p *Packages) Uninstall(ctx context.Context, name string, note func(string)) error {
	note("removing")
	_, err := p.change(ctx, note, false, []string{"dpkg", "--remove", "--", name})
	return wrap("remove package "+name, err)
}

// change runs argv once nobody holds the lock, after repairing what an
// interrupted dpkg left, unless that was tried before.
func (p *Packages) change(ctx context.Context, note func(string), repaired bool, argv []string) (bool, error) {
	if err := p.wait(ctx, note); err != nil {
		return repaired, err
	}
	if !repaired && p.interrupted(ctx) {
		repaired = true
		note("repairing an interrupted dpkg")
		if out, err := p.cfg.Change.Run(ctx, "dpkg", "--force-confdef", "--force-confold", "--configure", "-a"); err != nil {
			return repaired, failure("repair an interrupted dpkg", out, err)
		}
	}
	out, err := p.cfg.Change.Run(ctx, argv...)
	return repaired, failure(argv[0], out, err)
}

// interrupted says whether dpkg was killed in the middle of something.
func (p *Packages) interrupted(ctx context.Context) bool {
	if p.cfg.Broken() {
		return true
	}
	out, err := p.cfg.Query.Run(ctx, "dpkg", "--audit")
	return err == nil && strings.TrimSpace(out) != ""
}

// wait returns when nobody holds the package lock.
func (p *Packages) wait(ctx context.Context, note func(string)) error {
	deadline := time.NewTimer(p.cfg.Wait)
	defer deadline.Stop()
	tick := time.NewTicker(p.cfg.Poll)
	defer tick.Stop()
	told := ""
	for {
		holder := p.cfg.Holder()
		if holder == "" {
			return nil
		}
		if holder != told {
			note("waiting for the package lock, which " + holder + " holds")
			told = holder
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the package lock, which %s holds: %w", holder, context.Cause(ctx))
		case <-deadline.C:
			return &heldError{holder, p.cfg.Wait}
		}
	}
}

// heldError says that somebody else has the package lock for longer than is waited.
type heldError struct {
	holder string
	wait   time.Duration
}

func (e *heldError) Error() string {
	return fmt.Sprintf("wait for the package lock: %s has held it for %s: see what it does, or end it", e.holder, e.wait)
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// failure makes one line of a failed command: what it said was wrong.
func failure(what, output string, err error) error {
	if err == nil {
		return nil
	}
	var said []string
	last := ""
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line != "" {
			last = line
		}
		if strings.HasPrefix(line, "E: ") || strings.HasPrefix(line, "dpkg: error") {
			said = append(said, line)
		}
	}
	switch {
	case len(said) == 0 && last == "":
		return fmt.Errorf("%s: %w", what, err)
	case len(said) == 0:
		said = []string{last}
	}
	const most = 3 // further complaints follow from the first
	return fmt.Errorf("%s: %w: %s", what, err, strings.Join(said[:min(most, len(said))], "; "))
}
