package store

import (
	"context"
	"fmt"

	"mesh/host/declaration"
	"mesh/host/identity"
	"mesh/host/link"
	"mesh/plane/registry"
)

// Content returns a part of the content with this digest: at most
// link.MaxBlobPart bytes from offset on, none at or behind its end. The error
// matches registry.ErrUnknown unless one of the two newest declarations of the
// node with this key names it.
func (s *Store) Content(ctx context.Context, key identity.NodePublicKey, digest string, offset int64) ([]byte, error) {
	var data []byte
	row := s.read.QueryRowContext(ctx, `
		SELECT coalesce((
			SELECT substr(p.data, ?3 + 1) FROM content_parts p WHERE p.content = c.digest AND p.part = ?4
		), x'')
		FROM contents c
		WHERE c.digest = ?2 AND EXISTS (
			SELECT 1 FROM declared_contents d JOIN keys k ON k.node = d.node
			WHERE d.content = c.digest AND k.key = ?1 AND k.forgotten_at IS NULL)`,
		key.String(), digest, offset%link.MaxBlobPart, offset/link.MaxBlobPart)
	if err := row.Scan(&data); err != nil {
		return nil, missing(err, "read content")
	}
	return data, nil
}

// contents keeps what a declaration names by digest, and that it does.
func (w writer) contents(ctx context.Context, node int64, d registry.Declaration) error {
	for _, c := range d.Contents {
		err := w.content(ctx, c)
		if err == nil {
			err = w.exec(ctx, 1, `
				INSERT INTO declared_contents (node, epoch, generation, content)
				SELECT ?, ?, ?, digest FROM contents WHERE digest = ? AND bytes = ?`,
				node, int64(d.Epoch), int64(d.Generation), c.Digest, c.Bytes)
		}
		if err != nil {
			return fmt.Errorf("keep content %s of %d bytes: %v", c.Digest, c.Bytes, err)
		}
	}
	return nil
}

// content keeps one that came with its bytes, unless it is there.
func (w writer) content(ctx context.Context, c registry.Content) error {
	var there bool
	row := w.tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM contents WHERE digest = ?)`, c.Digest)
	if err := row.Scan(&there); err != nil || there || c.Data == "" {
		return err
	}
	if is := declaration.Digest([]byte(c.Data)); is != c.Digest {
		return fmt.Errorf("its digest is %s", is)
	}
	if err := w.exec(ctx, 1, `INSERT INTO contents (digest, bytes) VALUES (?, ?)`, c.Digest, len(c.Data)); err != nil {
		return err
	}
	for part, rest := 0, c.Data; rest != ""; part++ {
		n := min(len(rest), link.MaxBlobPart)
		if err := w.exec(ctx, 1, `INSERT INTO content_parts (content, part, data) VALUES (?, ?, ?)`, c.Digest, part, []byte(rest[:n])); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// hostPackages keeps what nodes shall have of mesh-host.
func (w writer) hostPackages(ctx context.Context, c registry.Change) error {
	if c.UnsetHost {
		if err := w.exec(ctx, -1, `DELETE FROM host_packages`); err != nil {
			return err
		}
	}
	p := c.SetHost
	if p == nil {
		return nil
	}
	if err := w.content(ctx, p.Content); err != nil {
		return err
	}
	return w.exec(ctx, 1, `
		INSERT INTO host_packages (architecture, version, content, since, downgrade)
		SELECT ?1, ?2, digest, ?5, ?6 FROM contents WHERE digest = ?3 AND bytes = ?4
		ON CONFLICT (architecture) DO UPDATE SET
			version = excluded.version, content = excluded.content, since = excluded.since, downgrade = excluded.downgrade`,
		p.Architecture, p.Version, p.Content.Digest, p.Content.Bytes, w.at, p.Downgrade)
}

// HostPackages lists what nodes shall have of mesh-host, by architecture.
func (s *Store) HostPackages(ctx context.Context) ([]registry.HostPackage, error) {
	return view{s.read}.HostPackages(ctx)
}

func (v view) HostPackages(ctx context.Context) ([]registry.HostPackage, error) {
	rows, err := v.q.QueryContext(ctx, `
		SELECT h.architecture, h.version, h.content, c.bytes, h.since, h.downgrade
		FROM host_packages h JOIN contents c ON c.digest = h.content ORDER BY h.architecture`)
	if err != nil {
		return nil, fmt.Errorf("read the packages of mesh-host: %v", err)
	}
	defer rows.Close()
	var all []registry.HostPackage
	for rows.Next() {
		var p registry.HostPackage
		var since int64
		if err := rows.Scan(&p.Architecture, &p.Version, &p.Content.Digest, &p.Content.Bytes, &since, &p.Downgrade); err != nil {
			return nil, fmt.Errorf("read the packages of mesh-host: %v", err)
		}
		p.Since = fromMillis(since)
		all = append(all, p)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the packages of mesh-host: %v", err)
	}
	return all, nil
}

// dropContents takes away what nothing names any more.
func (w writer) dropContents(ctx context.Context) error {
	return w.exec(ctx, -1, `
		DELETE FROM contents
		WHERE NOT EXISTS (SELECT 1 FROM declared_contents d WHERE d.content = contents.digest)
		AND NOT EXISTS (SELECT 1 FROM host_packages h WHERE h.content = contents.digest)`)
}
