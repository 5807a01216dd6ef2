package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// queue lets a number of holders in at a time, first come first served, over all
// processes of the lab machine. A holder or waiter whose process ends, however,
// makes room.
//
// It is a directory of tickets, files named by their number; a ticket counts as
// long as its file is locked. The directory is there only while somebody needs
// it.
type queue struct {
	dir  string
	poll time.Duration // how often a waiter looks
}

// ticketDigits keeps names of tickets in the order of their numbers.
const ticketDigits = 8

// enter waits until fewer than room others are ahead. waiting, unless nil, is
// called once, with how many are ahead, if there is anything to wait for. The
// returned function makes room; it is called once.
func (q queue) enter(ctx context.Context, room int, waiting func(ahead int)) (leave func(), err error) {
	mine, file, err := q.draw(ctx)
	if err != nil {
		return nil, fmt.Errorf("wait in line: %w", err)
	}
	leave = func() { q.leave(file) }
	tick := time.NewTicker(q.poll)
	defer tick.Stop()
	for {
		ahead, err := q.ahead(ctx, mine)
		if err != nil {
			leave()
			return nil, fmt.Errorf("wait in line: %w", err)
		}
		if ahead < max(1, room) {
			return leave, nil
		}
		if waiting != nil {
			waiting(ahead)
			waiting = nil
		}
		select {
		case <-ctx.Done():
			leave()
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// draw makes the caller's ticket: the next number.
func (q queue) draw(ctx context.Context) (number int, file *os.File, err error) {
	err = q.alone(ctx, func() error {
		tickets, err := q.tickets()
		if err != nil {
			return err
		}
		number = 1
		if len(tickets) > 0 {
			number = tickets[len(tickets)-1] + 1
		}
		file, err = os.OpenFile(q.path(number), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	})
	return number, file, err
}

// ahead counts the tickets that were drawn before one.
func (q queue) ahead(ctx context.Context, mine int) (n int, err error) {
	err = q.alone(ctx, func() error {
		tickets, err := q.tickets()
		n = slices.Index(tickets, mine)
		if err == nil && n < 0 {
			err = fmt.Errorf("ticket %s was taken away", q.path(mine))
		}
		return err
	})
	return n, err
}

// leave gives a ticket back. The directory stays with those who have one.
func (q queue) leave(file *os.File) {
	_ = os.Remove(file.Name())
	_ = os.Remove(q.dir) // fails, as it should, while there are others
	_ = file.Close()
}

// alone does something while no other process looks at the queue.
func (q queue) alone(ctx context.Context, do func() error) error {
	again := time.NewTicker(min(q.poll, 10*time.Millisecond))
	defer again.Stop()
	for {
		held, err := tryLock(filepath.Join(q.dir, "lock"))
		if err == nil {
			defer held.release()
			return do()
		}
		if !errors.Is(err, errLocked) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-again.C:
		}
	}
}

// sweep removes the tickets of processes that were killed, and the directory if
// nobody needs it. Where somebody looks at the queue just now, he does so himself.
func (q queue) sweep() {
	if _, err := os.Stat(q.dir); err != nil {
		return
	}
	if held, err := tryLock(filepath.Join(q.dir, "lock")); err == nil {
		_, _ = q.tickets()
		held.release()
	}
}

// tickets lists the numbers that count, in order, and removes the others. Called
// alone.
func (q queue) tickets() (numbers []int, err error) {
	entries, err := os.ReadDir(q.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue // the lock
		}
		if lives(q.path(n)) {
			numbers = append(numbers, n)
		} else if err := os.Remove(q.path(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// lives tells whether somebody holds a ticket.
func lives(ticket string) bool {
	f, err := os.Open(ticket)
	if err != nil {
		return false // given back meanwhile
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil
}

func (q queue) path(number int) string {
	return filepath.Join(q.dir, fmt.Sprintf("%0*d", ticketDigits, number))
}
