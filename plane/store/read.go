package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"mesh/host/identity"
	"mesh/plane/registry"
)

// Linked returns what a call over the link needs to know of the node with this
// key. The error matches registry.ErrUnknown where no node has it.
func (s *Store) Linked(ctx context.Context, key identity.NodePublicKey) (registry.Linked, error) {
	var l registry.Linked
	var profile string
	row := s.read.QueryRowContext(ctx, `
		SELECT n.name, n.machine_id, n.profile, n.retiring_at IS NOT NULL, d.epoch, d.generation, d.digest, d.content
		FROM keys k
		JOIN nodes n ON n.id = k.node
		JOIN declarations d ON d.node = n.id
		WHERE k.key = ? AND k.forgotten_at IS NULL
		ORDER BY d.epoch DESC, d.generation DESC LIMIT 1`, key.String())
	err := row.Scan(&l.Name, &l.MachineID, &profile, &l.Retiring, &l.Declared.Epoch, &l.Declared.Generation, &l.Declared.Digest, &l.Declared.Content)
	if err != nil {
		return l, missing(err, "read node of key")
	}
	if err := json.Unmarshal([]byte(profile), &l.Profile); err != nil {
		return l, fmt.Errorf("read node of key: %v", err)
	}
	return l, nil
}

// Signed returns the signed bytes of a declaration of the node with this key:
// its newest, or the one before. The error matches registry.ErrUnknown for any
// other digest.
func (s *Store) Signed(ctx context.Context, key identity.NodePublicKey, digest string) ([]byte, error) {
	var signed []byte
	row := s.read.QueryRowContext(ctx, `
		SELECT d.signed FROM keys k JOIN declarations d ON d.node = k.node
		WHERE k.key = ? AND k.forgotten_at IS NULL AND d.digest = ?`, key.String(), digest)
	if err := row.Scan(&signed); err != nil {
		return nil, missing(err, "read declaration")
	}
	return signed, nil
}

// Holders lists the nodes that have module, by name.
func (s *Store) Holders(ctx context.Context, module string) ([]string, error) {
	return view{s.read}.Holders(ctx, module)
}

// Standings lists every node by name, with what was last heard of it.
func (s *Store) Standings(ctx context.Context) ([]registry.Standing, error) {
	details, err := s.details(ctx, false, ``)
	all := make([]registry.Standing, len(details))
	for i, d := range details {
		all[i] = d.Standing
	}
	return all, err
}

// Detail returns all that is known of one node. The error matches
// registry.ErrUnknown where no node has the name.
func (s *Store) Detail(ctx context.Context, name string) (registry.Detail, error) {
	all, err := s.details(ctx, true, `AND n.name = ?`, name)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("read node: %w", registry.ErrUnknown)
	}
	if err != nil {
		return registry.Detail{}, err
	}
	return all[0], nil
}

// details reads nodes in one transaction. The long texts are read only where
// whole is true.
func (s *Store) details(ctx context.Context, whole bool, and string, args ...any) ([]registry.Detail, error) {
	tx, err := s.read.BeginTx(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("read nodes: %v", err)
	}
	defer tx.Rollback()
	long := `'', '', ''`
	if whole {
		long = `n.profile, n.inventory, coalesce(r.results, '')`
	}
	rows, err := tx.QueryContext(ctx, `
		SELECT n.id, n.name, k.key, k.since, n.seen_at, n.retiring_at, d.epoch, d.generation, d.digest, d.content,
			r.at, coalesce(r.epoch, 0), coalesce(r.generation, 0), coalesce(r.digest, ''), coalesce(r.counts, '{}'), coalesce(r.refused, ''),
			coalesce(n.profile ->> '$.host_version', ''), `+long+`
		FROM nodes n
		JOIN keys k ON k.node = n.id AND k.forgotten_at IS NULL
		JOIN declarations d ON (d.node, d.epoch, d.generation) = (
			SELECT node, epoch, generation FROM declarations WHERE node = n.id ORDER BY epoch DESC, generation DESC LIMIT 1)
		LEFT JOIN reports r ON r.node = n.id
		WHERE n.removed_at IS NULL `+and+`
		ORDER BY n.name`, args...)
	if err != nil {
		return nil, fmt.Errorf("read nodes: %v", err)
	}
	defer rows.Close()
	var ids []int64
	var all []registry.Detail
	for rows.Next() {
		id, d, err := scanDetail(rows)
		if err != nil {
			return nil, fmt.Errorf("read nodes: %v", err)
		}
		ids, all = append(ids, id), append(all, d)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return nil, fmt.Errorf("read nodes: %v", err)
	}
	of, err := belongings(ctx, tx, ids)
	for i, id := range ids {
		all[i].Modules, all[i].Addresses = of[id].modules, of[id].addresses
	}
	return all, err
}

func scanDetail(rows *sql.Rows) (id int64, d registry.Detail, err error) {
	var key, counts, refused, profile, inventory, results string
	var since, seen int64
	var reported, retiring sql.NullInt64
	a := &d.Acknowledged
	err = rows.Scan(&id, &d.Name, &key, &since, &seen, &retiring, &d.Declared.Epoch, &d.Declared.Generation, &d.Declared.Digest, &d.Declared.Content,
		&reported, &a.Epoch, &a.Generation, &a.Digest, &counts, &refused, &d.HostVersion, &profile, &inventory, &results)
	if err != nil {
		return 0, d, err
	}
	if d.Key, err = identity.ParseNodePublicKey(key); err != nil {
		return 0, d, err
	}
	d.EnrolledAt, d.SeenAt, d.RetiringAt, a.At = fromMillis(since), fromMillis(seen), timeOf(retiring), timeOf(reported)
	for _, part := range []struct {
		text string
		into any
	}{{counts, &a.Counts}, {refused, &d.Refused}, {profile, &d.Profile}, {inventory, &d.Inventory}, {results, &d.Results}} {
		if part.text != "" {
			if err := json.Unmarshal([]byte(part.text), part.into); err != nil {
				return 0, d, err
			}
		}
	}
	return id, d, nil
}
