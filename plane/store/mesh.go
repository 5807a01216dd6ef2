package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"mesh/host/identity"
	"mesh/plane/registry"
)

// Mesh returns what makes this mesh, or keeps what create returns where the
// store holds none yet.
func (s *Store) Mesh(ctx context.Context, create func() (registry.Mesh, error)) (registry.Mesh, error) {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return registry.Mesh{}, fmt.Errorf("begin: %v", err)
	}
	defer tx.Rollback()
	m, err := readMesh(ctx, tx)
	if !errors.Is(err, sql.ErrNoRows) {
		return m, err
	}
	if m, err = create(); err != nil {
		return registry.Mesh{}, err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO mesh (one, name, epoch, link_key, declaration_key, created_at) VALUES (1, ?, ?, ?, ?, ?)`,
		m.Name, int64(m.Epoch), m.LinkKey.SecretText(), m.DeclarationKey.SecretText(), millis(m.CreatedAt))
	if err != nil {
		return registry.Mesh{}, fmt.Errorf("keep the mesh: %v", err)
	}
	if err := tx.Commit(); err != nil {
		return registry.Mesh{}, fmt.Errorf("keep the mesh: %v", err)
	}
	return m, nil
}

func readMesh(ctx context.Context, tx *sql.Tx) (registry.Mesh, error) {
	var m registry.Mesh
	var link, declaration string
	var created int64
	row := tx.QueryRowContext(ctx, `SELECT name, epoch, link_key, declaration_key, created_at FROM mesh`)
	if err := row.Scan(&m.Name, &m.Epoch, &link, &declaration, &created); err != nil {
		return registry.Mesh{}, fmt.Errorf("read the mesh: %w", err) // Mesh matches sql.ErrNoRows
	}
	var err error
	if m.LinkKey, err = identity.ParseLinkKey(link); err != nil {
		return registry.Mesh{}, errors.New("read the mesh: its link key is damaged")
	}
	if m.DeclarationKey, err = identity.ParseDeclarationKey(declaration); err != nil {
		return registry.Mesh{}, errors.New("read the mesh: its declaration key is damaged")
	}
	m.CreatedAt = fromMillis(created)
	return m, nil
}

func millis(t time.Time) int64      { return t.UnixMilli() }
func fromMillis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
