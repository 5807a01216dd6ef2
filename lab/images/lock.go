package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lock takes the store's lock: whoever holds it is the only one that builds or
// removes. It ends with the returned function or with the process. waiting is
// called once if somebody else has it.
func lock(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the image store: %v", err)
	}
	// The kernel tells no other process that a lock was given back, and a wait in
	// flock(2) cannot be cancelled.
	try := time.NewTicker(200 * time.Millisecond)
	defer try.Stop()
	for first := true; ; first = false {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("lock the image store: %v", err)
		}
		if first {
			waiting()
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-try.C:
		}
	}
}
