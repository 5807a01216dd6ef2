package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"mesh/host/identity"
	"mesh/plane/registry"
)

var _ registry.View = view{}

// querier is what reads need of a transaction or of the pool of readers.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// view reads within one transaction.
type view struct{ q querier }

func (v view) Token(ctx context.Context, id registry.TokenID) (registry.Token, error) {
	t := registry.Token{ID: id}
	var secret []byte
	var issued, expires int64
	var spentBy sql.NullString
	row := v.q.QueryRowContext(ctx, `SELECT secret, issued_at, expires_at, name, spent_by FROM tokens WHERE id = ?`, id[:])
	if err := row.Scan(&secret, &issued, &expires, &t.Node, &spentBy); err != nil {
		return t, missing(err, "read token")
	}
	t.Issued, t.Expires = fromMillis(issued), fromMillis(expires)
	if len(secret) == identity.SecretSize {
		t.Secret = identity.SecretOf([identity.SecretSize]byte(secret))
	}
	var err error
	if spentBy.Valid {
		if t.SpentBy, err = identity.ParseNodePublicKey(spentBy.String); err != nil {
			return t, fmt.Errorf("read token: %v", err)
		}
	}
	t.Modules, err = texts(ctx, v.q, `SELECT 0, module FROM token_modules WHERE token = ? ORDER BY module`, id[:])
	return t, err
}

func (v view) NodeNamed(ctx context.Context, name string) (registry.Node, error) {
	return v.node(ctx, `n.name = ?`, name)
}

func (v view) NodeOfKey(ctx context.Context, key identity.NodePublicKey) (registry.Node, error) {
	return v.node(ctx, `k.key = ?`, key.String())
}

func (v view) NodeOfMachine(ctx context.Context, machineID string) (registry.Node, error) {
	return v.node(ctx, `n.machine_id = ?`, machineID)
}

func (v view) node(ctx context.Context, where string, arg any) (registry.Node, error) {
	all, err := v.nodes(ctx, `AND `+where, arg)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("read node: %w", registry.ErrUnknown)
	}
	if err != nil {
		return registry.Node{}, err
	}
	return all[0], nil
}

func (v view) Nodes(ctx context.Context) ([]registry.Node, error) { return v.nodes(ctx, ``) }

func (v view) nodes(ctx context.Context, and string, args ...any) ([]registry.Node, error) {
	rows, err := v.q.QueryContext(ctx, `
		SELECT n.id, n.name, k.key, n.profile, n.inventory, k.since, n.retiring_at, d.epoch, d.generation, d.digest, d.content
		FROM nodes n
		JOIN keys k ON k.node = n.id AND k.forgotten_at IS NULL
		LEFT JOIN declarations d ON (d.node, d.epoch, d.generation) = (
			SELECT node, epoch, generation FROM declarations WHERE node = n.id ORDER BY epoch DESC, generation DESC LIMIT 1)
		WHERE n.removed_at IS NULL `+and+`
		ORDER BY n.name`, args...)
	if err != nil {
		return nil, fmt.Errorf("read nodes: %v", err)
	}
	defer rows.Close()
	var all []registry.Node
	var ids []int64
	for rows.Next() {
		id, n, err := scanNode(rows)
		if err != nil {
			return nil, fmt.Errorf("read nodes: %v", err)
		}
		ids, all = append(ids, id), append(all, n)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return nil, fmt.Errorf("read nodes: %v", err)
	}
	of, err := belongings(ctx, v.q, ids)
	for i, id := range ids {
		all[i].Modules, all[i].Addresses = of[id].modules, of[id].addresses
	}
	return all, err
}

func scanNode(rows *sql.Rows) (id int64, n registry.Node, err error) {
	var key, profile, inventory string
	var since int64
	var retiring, epoch, generation sql.NullInt64
	var digest, content sql.NullString
	if err := rows.Scan(&id, &n.Name, &key, &profile, &inventory, &since, &retiring, &epoch, &generation, &digest, &content); err != nil {
		return 0, n, err
	}
	if n.Key, err = identity.ParseNodePublicKey(key); err != nil {
		return 0, n, err
	}
	n.EnrolledAt, n.RetiringAt = fromMillis(since), timeOf(retiring)
	n.Declared = registry.Declared{Epoch: uint64(epoch.Int64), Generation: uint64(generation.Int64), Digest: digest.String, Content: content.String}
	return id, n, errors.Join(json.Unmarshal([]byte(profile), &n.Profile), json.Unmarshal([]byte(inventory), &n.Inventory))
}

// belonging is what a node has of which there may be several.
type belonging struct {
	modules   []string     // sorted
	addresses []netip.Addr // IPv4 first
}

