package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	my "github.com/go-sql-driver/mysql"
)

// directory: a file of MySQL is on another machine.
func (mysql) directory() string { return "" }

// backUp copies the rows that one transaction sees to an SQLite with tables of the same version.
func (m mysql) backUp(ctx context.Context, db *sql.DB, file string) error {
	from, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return err
	}
	defer from.Rollback()

	version, err := versionOf(ctx, from)
	if err == nil {
		err = checkKnown(version)
	}
	if err != nil {
		return err
	}
	tables, err := tablesOf(ctx, version)
	if err != nil {
		return err
	}
	return sqlite{path: file}.written(ctx, func(db *sql.DB) error {
		if err := migrateAlone(ctx, sqlite{path: file}, db, version); err != nil {
			return err
		}
		to, err := db.BeginTx(ctx, nil)
		return finish(to, err, func() error {
			// The order of the tables does not matter: references are checked at the end.
			if _, err := to.ExecContext(ctx, "PRAGMA defer_foreign_keys = 1"); err != nil {
				return err
			}
			return copyTables(ctx, tables, from, to)
		})
	})
}

// written opens an SQLite to write it, and leaves one file.
func (s sqlite) written(ctx context.Context, f func(*sql.DB) error) (err error) {
	db := s.db("_txlock=immediate", sqliteReadWait)
	db.SetMaxOpenConns(1)
	defer func() { err = errors.Join(err, db.Close()) }()

	if err := f(db); err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "PRAGMA journal_mode = DELETE")
	return err
}

// restore replaces all rows by those of a backup, in one transaction.
func (m mysql) restore(ctx context.Context, backup sqlite, force bool) error {
	db, _, err := m.open()
	if err != nil {
		return fmt.Errorf("database: %w", err)
	}
	d := &DB{engine: m, read: db, write: db}
	err = d.restore(ctx, backup, force)
	if err != nil && !errors.Is(err, ErrExists) {
		err = fmt.Errorf("database: %w", d.translate(err))
	}
	return errors.Join(err, d.Close())
}

func (d *DB) restore(ctx context.Context, backup sqlite, force bool) error {
	// Consoles of an older version go on with the tables that they have.
	if !force {
		if err := unused(ctx, d.write); err != nil {
			return err
		}
	}

	// Both get the tables of this program.
	version := len(migrationsOf(d.engine))
	tables, err := tablesOf(ctx, version)
	if err != nil {
		return err
	}
	if err := migrateAlone(ctx, d.engine, d.write, version); err != nil {
		return err
	}

	return backup.written(ctx, func(file *sql.DB) error {
		if err := migrateAlone(ctx, backup, file, version); err != nil {
			return err
		}
		from, err := file.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer from.Rollback()
		return d.replaceRows(ctx, from, tables, force)
	})
}

// unused returns ErrExists if a database of MySQL has users. A console makes its first user when it
// starts.
func unused(ctx context.Context, r runner) error {
	var users int
	err := r.QueryRowContext(ctx, "SELECT COUNT(*) FROM users").Scan(&users)

	var e *my.MySQLError
	switch {
	case errors.As(err, &e) && e.Number == mysqlNoTable:
		return nil
	case err == nil && users > 0:
		return fmt.Errorf("the database has users: %w", ErrExists)
	}
	return err
}

// replaceRows replaces all rows of the tables by those that a transaction of an SQLite sees.
func (d *DB) replaceRows(ctx context.Context, from *sql.Tx, tables []table, force bool) error {
	conn, err := d.write.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()

	// The references of the backup were checked. The setting goes back to the pool as it was.
	if _, err := conn.ExecContext(ctx, "SET foreign_key_checks = 0"); err != nil {
		return err
	}
	defer conn.ExecContext(context.WithoutCancel(ctx), "SET foreign_key_checks = 1")

	to, err := conn.BeginTx(ctx, nil)
	return finish(to, err, func() error {
		// A console may have started since.
		if !force {
			if err := unused(ctx, to); err != nil {
				return err
			}
		}
		return copyTables(ctx, tables, from, to)
	})
}
