package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// offered is where packages for the repository are put in the tree while it is
// made; they are moved out of it before it becomes a disk.
const offered = "/.offered"

// What no machine reads is not unpacked, on the disk or by any later package:
// most of the time to install one, emulated, goes into files.
var unread = []string{
	"path-exclude=/usr/share/doc/*", "path-include=/usr/share/doc/*/copyright",
	"path-exclude=/usr/share/man/*", "path-exclude=/usr/share/info/*",
	"path-exclude=/usr/share/locale/*", "path-exclude=/usr/share/lintian/*",
}

// bootstrap is the command that makes r's tree in root, with its scripts and
// settings as files in work.
func bootstrap(r Recipe, a archive, work, root string) ([]string, error) {
	sources, err := a.sources(r.Suite)
	if err != nil {
		return nil, err
	}
	options := filepath.Join(work, "apt.conf")
	if err := os.WriteFile(options, a.reach(), 0o644); err != nil {
		return nil, fmt.Errorf("write apt's settings: %v", err)
	}
	args := []string{
		"mmdebstrap", "--mode=root", "--format=directory", "--variant=minbase",
		"--hook-dir=/usr/share/mmdebstrap/hooks/maybe-merged-usr", // as every installed Debian is
		"--include=" + strings.Join(r.Include, ","),
		"--aptopt=" + options,
		`--aptopt=APT::Install-Recommends "false"`, `--aptopt=Acquire::Languages "none"`,
	}
	for _, option := range unread {
		args = append(args, "--dpkgopt="+option)
	}
	for _, stage := range []struct {
		flag  string
		hooks []Hook
	}{{"essential", r.Prepare}, {"customize", r.Hooks}} {
		if stage.flag == "customize" && len(r.Offer) > 0 {
			args = append(args, "--customize-hook="+fetch(r.Offer))
		}
		for i, h := range stage.hooks {
			file := filepath.Join(work, fmt.Sprintf("%s-%02d-%s", stage.flag, i, h.Name))
			if err := os.WriteFile(file, []byte(h.Script), 0o644); err != nil {
				return nil, fmt.Errorf("write hook %s: %v", h.Name, err)
			}
			args = append(args, fmt.Sprintf("--%s-hook=%s", stage.flag, inside(file, r.Name)))
		}
	}
	return append(append(args, r.Suite, root), sources...), nil
}

// inside is the shell text that runs a script in the tree $1.
func inside(file, image string) string {
	return fmt.Sprintf(`cp %s "$1/.hook" && chroot "$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C IMAGE=%s sh -eu /.hook && rm "$1/.hook"`,
		quote(file), quote(image))
}

// fetch is the shell text that downloads packages into the tree $1 with the
// apt of the lab machine, for the tree may have no resolver of its own yet.
func fetch(packages []string) string {
	return fmt.Sprintf(`mkdir -p "$1%[1]s/partial" && APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get --yes --download-only -o Dir::Cache::Archives="$1%[1]s" -o APT::Sandbox::User=root install %[2]s && rm -r "$1%[1]s/partial" "$1%[1]s/lock"`,
		offered, strings.Join(packages, " "))
}

// quote makes one word of the shell out of s.
func quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// runner runs the programs of one build. What they say goes into one log.
type runner struct {
	log *os.File
	tmp string // their TMPDIR
}

// run runs one command to its end in a mount and process namespace of its own:
// when it ends, or this process does, however it ends, nothing of it is left
// running or mounted. On failure the error carries the end of the log.
func (r runner) run(ctx context.Context, args ...string) error {
	runtime.LockOSThread() // Pdeathsig is sent when the thread ends that started the child
	defer runtime.UnlockOSThread()
	fmt.Fprintf(r.log, "+ %s\n", strings.Join(args, " "))
	begin, err := r.log.Seek(0, 2)
	if err != nil {
		return fmt.Errorf("read the build's log: %v", err)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = r.log, r.log
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive", "TMPDIR="+r.tmp)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWPID,
		Unshareflags: syscall.CLONE_NEWNS, // makes every mount private too
		Pdeathsig:    syscall.SIGKILL,
	}
	cmd.WaitDelay = 5 * time.Second
	err = cmd.Run()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, exec.ErrNotFound):
		return missing(args[0])
	}
	return fmt.Errorf("%s: %v\n%s", args[0], err, tail(r.log, begin, 12))
}

// missing says that a program is not installed.
func missing(program string) error {
	return problem{
		what: "run " + program, where: "this machine", why: "it is not installed",
		do: "run `lab install` as root", code: exitPrerequisite,
	}
}

// tail is the last lines of a file from an offset on, indented.
func tail(f *os.File, from int64, lines int) string {
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	content := make([]byte, min(info.Size()-from, 16<<10))
	n, _ := f.ReadAt(content, info.Size()-int64(len(content))) // what cannot be read is not shown
	all := strings.Split(strings.TrimSpace(string(content[:n])), "\n")
	return "    " + strings.Join(all[max(0, len(all)-lines):], "\n    ")
}
