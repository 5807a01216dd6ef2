package guest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
)

// maxParts is how many parts of a recorded console are looked for; virtlogd
// keeps three.
const maxParts = 100

// Recorded opens everything that is recorded of a console, from its first byte
// on: what virtlogd renamed to PATH.0, PATH.1 and so on when it grew too long,
// oldest first, and PATH. After io.EOF, reading again gives what was recorded
// since, over renaming too. fs.ErrNotExist when there is nothing.
func Recorded(path string) (io.ReadCloser, error) {
	r := &recorded{path: path}
	// The newest first: what is renamed meanwhile is met once more, not missed.
	f, err := os.Open(path)
	if err == nil {
		r.parts = append(r.parts, f)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open a recorded console: %w", err)
	}
	for i := range maxParts {
		f, openErr := os.Open(path + "." + strconv.Itoa(i))
		if errors.Is(openErr, fs.ErrNotExist) {
			break
		}
		if openErr != nil {
			return nil, errors.Join(fmt.Errorf("open a recorded console: %w", openErr), r.Close())
		}
		if len(r.parts) > 0 && sameFile(r.parts[0], f) {
			f.Close()
			continue
		}
		r.parts = append([]*os.File{f}, r.parts...)
	}
	if len(r.parts) == 0 {
		return nil, fmt.Errorf("open a recorded console: %w", err)
	}
	return r, nil
}

type recorded struct {
	path  string
	parts []*os.File // what is still to be read; the last is the one that grows
}

// Read is io.Reader's; see Recorded.
func (r *recorded) Read(p []byte) (int, error) {
	for {
		f := r.parts[0]
		replaced := len(r.parts) > 1 || r.replaced(f) // asked first: what is written until then is read
		n, err := f.Read(p)
		if n > 0 || !errors.Is(err, io.EOF) {
			return n, err
		}
		if !replaced {
			return 0, r.rewind(f)
		}
		if len(r.parts) == 1 {
			next, err := os.Open(r.path)
			if err != nil {
				return 0, io.EOF // renamed again, and not there yet
			}
			r.parts = append(r.parts, next)
		}
		f.Close()
		r.parts = r.parts[1:]
	}
}

// rewind begins again with a file that was cut; its error is io.EOF.
func (r *recorded) rewind(f *os.File) error {
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	if info, err := f.Stat(); err == nil && info.Size() < at {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
	return io.EOF
}

// replaced tells whether another file has the console's name now.
func (r *recorded) replaced(f *os.File) bool {
	named, err := os.Open(r.path)
	if err != nil {
		return false
	}
	defer named.Close()
	return !sameFile(f, named)
}

// Close is io.Closer's.
func (r *recorded) Close() error {
	var problems []error
	for _, f := range r.parts {
		problems = append(problems, f.Close())
	}
	return errors.Join(problems...)
}

func sameFile(a, b *os.File) bool {
	x, errX := a.Stat()
	y, errY := b.Stat()
	return errX == nil && errY == nil && os.SameFile(x, y)
}
