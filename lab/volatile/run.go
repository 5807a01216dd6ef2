package volatile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"mesh/lab/companion"
)

// Run mounts, and serves until ctx is done, which is no error, or until the mount
// was taken away by somebody. Disks that are open then fail with every request.
// Call it once.
func (s *Server) Run(ctx context.Context) error {
	socket, err := companion.Claim(s.config.Control, "a server of disks")
	if err != nil {
		return err
	}
	control := &http.Server{
		Handler: s.control(), ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	mounted, err := s.mount()
	if err != nil {
		return errors.Join(err, socket.Close())
	}
	var group errgroup.Group
	gone := make(chan struct{})
	group.Go(func() error {
		defer close(gone)
		mounted.Serve()
		return nil
	})
	group.Go(func() error {
		if err := control.Serve(socket); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("control socket: %v", err)
		}
		return nil
	})
	if err := mounted.WaitMount(); err != nil {
		s.log.Error("mount does not answer", "err", err)
	} else {
		s.log.Info("disks are ready", "pid", os.Getpid(), "mount", s.config.Mount)
		close(s.ready)
	}
	select {
	case <-ctx.Done():
	case <-gone:
		s.log.Error("the mount was taken away")
	}
	err = errors.Join(control.Close(), detach(s.config.Mount))
	// A disk that is open keeps the mount alive, and nobody would wait for it.
	select {
	case <-gone:
		return errors.Join(err, group.Wait())
	case <-time.After(time.Second):
		return errors.Join(err, errors.New("disks are open still; whoever has them gets errors from now on"))
	}
}

// mount mounts the disks where the configuration says. The kernel keeps neither
// names nor attributes nor content, which change behind it.
func (s *Server) mount() (*fuse.Server, error) {
	if err := os.MkdirAll(s.config.Mount, 0o755); err != nil {
		return nil, fmt.Errorf("mount disks: %w", err)
	}
	never := time.Duration(0)
	root := fs.NewNodeFS(&directory{server: s}, &fs.Options{
		EntryTimeout: &never, AttrTimeout: &never, NegativeTimeout: &never,
	})
	mounted, err := fuse.NewServer(root, s.config.Mount, &fuse.MountOptions{
		FsName: "mesh-lab", Name: "mesh-disks", DirectMountStrict: true,
		AllowOther: true, Options: []string{"default_permissions"},
		MaxWrite: 1 << 20, DisableXAttrs: true, DisableReadDirPlus: true,
		Logger: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	})
	if err != nil {
		return nil, fmt.Errorf("mount disks at %s by FUSE: %w", s.config.Mount, err)
	}
	return mounted, nil
}

// detach takes a mount away, also one whose server was killed and one that is in
// use: who uses it keeps what they have open. No mount is success.
func detach(mount string) error {
	for {
		err := unix.Unmount(mount, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		switch {
		case err == nil: // there may be another one beneath
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
			return nil
		default:
			return fmt.Errorf("unmount %s: %w", mount, err)
		}
	}
}

// Serve is the whole of the process that Start starts: a server that logs to its
// Config's file and writes its Status to out, one line, once it is ready.
func Serve(ctx context.Context, c Config, out io.Writer) error {
	file, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open log of disks: %v", err)
	}
	defer file.Close()
	s := NewServer(c, slog.New(slog.NewJSONHandler(file, nil)))
	group, ctx := errgroup.WithContext(ctx)
	ran := make(chan struct{})
	group.Go(func() error {
		defer close(ran)
		return s.Run(ctx)
	})
	group.Go(func() error {
		select {
		case <-ran:
			return nil
		case <-s.Ready():
			return json.NewEncoder(out).Encode(s.Status())
		}
	})
	return group.Wait()
}