// belongings reads those of the nodes in ids: of one node, or else of all.
func belongings(ctx context.Context, q querier, ids []int64) (map[int64]belonging, error) {
	of := make(map[int64]belonging, len(ids))
	var where string
	var args []any
	switch len(ids) {
	case 0:
		return of, nil
	case 1:
		where, args = `WHERE node = ?`, []any{ids[0]}
	}
	err := each(ctx, q, `SELECT node, module FROM assignments `+where+` ORDER BY module`, args, func(id int64, module string) error {
		b := of[id]
		b.modules = append(b.modules, module)
		of[id] = b
		return nil
	})
	if err != nil {
		return nil, err
	}
	return of, each(ctx, q, `SELECT node, address FROM addresses `+where+` ORDER BY length(address)`, args, func(id int64, bytes []byte) error {
		a, ok := netip.AddrFromSlice(bytes)
		if !ok {
			return fmt.Errorf("%x is not an address", bytes)
		}
		b := of[id]
		b.addresses = append(b.addresses, a)
		of[id] = b
		return nil
	})
}

func (v view) Forgotten(ctx context.Context, key identity.NodePublicKey) (bool, error) {
	var forgotten bool
	row := v.q.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM keys WHERE key = ? AND forgotten_at IS NOT NULL)`, key.String())
	if err := row.Scan(&forgotten); err != nil {
		return false, fmt.Errorf("read key: %v", err)
	}
	return forgotten, nil
}

func (v view) Retired(ctx context.Context, machineID string) (registry.Declared, error) {
	var d registry.Declared
	row := v.q.QueryRowContext(ctx, `
		SELECT d.epoch, d.generation FROM nodes n JOIN declarations d ON d.node = n.id
		WHERE n.machine_id = ? AND n.removed_at IS NOT NULL
		ORDER BY d.epoch DESC, d.generation DESC LIMIT 1`, machineID)
	if err := row.Scan(&d.Epoch, &d.Generation); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return d, fmt.Errorf("read declarations of removed nodes: %v", err)
	}
	return d, nil
}

func (v view) Held(ctx context.Context, prefix netip.Prefix) ([]netip.Addr, error) {
	first := prefix.Masked().Addr().AsSlice()
	last := prefix.Masked().Addr().AsSlice()
	for bit := prefix.Bits(); bit < len(last)*8; bit++ {
		last[bit/8] |= 0x80 >> (bit % 8)
	}
	var held []netip.Addr
	query := `SELECT node, address FROM addresses WHERE address BETWEEN ? AND ? AND length(address) = ? ORDER BY address`
	err := each(ctx, v.q, query, []any{first, last, len(first)}, func(_ int64, bytes []byte) error {
		a, ok := netip.AddrFromSlice(bytes)
		if !ok {
			return fmt.Errorf("%x is not an address", bytes)
		}
		held = append(held, a)
		return nil
	})
	return held, err
}

func (v view) Holders(ctx context.Context, module string) ([]string, error) {
	return texts(ctx, v.q, `SELECT n.id, n.name FROM assignments a JOIN nodes n ON n.id = a.node WHERE a.module = ? ORDER BY n.name`, module)
}

func (v view) PlaneConfig(ctx context.Context) (text string, err error) {
	row := v.q.QueryRowContext(ctx, `SELECT plane_config FROM mesh`)
	if err := row.Scan(&text); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("read the plane's configuration: %v", err)
	}
	return text, nil
}

// texts reads the text beside a number.
func texts(ctx context.Context, q querier, query string, args ...any) ([]string, error) {
	var all []string
	err := each(ctx, q, query, args, func(_ int64, s string) error {
		all = append(all, s)
		return nil
	})
	return all, err
}

// each calls f for every row of a number and one other column.
func each[T any](ctx context.Context, q querier, query string, args []any, f func(int64, T) error) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("read store: %v", err)
	}
	defer rows.Close()
	for rows.Next() {
		var n int64
		var value T
		if err := rows.Scan(&n, &value); err != nil {
			return fmt.Errorf("read store: %v", err)
		}
		if err := f(n, value); err != nil {
			return fmt.Errorf("read store: %v", err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read store: %v", err)
	}
	return nil
}

// missing turns the absence of a row into ErrUnknown.
func missing(err error, what string) error {
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("%s: %w", what, registry.ErrUnknown)
	}
	return fmt.Errorf("%s: %v", what, err)
}

func timeOf(ms sql.NullInt64) time.Time {
	if !ms.Valid {
		return time.Time{}
	}
	return fromMillis(ms.Int64)
}
