package figures_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"mesh/host/declaration"
	"mesh/plane/enrolment"
	"mesh/plane/gateway"
	"mesh/plane/module"
	"mesh/plane/planetest"
	"mesh/specs/figures"
)

// settles is how long a host is let alone before it is watched: by then files that
// were written are known well enough not to be read again.
const settles = 130 * time.Second

// idle watches mesh-host while it is connected to a plane and nothing happens:
// with a declaration of a few files, and with one of as many as the others keep.
func (c *comparison) idle(ctx context.Context) {
	if *rest == 0 {
		return
	}
	for _, files := range slices.Compact([]int{10, *hostFiles}) {
		c.t.Logf("idle for %s after %s, connected, %d files declared", *rest, settles, files)
		cpu, resident, err := c.watch(ctx, files)
		if err != nil {
			c.t.Errorf("idle with %d files: %v", files, err)
		}
		what := fmt.Sprintf("idle, connected, %d files of 4 KiB declared", files)
		c.goals = append(c.goals,
			figures.AtMost(what+": processor in ten minutes", cpu.Seconds()*1000*600/rest.Seconds(), 50, "ms", err == nil),
			figures.AtMost("… resident", float64(resident)/1e6, 15, "MB", err == nil))
	}
	c.notes = append(c.notes, fmt.Sprintf("an idle mesh-host is a node of a plane in another process; it makes a pass each minute and hears from the plane every ten seconds; watched for %s, %s after it enrolled", *rest, settles))
}

// watch is one host that is enrolled, and what it takes while nothing happens.
func (c *comparison) watch(ctx context.Context, files int) (cpu time.Duration, resident int64, err error) {
	name := fmt.Sprintf("idle%d", files)
	g := ground{work: filepath.Join(c.dir, name, "work"), tree: filepath.Join(c.dir, name, "at", "tree"), files: files}
	if err := errors.Join(os.MkdirAll(g.work, 0o700), os.MkdirAll(filepath.Dir(g.tree), 0o755)); err != nil {
		return 0, 0, err
	}
	token, err := c.plane(ctx, g)
	if err != nil {
		return 0, 0, err
	}
	if err := run(ctx, nil, append(append([]string{*hostBin}, hostFlags(g)...), "enrol", token)...); err != nil {
		return 0, 0, err
	}
	var said bytes.Buffer
	host := exec.Command(*hostBin, append(hostFlags(g), "run")...)
	host.Stdout, host.Stderr = &said, &said
	if err := host.Start(); err != nil {
		return 0, 0, err
	}
	defer func() {
		_ = host.Process.Signal(syscall.SIGTERM)
		if ended := host.Wait(); ended != nil {
			err = errors.Join(err, fmt.Errorf("mesh-host ended with %w: %s", ended, said.Bytes()))
		}
	}()
	if !pause(ctx, settles) {
		return 0, 0, context.Cause(ctx)
	}
	if whole := g.check(first, 0, files); whole != files {
		return 0, 0, fmt.Errorf("%d of %d files are as declared", whole, files)
	}
	before, err := processor(host.Process.Pid)
	if err != nil {
		return 0, 0, err
	}
	if !pause(ctx, *rest) {
		return 0, 0, context.Cause(ctx)
	}
	after, err := processor(host.Process.Pid)
	c.notes = append(c.notes, fmt.Sprintf("of what the idle mesh-host with %d files has resident, %.1f MB are its own; the rest are pages of its program's file",
		files, float64(memoryOf(host.Process.Pid, "RssAnon"))/1e6))
	return after - before, memoryOf(host.Process.Pid, "VmRSS"), err
}

// plane is one, on this machine, that declares the files to whoever enrols with
// the token.
func (c *comparison) plane(ctx context.Context, g ground) (token string, err error) {
	keeps := module.Module{Name: "figures", Summary: "files", Resources: func(module.Facts) (all []declaration.Resource) {
		for i, dir := range g.directories() {
			all = append(all, declaration.Resource{ID: fmt.Sprintf("figures/d%d", i), Directory: &declaration.Directory{Path: dir}})
		}
		for i := range g.files {
			all = append(all, declaration.Resource{ID: fmt.Sprintf("figures/f%d", i), File: &declaration.File{
				Path: g.path(i), Mode: fmt.Sprintf("%04o", fileMode), Content: g.content(first, i),
			}})
		}
		return all
	}}
	p := planetest.New(c.t, planetest.Options{Modules: []module.Module{keeps}})
	p.Advance(time.Until(p.Now()) * -1)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	links := gateway.New(gateway.Config{
		Mesh: p.Mesh, Enroller: p.Enrolments, Nodes: p.Store, Observations: p.Store, Contents: p.Store, Links: p.Links, Now: time.Now,
	})
	ended := make(chan error, 1)
	serving, stop := context.WithCancel(ctx)
	go func() { ended <- links.Run(serving, listener) }()
	c.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			c.t.Error(err)
		}
	})
	t := p.Token(c.t, enrolment.TokenRequest{Node: "idle", Modules: []string{keeps.Name}})
	t.Addresses = []netip.AddrPort{listener.Addr().(*net.TCPAddr).AddrPort()}
	return t.Encode(), nil
}

// pause passes the time to measure over; false when ctx ends before.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// processor is what a process has used so far: clock_getcpuclockid(3), as the
// kernel names the clock of a process.
func processor(pid int) (time.Duration, error) {
	const scheduler = 2 // CPUCLOCK_SCHED
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|scheduler, &ts); err != nil {
		return 0, fmt.Errorf("read what process %d has used: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// memoryOf is a line of proc_pid_status(5), in bytes.
func memoryOf(pid int, what string) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, what+":"); ok {
			kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10
		}
	}
	return 0
}
