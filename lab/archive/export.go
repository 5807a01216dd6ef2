package archive

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"mesh/lab/images"
	"mesh/lab/lifecycle"
	"mesh/lab/snapshot"
)

// Config is what an Archive stands on. All of it must be set.
type Config struct {
	Lab       *lifecycle.Lab
	Ports     lifecycle.Config // that Lab was made of
	Snapshots *snapshot.Snapshots
	Images    images.Store
	Disks     Disks
	NewID     func() string // 32 hex digits that nobody else has
}

// Archive exports and imports snapshots of one store. Safe for concurrent use,
// by several processes too.
type Archive struct{ cfg Config }

// New makes an Archive; nothing happens yet.
func New(cfg Config) *Archive { return &Archive{cfg} }

func (a *Archive) snapshots() snapshot.Store { return a.cfg.Snapshots.Store() }

// ExportOptions say what is exported.
type ExportOptions struct {
	Scenario, Snapshot string
	WithoutImages      bool // who imports it must have images of the same content
}

// Export writes a snapshot and all that it stands on to w. Every byte is compared
// with the digest that the snapshot was taken with; an error may come after a
// part was written. snapshot.ErrAbsent.
func (a *Archive) Export(ctx context.Context, o ExportOptions, w io.Writer) (x Index, err error) {
	m, done, err := a.snapshots().Use(ctx, o.Scenario, o.Snapshot)
	if err != nil {
		return Index{}, err
	}
	defer done()
	x = Index{Made: a.cfg.Ports.Now().UTC(), Snapshot: m}
	where := map[string]string{} // contents, by digest
	for _, f := range m.Files {
		where[f.SHA256] = filepath.Join(a.snapshots().Path(m.Scenario, m.Name), filepath.FromSlash(f.Path))
	}
	for _, l := range m.Layers {
		where[l.SHA256] = a.cfg.Lab.Layer(l.ID)
	}
	if x.Images, err = a.exported(ctx, m, o.WithoutImages, where); err != nil {
		return Index{}, err
	}
	data, err := x.Marshal()
	if err != nil {
		return Index{}, err
	}
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return Index{}, fmt.Errorf("write archive: %v", err)
	}
	out := tar.NewWriter(z)
	if err = entry(out, indexName, int64(len(data))); err == nil {
		_, err = out.Write(data)
	}
	for _, c := range x.contents() {
		if err == nil {
			err = copyContent(ctx, out, c, where[c.SHA256])
		}
	}
	for _, end := range []func() error{out.Close, z.Close} {
		if late := end(); err == nil { // else it says the same once more
			err = late
		}
	}
	if err != nil {
		return Index{}, fmt.Errorf("write archive: %w", err)
	}
	return x, nil
}

// exported describes the images of a snapshot and notes where their files are.
func (a *Archive) exported(ctx context.Context, m snapshot.Manifest, without bool, where map[string]string) ([]Image, error) {
	all, err := a.cfg.Images.List()
	if err != nil {
		return nil, err
	}
	var list []Image
	for _, found := range all {
		if m.Images[found.Name] != found.Digest {
			continue
		}
		if found.Content == "" {
			return nil, &lifecycle.Error{
				What: "image " + found.Name + " was built by an earlier lab and cannot be exported", Where: filepath.Dir(found.Disk),
				Next: "destroy what stands on it, build it anew (`lab image remove`, `lab image build`), and take the snapshot again", Code: codePrerequisite,
			}
		}
		i := Image{Name: found.Name, Digest: found.Digest, Content: found.Content, Cmdline: found.Cmdline, Built: found.Built}
		if !without {
			if i.Files, err = describe(ctx, filepath.Dir(found.Disk), where); err != nil {
				return nil, fmt.Errorf("read image %s: %w", found.Name, err)
			}
		}
		list = append(list, i)
	}
	if len(list) != len(m.Images) {
		return nil, fmt.Errorf("the store has %d of the %d images that the snapshot stands on", len(list), len(m.Images))
	}
	slices.SortFunc(list, func(a, b Image) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// describe measures the files of an image.
func describe(ctx context.Context, dir string, where map[string]string) (all []snapshot.File, err error) {
	err = fs.WalkDir(os.DirFS(dir), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || path == "manifest.json" {
			return err
		}
		file := filepath.Join(dir, path)
		n, digest, err := snapshot.Seal(ctx, file)
		if err != nil {
			return err
		}
		all, where[digest] = append(all, snapshot.File{Path: path, Bytes: n, SHA256: digest}), file
		return nil
	})
	return all, err
}

func entry(w *tar.Writer, name string, size int64) error {
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, Format: tar.FormatPAX})
}

// copyContent writes one content, and compares it with its digest.
func copyContent(ctx context.Context, w *tar.Writer, c content, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := entry(w, contentPrefix+c.SHA256, c.Bytes); err != nil {
		return err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, sum), io.LimitReader(reader{ctx, f}, c.Bytes))
	if err != nil {
		return fmt.Errorf("copy %s: %w", path, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); n != c.Bytes || got != c.SHA256 {
		return &lifecycle.Error{
			What: "the snapshot is damaged", Where: path, Why: fmt.Sprintf("%d bytes of sha256 %s, not %d of %s", n, got, c.Bytes, c.SHA256),
			Next: "it cannot be exported; `lab snapshot remove` removes it", Code: codeFailed,
		}
	}
	return nil
}

// reader reads until its context ends.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(p)
}
