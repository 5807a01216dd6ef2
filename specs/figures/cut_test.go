package figures_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"

	"mesh/host/system/systemtest"
)

// cutSize is the size of the file system that is cut off its disk.
const cutSize = 256 << 20

// cuts counts each program's calls that wait for the disk, and cuts the disk off
// as soon as it has ended.
func (c *comparison) cuts(ctx context.Context, all []contender) {
	for _, x := range all {
		c.t.Logf("cut off its disk: %s", x.name)
		if err := c.cut(ctx, x); err != nil {
			c.t.Logf("%s: %v", x.name, err)
			c.notes = append(c.notes, fmt.Sprintf("%s was not cut off its disk everywhere: %v", x.name, err))
		}
	}
}

// cut is all phases of one program on a file system of its own.
func (c *comparison) cut(ctx context.Context, x contender) (err error) {
	g, err := c.ground(x, "cut-"+filepath.Base(x.program))
	if err != nil {
		return err
	}
	image, at := filepath.Join(c.dir, "image"), filepath.Dir(g.tree)
	if err := systemtest.MakeExt4(image, cutSize); err != nil {
		return err
	}
	disk, err := systemtest.MountExt4(image, at)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, disk.Unmount()) }()
	run := func(d document) []string { return append([]string{x.program}, x.command(g, d)...) }
	for _, p := range phases {
		if err := c.from(ctx, x, g, p); err != nil {
			return err
		}
		calls, err := count(ctx, g.work, x.env(g), run(p.to)...)
		if err == nil {
			err = disk.Shutdown(systemtest.ShutdownNoLogFlush)
		}
		if err == nil {
			err = disk.Unmount()
		}
		if err != nil {
			return err
		}
		again, err := systemtest.MountExt4(image, at)
		if err != nil {
			return err
		}
		disk = again
		line := c.sheet.Line(p.what, x.name)
		line.Fsyncs = calls
		if p.about != nil {
			begin, end := p.about(g)
			line.Durable = fmt.Sprintf("%d of %d", g.check(p.to, begin, end), end-begin)
		}
		if x.slow {
			return nil // with the first phase; each further one takes minutes
		}
	}
	return nil
}

func allOf(n int) string { return fmt.Sprintf("%d of %d", n, n) }

// from brings the files to where a phase begins, durably.
func (c *comparison) from(ctx context.Context, x contender, g ground, p phase) error {
	if p.from == "" {
		return nil
	}
	if err := run(ctx, x.env(g), append([]string{x.program}, x.command(g, p.from)...)...); err != nil {
		return err
	}
	if whole := g.check(p.from, 0, g.files); whole != g.files {
		return fmt.Errorf("%d of %d files are as declared after the cut before %q, and another run", whole, g.files, p.what)
	}
	if p.drifts {
		if err := g.drift(); err != nil {
			return err
		}
	}
	syscall.Sync()
	return nil
}
