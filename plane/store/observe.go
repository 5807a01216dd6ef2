package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"mesh/host/identity"
	"mesh/host/inventory"
	"mesh/plane/registry"
)

// observed gathers what nodes say of themselves, so that many who speak at once
// share one transaction.
type observed struct {
	mu      sync.Mutex
	waiting []*observation
}

// observation is one statement about one node, and what became of keeping it.
type observation struct {
	keep func(ctx context.Context, w writer) error
	done bool // guarded by having Store.turn
	err  error
}

// observe returns when o, and all that waited with it, is on disk. Statements
// about nodes that are gone are dropped.
func (s *Store) observe(ctx context.Context, keep func(ctx context.Context, w writer) error) error {
	o := &observation{keep: keep}
	s.observed.mu.Lock()
	s.observed.waiting = append(s.observed.waiting, o)
	s.observed.mu.Unlock()

	s.turn <- struct{}{} // never long: who has it waits for the disk alone
	defer func() { <-s.turn }()
	if o.done {
		return o.err // who had the turn before has kept it along with its own
	}
	s.observed.mu.Lock()
	batch := s.observed.waiting
	s.observed.waiting = nil
	s.observed.mu.Unlock()
	err := s.keepAll(context.WithoutCancel(ctx), batch)
	for _, other := range batch {
		other.done, other.err = true, err
	}
	return err
}

func (s *Store) keepAll(ctx context.Context, batch []*observation) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("keep what nodes said: %v", err)
	}
	defer tx.Rollback()
	for _, o := range batch {
		if err := o.keep(ctx, writer{tx: tx}); err != nil {
			return fmt.Errorf("keep what nodes said: %v", err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("keep what nodes said: %v", err)
	}
	return nil
}

// live is the number of the node a key belongs to, for a WHERE clause.
const live = `(SELECT node FROM keys WHERE key = ? AND forgotten_at IS NULL)`

// SaveReport keeps a node's report in the place of its last one.
func (s *Store) SaveReport(ctx context.Context, r registry.Report) error {
	counts, err := json.Marshal(registry.Count(r.Outcome.Results))
	if err != nil {
		return fmt.Errorf("write report: %v", err)
	}
	results, err := json.Marshal(r.Outcome.Results)
	if err != nil {
		return fmt.Errorf("write report: %v", err)
	}
	inv, err := json.Marshal(r.Inventory)
	if err != nil {
		return fmt.Errorf("write report: %v", err)
	}
	var refused sql.NullString
	if r.Refused != nil {
		text, err := json.Marshal(r.Refused)
		if err != nil {
			return fmt.Errorf("write report: %v", err)
		}
		refused = sql.NullString{String: string(text), Valid: true}
	}
	return s.observe(ctx, func(ctx context.Context, w writer) error {
		err := w.exec(ctx, -1, `UPDATE nodes SET inventory = ?, seen_at = ? WHERE id = `+live, string(inv), millis(r.At), r.Node.String())
		if err != nil {
			return err
		}
		return w.exec(ctx, -1, `
			INSERT OR REPLACE INTO reports (node, at, epoch, generation, digest, counts, results, refused)
			SELECT node, ?, ?, ?, ?, ?, ?, ? FROM keys WHERE key = ? AND forgotten_at IS NULL`,
			millis(r.At), int64(r.Outcome.Epoch), int64(r.Outcome.Generation), r.Outcome.Digest, string(counts), string(results), refused, r.Node.String())
	})
}

// SaveProfile keeps what a node's machine can run now.
func (s *Store) SaveProfile(ctx context.Context, key identity.NodePublicKey, p inventory.Profile, at time.Time) error {
	profile, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("write profile: %v", err)
	}
	return s.observe(ctx, func(ctx context.Context, w writer) error {
		return w.exec(ctx, -1, `UPDATE nodes SET profile = ? WHERE id = `+live, string(profile), key.String())
	})
}

// Seen keeps that the links of these nodes were up at that time.
func (s *Store) Seen(ctx context.Context, keys []identity.NodePublicKey, at time.Time) error {
	if len(keys) == 0 {
		return nil
	}
	return s.observe(ctx, func(ctx context.Context, w writer) error {
		update, err := w.tx.PrepareContext(ctx, `UPDATE nodes SET seen_at = ? WHERE id = `+live)
		if err != nil {
			return err
		}
		defer update.Close()
		for _, k := range keys {
			if _, err := update.ExecContext(ctx, millis(at), k.String()); err != nil {
				return err
			}
		}
		return nil
	})
}

// ForgetExpired overwrites the secrets of tokens whose time is over, and brings
// the write-ahead log, which may still hold them, into the database.
func (s *Store) ForgetExpired(ctx context.Context, now time.Time) error {
	err := s.observe(ctx, func(ctx context.Context, w writer) error {
		return w.exec(ctx, -1, `UPDATE tokens SET secret = NULL WHERE secret IS NOT NULL AND expires_at <= ?`, millis(now))
	})
	if err != nil {
		return err
	}
	var busy, frames, moved sql.NullInt64
	if err := s.write.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &frames, &moved); err != nil {
		return fmt.Errorf("empty the write-ahead log: %v", err)
	}
	return nil
}
