package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// table is a table of an SQLite, and so of each engine: all have the same columns.
type table struct {
	name    string
	columns []string // quoted
	types   []string // INTEGER, TEXT or BLOB
}

// tablesOf returns the tables of a version that have rows of the console. They are those that this
// program makes: no name is read from a file. The migrations that have run are of the engine, and
// not among them.
func tablesOf(ctx context.Context, version int) (list []table, err error) {
	err = withTables(ctx, version, func(db *sql.DB) error {
		list, err = listTables(ctx, db)
		return err
	})
	return list, err
}

// listTables returns the tables of an SQLite but for the migrations.
func listTables(ctx context.Context, db *sql.DB) ([]table, error) {
	const q = "SELECT m.name, c.name, c.type FROM sqlite_master m JOIN pragma_table_info(m.name) c " +
		"WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite!_%' ESCAPE '!' AND m.name <> 'migrations' " +
		"ORDER BY m.name, c.cid"
	rows, err := db.QueryContext(ctx, q)
	if err != nil {
		return nil, err
	}
	defer rows.Close()

	var list []table
	for rows.Next() {
		var name, column, kind string
		if err := rows.Scan(&name, &column, &kind); err != nil {
			return nil, err
		}
		if len(list) == 0 || list[len(list)-1].name != name {
			list = append(list, table{name: name})
		}
		t := &list[len(list)-1]
		t.columns, t.types = append(t.columns, quoted(column)), append(t.types, kind)
	}
	return list, rows.Err()
}

// quoted returns a name as each engine reads it in a statement, whatever is in it.
func quoted(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// row returns variables for the columns, each of its type.
func (t table) row() []any {
	list := make([]any, len(t.types))
	for i, kind := range t.types {
		switch kind {
		case "INTEGER":
			list[i] = new(int64)
		case "TEXT":
			list[i] = new(string)
		default:
			list[i] = new([]byte)
		}
	}
	return list
}

// maxBatchBytes bounds the texts of a statement that copies rows.
const maxBatchBytes = 1 << 20

// copyTables replaces the rows of tables in one transaction by those in another.
func copyTables(ctx context.Context, tables []table, from, to *sql.Tx) error {
	for _, t := range tables {
		if err := t.copyRows(ctx, from, to); err != nil {
			return err
		}
	}
	return nil
}

// copyRows replaces the rows of a table in one transaction by those in another.
func (t table) copyRows(ctx context.Context, from, to *sql.Tx) error {
	if _, err := to.ExecContext(ctx, "DELETE FROM "+quoted(t.name)); err != nil {
		return err
	}

	rows, err := from.QueryContext(ctx, "SELECT "+strings.Join(t.columns, ", ")+" FROM "+quoted(t.name))
	if err != nil {
		return err
	}
	defer rows.Close()

	w := batch{ctx: ctx, table: t, to: to}
	for rows.Next() {
		row := t.row()
		if err := rows.Scan(row...); err != nil {
			return err
		}
		if err := w.add(row); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return w.flush()
}

// batch writes rows of a table, many with each statement.
type batch struct {
	ctx   context.Context // of the one call of copyRows
	table table
	to    *sql.Tx
	args  []any
	bytes int
}

func (b *batch) add(row []any) error {
	for _, v := range row {
		switch v := v.(type) {
		case *string:
			b.bytes += len(*v)
		case *[]byte:
			b.bytes += len(*v)
		}
	}

	b.args = append(b.args, row...)
	if len(b.args) < maxBatch*len(row) && b.bytes < maxBatchBytes {
		return nil
	}
	return b.flush()
}

func (b *batch) flush() error {
	n := len(b.args) / len(b.table.columns)
	if n == 0 {
		return nil
	}

	q := "INSERT INTO " + quoted(b.table.name) + " (" + strings.Join(b.table.columns, ", ") + ") VALUES " +
		tuples(n, len(b.table.columns))
	_, err := b.to.ExecContext(b.ctx, q, b.args...)
	b.args, b.bytes = b.args[:0], 0
	if err != nil {
		return fmt.Errorf("table %s: %w", b.table.name, err)
	}
	return nil
}
