package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// object is a table, an index, a trigger or a view of an SQLite.
type object struct{ kind, name string }

// String quotes the name, which may be from a foreign file.
func (o object) String() string { return o.kind + " " + strconv.Quote(o.name) }

// isStatistics reports whether it is a table that SQLite makes when it is told to analyze the
// others.
func (o object) isStatistics() bool {
	return o.kind == "table" && strings.HasPrefix(o.name, "sqlite_stat")
}

// schema has the objects of an SQLite with the statements that made them. The spaces between the
// words of a statement are one each.
type schema map[object]string

// schemaOf returns the schema of an SQLite.
func schemaOf(ctx context.Context, db *sql.DB) (schema, error) {
	rows, err := db.QueryContext(ctx, "SELECT type, name, tbl_name, COALESCE(sql, '') FROM sqlite_master")
	if err != nil {
		return nil, err
	}
	defer rows.Close()

	s := schema{}
	for rows.Next() {
		var o object
		var table, statement string
		if err := rows.Scan(&o.kind, &o.name, &table, &statement); err != nil {
			return nil, err
		}
		// A second object of one name makes the text another one.
		s[o] += table + ": " + strings.Join(strings.Fields(statement), " ")
	}
	return s, rows.Err()
}

// differs returns an error that names an object which is not as in the schema of the console.
func (s schema) differs(console schema) error {
	both := slices.AppendSeq(slices.Collect(maps.Keys(s)), maps.Keys(console))
	slices.SortFunc(both, func(a, b object) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.kind, b.kind))
	})

	for _, o := range both {
		is, has := s[o]
		want, known := console[o]
		switch {
		case !has && o.isStatistics():
		case !has:
			return fmt.Errorf("it lacks the %v", o)
		case !known:
			return fmt.Errorf("it has the %v, which no console makes", o)
		case is != want:
			return fmt.Errorf("its %v is not that of a console", o)
		}
	}
	return nil
}

// check returns an error unless an SQLite has what a console of a version has, and nothing
// else.
func (s schema) check(ctx context.Context, version int) error {
	return withTables(ctx, version, func(db *sql.DB) error {
		if _, err := db.ExecContext(ctx, "ANALYZE"); err != nil {
			return err
		}
		console, err := schemaOf(ctx, db)
		if err != nil {
			return err
		}
		if err := s.differs(console); err != nil {
			return fmt.Errorf("%w: %w", ErrNoBackup, err)
		}
		return nil
	})
}

// withTables runs f on a new SQLite in memory, with the tables of a version.
func withTables(ctx context.Context, version int, f func(*sql.DB) error) (err error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	db.SetMaxOpenConns(1) // each connection has a database of its own
	if err := migrateAlone(ctx, sqlite{}, db, version); err != nil {
		return err
	}
	return f(db)
}

// migrateAlone brings a database that no console uses to a version.
func migrateAlone(ctx context.Context, e engine, db *sql.DB, version int) error {
	files := migrationsOf(e)[:version]
	d := &DB{engine: e, read: db, write: db}
	quiet := slog.New(slog.DiscardHandler)
	return e.alone(ctx, db, func(r runner) error { return d.migrateTo(ctx, r, files, quiet) })
}

// versionOf returns the version of the tables, which is at least 1.
func versionOf(ctx context.Context, r runner) (version int, err error) {
	err = r.QueryRowContext(ctx, "SELECT COALESCE(MAX(version), 0) FROM migrations").Scan(&version)
	switch {
	case err != nil:
		return 0, err
	case version == 0:
		return 0, errors.New("there are no tables")
	case version < 0:
		return 0, noVersion(version)
	}
	return version, nil
}
