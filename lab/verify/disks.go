package verify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"mesh/lab/volatile"
)

// powerCut serves a disk, flushes one write to it and not another, and takes it
// away from its writer.
var powerCut = check{
	name: "power cut", optional: true,
	do: func(ctx context.Context) (string, error) {
		if err := volatile.Works(); err != nil {
			return "", err
		}
		return inTemp(func(dir string) (_ string, err error) {
			c := volatile.Config{
				Directory: filepath.Join(dir, "behind"), Mount: filepath.Join(dir, diskMount),
				Control: filepath.Join(dir, "control"), Log: filepath.Join(dir, "log"),
			}
			file := filepath.Join(c.Directory, "disk"+volatile.Suffix)
			if err := errors.Join(os.Mkdir(c.Directory, 0o755), os.WriteFile(file, []byte("------"), 0o644)); err != nil {
				return "", err
			}
			ctx, end := context.WithCancel(ctx)
			server, ended := volatile.NewServer(c, nil), make(chan error, 1)
			go func() { ended <- server.Run(ctx) }()
			select {
			case <-server.Ready():
			case err := <-ended:
				end()
				return "", err
			}
			defer func() {
				end()
				err = errors.Join(err, <-ended)
			}()
			return "a disk kept what was flushed and lost what was not", writeAndLose(ctx, server, c.Disk(file))
		})
	},
	remedy: "load FUSE (modprobe fuse) and let root mount; until then what a machine did not flush survives lab power cut",
}

// writeAndLose closes a disk with one write flushed and one not.
func writeAndLose(ctx context.Context, server *volatile.Server, disk string) error {
	f, err := os.OpenFile(disk, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("abc")
	err = errors.Join(err, f.Sync())
	_, late := f.WriteString("def")
	if err := errors.Join(err, late, f.Close()); err != nil {
		return err
	}
	for len(server.Status().Disks) > 0 { // the kernel tells of the close when it likes
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
	is, err := os.ReadFile(disk)
	if err == nil && string(is) != "abc---" {
		err = fmt.Errorf("a disk that held \"------\" was given \"abc\", a flush, and \"def\", and then held %q", is)
	}
	return err
}
