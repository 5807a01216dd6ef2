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
// oldest first, and PATH. fs.ErrNotExist when there is nothing.
func Recorded(path string) (io.ReadCloser, error) {
	names := []string{path}
	for i := range maxParts {
		name := path + "." + strconv.Itoa(i)
		if _, err := os.Lstat(name); err != nil {
			break
		}
		names = append([]string{name}, names...)
	}
	r := &recorded{}
	for _, name := range names {
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) && (name != path || len(r.files) > 0) {
			continue // renamed between the two looks
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open a recorded console: %w", err), r.Close())
		}
		r.files = append(r.files, f)
	}
	readers := make([]io.Reader, len(r.files))
	for i, f := range r.files {
		readers[i] = f
	}
	r.Reader = io.MultiReader(readers...)
	return r, nil
}

type recorded struct {
	io.Reader
	files []*os.File
}

func (r *recorded) Close() error {
	var problems []error
	for _, f := range r.files {
		problems = append(problems, f.Close())
	}
	return errors.Join(problems...)
}
