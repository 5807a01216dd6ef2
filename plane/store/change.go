package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"mesh/host/identity"
	"mesh/plane/registry"
)

// apply writes a change, in the order of its fields.
func apply(ctx context.Context, tx *sql.Tx, c registry.Change) error {
	w := writer{tx, millis(c.At)}
	if c.Issue != nil {
		if err := w.issue(ctx, *c.Issue); err != nil {
			return fmt.Errorf("keep token: %v", err)
		}
	}
	if c.Enrol != nil {
		if err := w.enrol(ctx, *c.Enrol); err != nil {
			return fmt.Errorf("keep node %q: %v", c.Enrol.Node.Name, err)
		}
	}
	if c.Retire != nil {
		if err := w.retire(ctx, *c.Retire); err != nil {
			return fmt.Errorf("retire node %q: %v", c.Retire.Name, err)
		}
	}
	if c.Remove != nil {
		if err := w.remove(ctx, *c.Remove); err != nil {
			return fmt.Errorf("remove node %q: %v", c.Remove.Name, err)
		}
	}
	for _, a := range c.Assign {
		if err := w.assign(ctx, a); err != nil {
			return fmt.Errorf("assign module %q to node %q: %v", a.Module, a.Node.Name, err)
		}
	}
	for _, a := range c.Unassign {
		if err := w.unassign(ctx, a); err != nil {
			return fmt.Errorf("unassign module %q from node %q: %v", a.Module, a.Node.Name, err)
		}
	}
	if c.PlaneConfig != "" {
		if err := w.exec(ctx, 1, `UPDATE mesh SET plane_config = ?`, c.PlaneConfig); err != nil {
			return fmt.Errorf("keep the plane's configuration: %v", err)
		}
	}
	if err := w.hostPackages(ctx, c); err != nil {
		return fmt.Errorf("keep the package of mesh-host: %v", err)
	}
	for _, d := range c.Declare {
		if err := w.declare(ctx, d); err != nil {
			return fmt.Errorf("keep declaration of node %q: %v", d.Node.Name, err)
		}
	}
	if c.Remove != nil || c.SetHost != nil || c.UnsetHost || len(c.Declare) > 0 {
		if err := w.dropContents(ctx); err != nil {
			return fmt.Errorf("take away contents that nothing names: %v", err)
		}
	}
	return nil
}

// writer writes the parts of one change.
type writer struct {
	tx *sql.Tx
	at int64
}

// exec runs a statement that has to change exactly want rows; a negative want
// takes any number.
func (w writer) exec(ctx context.Context, want int64, query string, args ...any) error {
	result, err := w.tx.ExecContext(ctx, query, args...)
	if err != nil {
		return err
	}
	if got, err := result.RowsAffected(); err != nil || want >= 0 && got != want {
		return fmt.Errorf("changed %d rows where %d were to change (%v)", got, want, err)
	}
	return nil
}

// node finds the number of the live node a reference points at.
func (w writer) node(ctx context.Context, key identity.NodePublicKey) (id int64, err error) {
	row := w.tx.QueryRowContext(ctx, `SELECT node FROM keys WHERE key = ? AND forgotten_at IS NULL`, key.String())
	if err := row.Scan(&id); err != nil {
		return 0, missing(err, "find its key")
	}
	return id, nil
}

func (w writer) issue(ctx context.Context, t registry.Token) error {
	secret := t.Secret.SecretBytes()
	err := w.exec(ctx, 1, `INSERT INTO tokens (id, secret, issued_at, expires_at, name) VALUES (?, ?, ?, ?, ?)`,
		t.ID[:], secret[:], millis(t.Issued), millis(t.Expires), t.Node)
	if err != nil {
		return err
	}
	for _, m := range t.Modules {
		if err := w.exec(ctx, 1, `INSERT INTO token_modules (token, module) VALUES (?, ?)`, t.ID[:], m); err != nil {
			return err
		}
	}
	return nil
}

