package store

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"strings"
	"time"
)

//go:embed migrations
var embedded embed.FS

// migrations has a folder with the files of each engine. Tests add files to it.
var migrations fs.FS = embedded

// migrationTimeout bounds all migrations together.
const migrationTimeout = 5 * time.Minute

// runner is a connection or a transaction.
type runner interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// migrate brings the tables to the newest form, and gives the database its id. On SQLite all of it
// is one transaction. MySQL commits every definition of a table by itself, so a migration
// that was interrupted runs again from its beginning: a statement that was done
// before does nothing.
func (d *DB) migrate(ctx context.Context, logger *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, migrationTimeout)
	defer cancel()
	return d.engine.alone(ctx, d.write, func(r runner) error {
		if err := d.migrateTo(ctx, r, migrationsOf(d.engine), logger); err != nil {
			return err
		}
		return d.identify(ctx, r, logger)
	})
}

// migrationsOf returns the files of the migrations of an engine, in their order. A statement of a
// file stays as it is for good: a backup has to have what these statements make.
func migrationsOf(e engine) []string {
	files, _ := fs.Glob(migrations, path.Join("migrations", e.name(), "*.sql")) // the pattern is right
	return files
}

// checkKnown returns an error if a newer program has made the tables, or one from before the first
// release, whose versions were others: this one does not know how they are meant.
func checkKnown(version int) error {
	if known := len(migrationsOf(sqlite{})); version > known {
		return fmt.Errorf("the tables have version %d, and this program knows %d: use a newer program, "+
			"or the one from before the first release that made them", version, known)
	}
	return nil
}

// noVersion is the error of tables with a version that no program gives.
func noVersion(have int) error { return fmt.Errorf("the tables have version %d, which is none", have) }

// migrateTo runs the files that were not run yet, in their order.
func (d *DB) migrateTo(ctx context.Context, r runner, files []string, logger *slog.Logger) error {
	const table = "CREATE TABLE IF NOT EXISTS migrations (version BIGINT NOT NULL PRIMARY KEY, at BIGINT NOT NULL)"
	if _, err := r.ExecContext(ctx, table); err != nil {
		return err
	}

	var have int
	if err := r.QueryRowContext(ctx, "SELECT COALESCE(MAX(version), 0) FROM migrations").Scan(&have); err != nil {
		return err
	}

	if err := checkKnown(have); err != nil {
		return err
	}
	if have < 0 {
		return noVersion(have)
	}

	for i, file := range files[have:] {
		logger.InfoContext(ctx, "migrating the database", "file", path.Base(file), "step", have+i+1, "of", len(files))
		if err := d.runFile(ctx, r, file); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}

		// It is written after each file, so that a start that is interrupted goes on with the one
		// that it was at.
		const done = "INSERT INTO migrations (version, at) VALUES (?, ?)"
		if _, err := r.ExecContext(ctx, done, have+i+1, time.Now().UnixMicro()); err != nil {
			return err
		}
	}
	return nil
}

// runFile runs the statements of a file, which are separated by empty lines.
func (d *DB) runFile(ctx context.Context, r runner, file string) error {
	text, err := fs.ReadFile(migrations, file)
	if err != nil {
		return err
	}
	for statement := range strings.SplitSeq(string(text), "\n\n") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := r.ExecContext(ctx, statement); err != nil && !d.engine.repeated(err) {
			return err
		}
	}
	return nil
}
