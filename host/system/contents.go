package system

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// MaxContent is the most one content may have.
const MaxContent = 64 << 20

var errLarge = errors.New("it has more than any content")

// spare is how much of a disk stays free when content is fetched.
const spare = 64 << 20

// Contents keeps what is named by its digest: what was fetched for a
// declaration, and copies of what others wrote. It is a directory of files that
// are named by their SHA-256, in hex, and readable by root alone.
type Contents struct {
	files *Files
	path  string
	tidy  sync.Mutex // held while something is kept, or taken away: a part may come amid a pass
}

// NewContents keeps contents at p, which is made when there is a first one.
func NewContents(files *Files, p string) *Contents { return &Contents{files: files, path: p} }

// ContentPath is where the content of a digest lies, if it is kept.
func (c *Contents) ContentPath(digest string) string { return path.Join(c.path, digest) }

// HasContent says whether the content of a digest is kept.
func (c *Contents) HasContent(digest string) bool { return c.HasContents([]string{digest})[0] }

// HasContents is HasContent for each of digests.
func (c *Contents) HasContents(digests []string) []bool {
	has := make([]bool, len(digests))
	dir, err := c.files.disk.OpenDir(c.path)
	if err != nil {
		return has
	}
	defer dir.Close()
	for i, digest := range digests {
		st, err := dir.Stat(digest)
		has[i] = err == nil && st.Type == TypeFile
	}
	return has
}

// ReadContent returns the content of a digest. One that is damaged is taken
// away, so that it is fetched again; the error matches ErrChanged.
func (c *Contents) ReadContent(digest string) ([]byte, error) {
	data, err := c.files.Read(c.ContentPath(digest))
	switch {
	case err == nil && sha256Hex(data) == digest:
		return data, nil
	case err != nil && !errors.Is(err, errLarge) && !errors.Is(err, unix.EIO):
		return nil, err
	}
	changed := fmt.Errorf("read content %s: %w, and is fetched again", digest, ErrChanged)
	return nil, errors.Join(err, changed, c.DropContent(digest))
}

// KeepContent keeps data durably and returns its digest.
func (c *Contents) KeepContent(data []byte) (string, error) {
	digest := sha256Hex(data)
	found, err := c.files.Look(c.ContentPath(digest))
	if err == nil && found.Digest == digest { // since a moment ago, it may be, and its name not yet to last; that of the directory does
		return digest, c.files.Settle(c.ContentPath(digest))
	}
	return digest, c.keep(digest, data)
}

// KeepContents keeps each of all durably; they share syncs.
func (c *Contents) KeepContents(all [][]byte) error {
	c.tidy.Lock()
	defer c.tidy.Unlock()
	if err := c.ready(); err != nil {
		return err
	}
	writes := make([]Write, len(all))
	for i, data := range all {
		writes[i] = c.write(sha256Hex(data), data)
	}
	return errors.Join(c.files.Replace(writes)...)
}

func (c *Contents) keep(name string, data []byte) error {
	c.tidy.Lock()
	defer c.tidy.Unlock()
	if err := c.ready(); err != nil {
		return err
	}
	return c.files.Replace([]Write{c.write(name, data)})[0]
}

func (c *Contents) write(name string, data []byte) Write {
	return Write{Path: path.Join(c.path, name), Content: data, Access: Access{Mode: 0o600}}
}

// ready makes the directory, and its name last.
func (c *Contents) ready() error {
	found, err := c.files.Look(c.path)
	switch {
	case err != nil:
		return err
	case found.Type == "":
		err = c.files.MakeDirectory(c.path, Access{Mode: 0o700})
	default: // its name may be there since a moment ago and not last
		err = c.files.Settle(c.path)
	}
	return err
}

// packageSuffix is what apt knows a package by.
const packageSuffix = ".deb"

// PackageFile puts the content of a digest where apt takes it for a package.
func (c *Contents) PackageFile(digest string) (string, error) {
	data, err := c.ReadContent(digest)
	if err != nil {
		return "", err
	}
	return c.ContentPath(digest) + packageSuffix, c.keep(digest+packageSuffix, data)
}

// DropContent takes one content away; one that is not there is no error.
func (c *Contents) DropContent(digest string) error {
	dir, err := c.files.disk.OpenDir(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Unlink(digest); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return dir.Sync()
}

// ContentNames is what files in the directory of contents are called: a content that
// is whole, as apt knows it, or in part.
var ContentNames = regexp.MustCompile(`^[0-9a-f]{64}(\.deb|\.part)?$`)

// PruneContents takes away every content that keep does not want, whole or not, and
// nothing else.
func (c *Contents) PruneContents(keep func(digest string) bool) error {
	c.tidy.Lock()
	defer c.tidy.Unlock()
	dir, err := c.files.disk.OpenDir(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Names()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		temporary := strings.HasPrefix(name, TemporaryPrefix)
		if !temporary && (!ContentNames.MatchString(name) || keep(strings.TrimSuffix(name, partSuffix))) {
			continue
		}
		if err := dir.Unlink(name); err != nil && !errors.Is(err, unix.EISDIR) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// RoomFor says why n more bytes do not fit; nil when they do.
func (c *Contents) RoomFor(n int64) error { return roomFor(path.Dir(c.path), n) }

// roomFor says why n more bytes do not fit below a directory; nil when they do, or
// it is not known.
func roomFor(dir string, n int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return nil // it is found out by writing
	}
	if free := int64(st.Bavail) * st.Bsize; free < n+spare {
		return fmt.Errorf("%d bytes do not fit at %s: %d are free, and %d stay so: make room there", n, dir, free, spare)
	}
	return nil
}

// Read returns the content of the regular file at p, of at most MaxContent bytes.
func (f *Files) Read(p string) ([]byte, error) {
	dir, err := f.disk.OpenDir(path.Dir(p))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	file, err := dir.Open(path.Base(p))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, MaxContent+1))
	if err == nil && len(data) > MaxContent {
		err = fmt.Errorf("read %s: %w, which are %d bytes", p, errLarge, MaxContent)
	}
	return data, err
}

func sha256Hex(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
