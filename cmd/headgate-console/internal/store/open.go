package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"
)

// DefaultTimeout is the default of Options.Timeout.
const DefaultTimeout = 10 * time.Second

// Options configure [Open]. URL must be set.
type Options struct {
	// URL is sqlite:///path/of/file or mysql://user:password@host:port/database.
	// The MySQL form takes the parameter tls, which is true, false (the default),
	// skip-verify or preferred.
	URL string

	// Timeout bounds a transaction whose context has no deadline; 0 means
	// DefaultTimeout.
	Timeout time.Duration

	// Keys has the key that encrypts the secrets of second factors and of webhooks, and their
	// URLs, with AES-256, and after it former keys, which decrypt. Each has KeySize bytes. Open
	// encrypts what is in the clear or encrypted with a former key. Without a key secrets are
	// stored as they are, and Open fails if some are encrypted.
	Keys [][]byte

	// Wait has Open wait for a server that is not there yet until its context ends. Without it, and
	// for what a server refuses, such as a password, Open fails at once.
	Wait bool

	// Logger is told what Open does, as it may have to wait for the server, for another
	// process that migrates, or for a large table. Nil means that nothing is logged.
	Logger *slog.Logger
}

// DB is a database with all migrations done. It is safe for concurrent use. Several
// processes may use one database.
type DB struct {
	engine  engine
	read    *sql.DB
	write   *sql.DB
	timeout time.Duration
	seal    seal

	unwritten atomic.Bool // the last write failed, as the database was not available
	full      atomic.Bool // for want of space
}

// engine holds the differences between databases.
type engine interface {
	// name is the name of the folder with the migrations.
	name() string
	// open returns the pools for reading and writing, which may be the same.
	open() (read, write *sql.DB, err error)
	// server is the address of the server that has the database, or "".
	server() string
	// absent reports whether an error says that the server is not there yet.
	absent(err error) bool
	// alone runs f on a connection while no other process migrates.
	alone(ctx context.Context, db *sql.DB, f func(runner) error) error
	// addUp follows an INSERT of traffic, and has it add the counts to rows that exist.
	addUp() string
	// byPrimaryKey follows the name of a table that is to be read by its primary key.
	byPrimaryKey() string
	// places says where the database is, in one or more ways, for [identity].
	places() []string
	// repeated reports whether an error says that a statement of a migration was done before.
	repeated(err error) bool
	// directory is where the database has its file, or "".
	directory() string
	// backUp writes all rows to an SQLite in a file, which is empty.
	backUp(ctx context.Context, read *sql.DB, file string) error
	// restore brings the database to the state of a backup, or leaves it as it is.
	restore(ctx context.Context, backup sqlite, force bool) error
	// kind returns the meaning of an error.
	kind(err error) kind
}

// Open opens a database and brings its tables up to date. An error that wraps
// ErrUnavailable may be temporary. Error texts hold no password.
func Open(ctx context.Context, o Options) (*DB, error) {
	e, err := engineOf(o.URL)
	if err != nil {
		return nil, err
	}

	d := &DB{engine: e, timeout: cmp.Or(o.Timeout, DefaultTimeout)}
	if d.seal, err = newSeal(o.Keys); err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}

	logger := cmp.Or(o.Logger, slog.New(slog.DiscardHandler)).With("engine", e.name())
	logger.InfoContext(ctx, "opening the database")
	begun := time.Now()

	// What is opened is closed again if the rest fails.
	if d.read, d.write, err = e.open(); err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	if o.Wait {
		if err := d.await(ctx, logger); err != nil {
			return nil, errors.Join(fmt.Errorf("database: %w", err), d.Close())
		}
	}
	if err := d.migrate(ctx, logger); err != nil {
		return nil, errors.Join(fmt.Errorf("database: %w", d.translate(err)), d.Close())
	}

	// All secrets are read now, so that a wrong key is found at the start and not at a log-in.
	check := d.View
	if len(o.Keys) > 0 {
		check = d.Update // without a key there is nothing to write
	}
	if err := check(ctx, (*Tx).renewSecrets); err != nil {
		return nil, errors.Join(fmt.Errorf("database: %w", err), d.Close())
	}

	// The disk may be full of them, and the console works beside them.
	if err := sweep(e.directory(), time.Now()); err != nil {
		logger.WarnContext(ctx, "what an ended backup has left could not be removed", "error", err)
	}

	logger.InfoContext(ctx, "the database is open", "took", time.Since(begun).Round(time.Millisecond))
	return d, nil
}

func engineOf(url string) (engine, error) {
	scheme, rest, ok := strings.Cut(url, "://")
	switch {
	case ok && scheme == "sqlite" && rest != "":
		return sqlite{path: rest}, nil
	case ok && (scheme == "mysql" || scheme == "mariadb"):
		return newMySQL("mysql://" + rest)
	}
	return nil, errors.New(
		"database: the URL is neither sqlite:///path/of/file nor mysql://user:password@host/database")
}

// Close ends all connections. The file of SQLite has every change then, so that a copy of it alone
// has them too.
func (d *DB) Close() error {
	if d.read == d.write {
		return d.write.Close()
	}

	// The last connection moves the changes from the log beside the file into the file. One whose
	// transaction was cut off may end a little later, in the background, so they are moved here. A
	// disk that is full leaves them in the log, which the next start reads.
	closed := d.read.Close()
	ctx, cancel := context.WithTimeout(context.Background(), checkpointTime)
	defer cancel()
	_, _ = d.write.ExecContext(ctx, "PRAGMA wal_checkpoint(FULL)")
	return errors.Join(closed, d.write.Close())
}

// checkpointTime bounds the wait for other programs that use the file.
const checkpointTime = 5 * time.Second

// Full reports whether the last write failed because there was no space.
func (d *DB) Full() bool { return d.full.Load() }

// probeName is the setting that Ping writes.
const probeName = "probe"

// Ping returns an error unless the database answers, and can write if the last write failed. A
// server that has become a replica still answers.
func (d *DB) Ping(ctx context.Context) error {
	err := d.View(ctx, func(t *Tx) error {
		_, err := t.Counter(CounterPolicies)
		return err
	})
	if err != nil || !d.unwritten.Load() {
		return err
	}
	now := time.Now().UTC().Format(time.RFC3339Nano)
	return d.Update(ctx, func(t *Tx) error { return t.SetSetting(probeName, now) })
}
