// Package store keeps what the plane knows in one SQLite database. It
// implements the interfaces its consumers declare, and is the only package that
// knows there is a database.
//
// Every change is one transaction that is on disk before anybody hears of it.
// The database holds the plane's private keys and the secrets of tokens that
// can still be spent: it and its directory are readable by its owner alone, and
// a secret that is forgotten is overwritten.
package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"github.com/pressly/goose/v3"
	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"mesh/plane/registry"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Config says which database to open.
type Config struct {
	Path string // file of the database; its directory is made if it is missing
	// Committed hears of every change, after it is on disk, one at a time and
	// in the order of committing; nil hears nothing. It must not call the store.
	Committed func(registry.Change)
}

// Store is the open database. Safe for concurrent use.
type Store struct {
	lock      *os.File
	write     *sql.DB // one connection
	read      *sql.DB
	committed func(registry.Change)
	turn      chan struct{} // held by the one update at work, until it is announced
	observed  observed
}

// Open opens or makes the database and brings its tables up to date. It refuses
// a database that another process has open as a plane's store, and one that a
// newer plane has written.
func Open(ctx context.Context, c Config) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(c.Path), 0o700); err != nil {
		return nil, fmt.Errorf("open store: %v", err)
	}
	lock, err := lockFile(c.Path + ".lock")
	if err != nil {
		return nil, err
	}
	s := &Store{lock: lock, committed: c.Committed, turn: make(chan struct{}, 1)}
	if s.committed == nil {
		s.committed = func(registry.Change) {}
	}
	if err := s.open(ctx, c.Path); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %v", c.Path, err), s.Close())
	}
	return s, nil
}

// Close waits for nothing: no call may be running.
func (s *Store) Close() error {
	var errs []error
	for _, db := range []*sql.DB{s.read, s.write} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(append(errs, s.lock.Close())...)
}

// lockFile makes sure that one process has the store.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open store: %v", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("open store: %s is locked (%v): another plane runs on this store, and exactly one may; stop it first", path, err)
	}
	return f, nil
}

func (s *Store) open(ctx context.Context, path string) error {
	// SQLite makes its other files with the mode of this one.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Chmod(0o600), f.Close()); err != nil {
		return err
	}
	if s.write, err = connect(path, "_txlock=immediate"); err != nil {
		return err
	}
	s.write.SetMaxOpenConns(1)
	if err := migrate(ctx, s.write); err != nil {
		return err
	}
	if s.read, err = connect(path, "_pragma=query_only(1)"); err != nil {
		return err
	}
	s.read.SetMaxOpenConns(4)
	return nil
}

// connect names the file with the settings every connection has.
func connect(path, extra string) (*sql.DB, error) {
	file := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: "_pragma=busy_timeout(5000)" +
		"&_pragma=journal_mode(WAL)" +
		"&_pragma=synchronous(FULL)" +
		"&_pragma=foreign_keys(1)" +
		"&_pragma=secure_delete(1)" +
		"&_pragma=trusted_schema(0)" +
		"&" + extra}
	return sql.Open("sqlite", file.String())
}

func migrate(ctx context.Context, db *sql.DB) error {
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, dir, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("read migrations: %v", err)
	}
	has, err := p.GetDBVersion(ctx)
	if err != nil {
		return fmt.Errorf("read it: %v; if the file is damaged, put a backup of it in its place", err)
	}
	sources := p.ListSources()
	if knows := sources[len(sources)-1].Version; has > knows {
		return fmt.Errorf("it was written by a newer plane (tables of version %d, this plane knows %d): install that version again", has, knows)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("bring its tables up to date: %v", err)
	}
	return nil
}

// Update implements the Store interfaces of the packages that decide: it runs
// decide and applies its change in one transaction, which no other update runs
// beside. An error of decide comes back as it is.
func (s *Store) Update(ctx context.Context, decide registry.Decide) error {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin update: %v", err)
	}
	defer tx.Rollback()
	change, err := decide(ctx, view{tx})
	if err != nil || change.IsZero() {
		return err
	}
	if err := apply(ctx, tx, change); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit update: %v", err)
	}
	s.committed(change)
	return nil
}
