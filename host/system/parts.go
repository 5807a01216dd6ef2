package system

import (
	"errors"
	"fmt"
	"io/fs"
)

// partSuffix ends the name of a content that has not come whole yet. Its bytes
// are not synced before it has: a crash may spoil them, and then it comes anew.
const partSuffix = ".part"

// FetchedContent is how many bytes of a content have come so far; 0 for one that
// is kept whole.
func (c *Contents) FetchedContent(digest string) (int64, error) {
	dir, err := c.files.disk.OpenDir(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	st, err := dir.Stat(digest + partSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return st.Size, err
}

// AddToContent keeps the bytes of a content that come behind the first offset
// ones, which are there; with an offset of 0 it begins anew. It is not durable
// before CompleteContent.
func (c *Contents) AddToContent(digest string, offset int64, data []byte) error {
	if offset == 0 {
		return c.keep(digest+partSuffix, data)
	}
	dir, err := c.files.disk.OpenDir(c.path)
	if err != nil {
		return err
	}
	defer dir.Close()
	name := digest + partSuffix
	if st, err := dir.Stat(name); err != nil || st.Size != offset {
		return errors.Join(err, fmt.Errorf("keep a part of content %s: %d bytes of it are there, and this part comes behind %d", digest, st.Size, offset))
	}
	file, err := dir.Append(name)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Close())
}

// CompleteContent keeps durably what has come of a content, if it is all of it.
// What has another digest is dropped; the error matches ErrChanged.
func (c *Contents) CompleteContent(digest string) error {
	name := digest + partSuffix
	dir, err := c.files.disk.OpenDir(c.path)
	if err != nil {
		return err
	}
	defer dir.Close()
	found, err := look(dir, name)
	if err != nil {
		return err
	}
	if found.Digest != digest {
		return errors.Join(fmt.Errorf("keep content %s: what came has the digest %q: %w", digest, found.Digest, ErrChanged), c.DropContent(name))
	}
	file, err := dir.Append(name)
	if err != nil {
		return err
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		// What was not written is not there, whatever a second sync says.
		return errors.Join(err, c.DropContent(name))
	}
	if err := dir.Rename(name, digest); err != nil {
		return err
	}
	return dir.Sync()
}