func (w writer) enrol(ctx context.Context, e registry.Enrolment) error {
	profile, err := json.Marshal(e.Node.Profile)
	if err != nil {
		return err
	}
	inv, err := json.Marshal(e.Node.Inventory)
	if err != nil {
		return err
	}
	var id int64
	if e.Replaces.IsZero() {
		row := w.tx.QueryRowContext(ctx, `
			INSERT INTO nodes (name, machine_id, profile, inventory, enrolled_at, seen_at) VALUES (?, ?, ?, ?, ?, ?) RETURNING id`,
			e.Node.Name, e.Node.Inventory.MachineID, string(profile), string(inv), w.at, w.at)
		if err := row.Scan(&id); err != nil {
			return err
		}
	} else {
		if id, err = w.node(ctx, e.Replaces); err != nil {
			return err
		}
		if err := w.exec(ctx, 1, `UPDATE keys SET forgotten_at = ? WHERE key = ?`, w.at, e.Replaces.String()); err != nil {
			return err
		}
		if err := w.exec(ctx, 1, `UPDATE nodes SET profile = ?, inventory = ?, seen_at = ?, retiring_at = NULL WHERE id = ?`, string(profile), string(inv), w.at, id); err != nil {
			return err
		}
		// The new host has reported nothing yet.
		if err := w.exec(ctx, -1, `DELETE FROM reports WHERE node = ?`, id); err != nil {
			return err
		}
	}
	if err := w.exec(ctx, 1, `INSERT INTO keys (key, node, since) VALUES (?, ?, ?)`, e.Node.Key.String(), id, w.at); err != nil {
		return err
	}
	if err := w.exec(ctx, -1, `DELETE FROM addresses WHERE node = ?`, id); err != nil {
		return err
	}
	for _, a := range e.Node.Addresses {
		if err := w.exec(ctx, 1, `INSERT INTO addresses (address, node) VALUES (?, ?)`, a.AsSlice(), id); err != nil {
			return err
		}
	}
	return w.exec(ctx, 1, `UPDATE tokens SET secret = NULL, spent_at = ?, spent_by = ? WHERE id = ? AND spent_at IS NULL`,
		w.at, e.Node.Key.String(), e.Token[:])
}

func (w writer) retire(ctx context.Context, n registry.Ref) error {
	id, err := w.node(ctx, n.Key)
	if err != nil {
		return err
	}
	return w.exec(ctx, 1, `UPDATE nodes SET retiring_at = ? WHERE id = ? AND retiring_at IS NULL`, w.at, id)
}

// remove forgets a node's key and all that referred to the node, but for the
// numbers of what it was told (see registry.View.Retired). Its addresses
// are free at once, because no declaration names an address yet; when peers are
// delivered as files, they have to stay held until no node holds such a file.
func (w writer) remove(ctx context.Context, n registry.Ref) error {
	id, err := w.node(ctx, n.Key)
	if err != nil {
		return err
	}
	if err := w.exec(ctx, 1, `UPDATE keys SET forgotten_at = ? WHERE key = ?`, w.at, n.Key.String()); err != nil {
		return err
	}
	if err := w.exec(ctx, 1, `UPDATE nodes SET removed_at = ? WHERE id = ?`, w.at, id); err != nil {
		return err
	}
	for _, table := range []string{"addresses", "assignments", "reports", "declared_contents"} {
		if err := w.exec(ctx, -1, `DELETE FROM `+table+` WHERE node = ?`, id); err != nil {
			return err
		}
	}
	return nil
}

func (w writer) assign(ctx context.Context, a registry.Assignment) error {
	id, err := w.node(ctx, a.Node.Key)
	if err != nil {
		return err
	}
	return w.exec(ctx, 1, `INSERT INTO assignments (node, module, since) VALUES (?, ?, ?)`, id, a.Module, w.at)
}

func (w writer) unassign(ctx context.Context, a registry.Assignment) error {
	id, err := w.node(ctx, a.Node.Key)
	if err != nil {
		return err
	}
	return w.exec(ctx, 1, `DELETE FROM assignments WHERE node = ? AND module = ?`, id, a.Module)
}

// declare keeps a new generation and the one before it.
func (w writer) declare(ctx context.Context, d registry.Declaration) error {
	id, err := w.node(ctx, d.Node.Key)
	if err != nil {
		return err
	}
	err = w.exec(ctx, 1, `INSERT INTO declarations (node, epoch, generation, digest, content, signed, since) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		id, int64(d.Epoch), int64(d.Generation), d.Digest, d.Content, d.Signed, w.at)
	if err == nil {
		err = w.contents(ctx, id, d)
	}
	if err != nil {
		return err
	}
	return w.exec(ctx, -1, `
		DELETE FROM declarations WHERE node = ?1 AND (epoch, generation) NOT IN (
			SELECT epoch, generation FROM declarations WHERE node = ?1 ORDER BY epoch DESC, generation DESC LIMIT 2)`, id)
}
