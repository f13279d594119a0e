package store

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"time"
)

const (
	// attempts is the largest number of attempts of a transaction that conflicts
	// with others.
	attempts = 6

	// backoff is the longest pause after the first attempt; it doubles.
	backoff = 10 * time.Millisecond

	// queuePause is the longest pause before a transaction tries again to begin
	// while another program writes.
	queuePause = 20 * time.Millisecond
)

// Tx is a transaction. It is valid until the function that View or Update calls with
// it returns, and only in the goroutine of that function. Methods return the errors
// of this package.
type Tx struct {
	db    *DB
	ctx   context.Context // of the one call that the transaction belongs to
	tx    *sql.Tx
	known map[string]*sql.Stmt // nil for a query that has run once
	wrote bool                 // rows
}

// View runs f in a transaction that only reads, and sees the database at one instant.
// It returns the error of f.
func (d *DB) View(ctx context.Context, f func(*Tx) error) error {
	ctx, cancel := d.bounded(ctx)
	defer cancel()
	return d.once(ctx, d.read, &sql.TxOptions{ReadOnly: true}, f)
}

// Update runs f in a transaction and commits it. If f returns an error, Update
// returns the error and changes nothing. It runs f again if the transaction
// conflicts with another, so f must have no effect outside of the transaction.
func (d *DB) Update(ctx context.Context, f func(*Tx) error) error {
	err := d.update(ctx, f)
	if errors.Is(err, ErrUnavailable) {
		d.unwritten.Store(true)
	}
	return err
}

func (d *DB) update(ctx context.Context, f func(*Tx) error) error {
	ctx, cancel := d.bounded(ctx)
	defer cancel()
	pause := backoff
	for i := 1; ; i++ {
		// Each attempt is a transaction of its own: what the one before has read may have changed.
		err := d.once(ctx, d.write, nil, f)
		if err == nil || i == attempts || d.engine.kind(err) != kindContended {
			return err
		}

		// The pauses are random, so that two transactions that conflict do not meet again.
		if !wait(ctx, rand.N(pause)) {
			return err
		}
		pause *= 2
	}
}

func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (d *DB) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, d.timeout)
}

func (d *DB) once(ctx context.Context, db *sql.DB, o *sql.TxOptions, f func(*Tx) error) error {
	tx, err := begin(ctx, d.engine, db, o)
	if err != nil {
		return d.translate(err)
	}
	t := &Tx{db: d, ctx: ctx, tx: tx, known: map[string]*sql.Stmt{}}
	defer tx.Rollback() // does nothing after a commit
	if err := f(t); err != nil {
		return err
	}
	if err := d.translate(tx.Commit()); err != nil {
		return err
	}

	// Writes are taken again.
	if t.wrote && d.unwritten.Load() {
		d.unwritten.Store(false)
		d.full.Store(false)
	}
	return nil
}

// begin begins a transaction. It waits until ctx ends while other programs write.
func begin(ctx context.Context, e engine, db *sql.DB, o *sql.TxOptions) (*sql.Tx, error) {
	for {
		tx, err := db.BeginTx(ctx, o)
		if err == nil || e.kind(err) != kindContended || !wait(ctx, rand.N(queuePause)) {
			return tx, err
		}
	}
}

// statement returns nil for a query that is new to the transaction, and a prepared
// statement for one that is repeated. The statement ends with the transaction.
func (t *Tx) statement(query string) (*sql.Stmt, error) {
	s, again := t.known[query]
	if !again || s != nil {
		t.known[query] = s
		return s, nil
	}
	s, err := t.tx.PrepareContext(t.ctx, query)
	if err == nil {
		t.known[query] = s
	}
	return s, err
}

// exec runs a statement.
func (t *Tx) exec(query string, args ...any) error {
	_, err := t.affected(query, args...)
	return err
}

// affected runs a statement and returns the number of affected rows.
func (t *Tx) affected(query string, args ...any) (int64, error) {
	s, err := t.statement(query)
	if err != nil {
		return 0, t.db.translate(err)
	}

	// A query that the transaction repeats is prepared, so that the database reads its text once.
	var r sql.Result
	if s != nil {
		r, err = s.ExecContext(t.ctx, args...)
	} else {
		r, err = t.tx.ExecContext(t.ctx, query, args...)
	}
	if err != nil {
		return 0, t.db.translate(err)
	}

	n, err := r.RowsAffected()
	t.wrote = t.wrote || n > 0
	return n, t.db.translate(err)
}

// execOne runs a statement that must affect one row, and returns missing if it
// affected none.
func (t *Tx) execOne(missing error, query string, args ...any) error {
	n, err := t.affected(query, args...)
	if err == nil && n == 0 {
		return missing
	}
	return err
}

// readOne reads the row that a query finds, or returns ErrNotFound. The query has a column for each
// of the variables of a row.
func readOne[R any](t *Tx, query string, args ...any) (v R, err error) {
	// A query that the transaction repeats is prepared, as in affected.
	var row *sql.Row
	s, err := t.statement(query)
	if err != nil {
		return v, t.db.translate(err)
	}
	if s != nil {
		row = s.QueryRowContext(t.ctx, args...)
	} else {
		row = t.tx.QueryRowContext(t.ctx, query, args...)
	}

	err = row.Scan(variables(nil, reflect.ValueOf(&v).Elem())...)
	return v, t.db.translate(err)
}

// readAll reads every row that a query finds.
func readAll[R any](t *Tx, query string, args ...any) ([]R, error) {
	rows, err := t.tx.QueryContext(t.ctx, query, args...)
	if err != nil {
		return nil, t.db.translate(err)
	}
	defer rows.Close()

	var list []R
	var columns []any
	for rows.Next() {
		var v R
		columns = variables(columns[:0], reflect.ValueOf(&v).Elem())
		if err := rows.Scan(columns...); err != nil {
			return nil, t.db.translate(err)
		}
		list = append(list, v)
	}

	return list, t.db.translate(errors.Join(rows.Err(), rows.Close()))
}

// like returns the pattern for LIKE … ESCAPE '!' that matches texts which contain text.
func like(text string) string {
	return "%" + strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(text) + "%"
}
