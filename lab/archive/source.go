package archive

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"mesh/lab/lifecycle"
)

// maxWindow bounds what the decoder of a hostile file may take, in bytes; an
// encoder at the fastest level uses 4 MiB.
const maxWindow = 64 << 20

// source is an archive that is being read, behind its index.
type source struct {
	index Index
	tar   *tar.Reader
	z     *zstd.Decoder
}

// Show reads the index of an archive, and no more than that.
func Show(r io.Reader) (Index, error) {
	s, err := open(r)
	if err != nil {
		return Index{}, err
	}
	s.close()
	return s.index, nil
}

// open reads the index.
func open(r io.Reader) (*source, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, fmt.Errorf("read archive: %v", err)
	}
	s := &source{tar: tar.NewReader(z), z: z}
	if err := s.readIndex(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *source) close() { s.z.Close() }

func (s *source) readIndex() error {
	const next = "give a file that `lab export` wrote"
	h, err := s.tar.Next()
	if err != nil {
		return refused(fmt.Sprintf("it cannot be read: %v", err), next)
	}
	if h.Name != indexName || h.Typeflag != tar.TypeReg || h.Size > maxIndex {
		return refused(fmt.Sprintf("it begins with %q of %d bytes, not with %s of at most %d", h.Name, h.Size, indexName, maxIndex), next)
	}
	data, err := io.ReadAll(s.tar)
	if err != nil {
		return refused(fmt.Sprintf("it is cut short: %v", err), "bring it here again")
	}
	if s.index, err = Parse(data); err != nil {
		return refused(err.Error(), "use the lab that wrote it, or export it again")
	}
	return nil
}

// receive writes all contents into dir, named by their digests, durably. Anything
// else in the archive, and anything that is missing, is refused.
func (s *source) receive(ctx context.Context, dir string) error {
	want := map[string]int64{}
	for _, c := range s.index.contents() {
		want[c.SHA256] = c.Bytes
	}
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h, err := s.tar.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return refused(fmt.Sprintf("it is cut short or damaged: %v", err), "bring it here again")
		}
		digest, named := strings.CutPrefix(h.Name, contentPrefix)
		bytes, wanted := want[digest]
		if !named || !wanted || h.Typeflag != tar.TypeReg || h.Size != bytes {
			return refused(fmt.Sprintf("it holds %q of %d bytes, which its index does not have", h.Name, h.Size), "it was not made by `lab export`")
		}
		delete(want, digest)
		if err := s.store(ctx, filepath.Join(dir, digest), digest); err != nil {
			return err
		}
	}
	for digest := range want {
		return refused(fmt.Sprintf("it is cut short: %d contents are missing, the first %s", len(want), digest), "bring it here again")
	}
	return lifecycle.SyncDir(dir)
}

// store writes the content at hand into a new file.
func (s *source) store(ctx context.Context, path, digest string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("import: %w", err)
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(f, sum), reader{ctx, s.tar})
	if ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), f.Close())
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || err != nil && !isPath(err) {
		return errors.Join(refused(fmt.Sprintf("it is cut short or damaged: %v", err), "bring it here again"), f.Close())
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != digest {
		return refused(fmt.Sprintf("a content is damaged: its sha256 is %s, not %s", got, digest), "bring it here again")
	}
	return nil
}

// isPath tells whether an error is of the file system here.
func isPath(err error) bool {
	var failed *os.PathError
	return errors.As(err, &failed)
}
