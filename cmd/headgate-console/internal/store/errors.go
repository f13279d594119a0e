package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"syscall"
)

// Errors of calls, apart from faults of the program. Test with errors.Is.
var (
	// ErrUnavailable means that the database did not answer in time or cannot
	// write. Nothing was changed, unless the connection broke during the commit:
	// then the change was made in full or not at all.
	ErrUnavailable = errors.New("the database is not available")

	// ErrFull means that there is no space for a write. Nothing was changed. It matches
	// ErrUnavailable and syscall.ENOSPC too.
	ErrFull = fmt.Errorf("%w: %w", ErrUnavailable, syscall.ENOSPC)

	// ErrNotFound means that there is no such row.
	ErrNotFound = errors.New("not found")

	// ErrExists means that there is already a row with the same name.
	ErrExists = errors.New("exists already")

	// ErrReferenced means that a row refers to one that does not exist, or that a
	// row to be deleted is in use.
	ErrReferenced = errors.New("is missing or in use")

	// ErrStale means that the row has another version than the one that the
	// change is based on.
	ErrStale = errors.New("was changed in the meantime")
)

// kind is the meaning of an engine's error.
type kind int

const (
	kindOther       kind = iota // a fault of the program
	kindUnavailable             // the database does not answer
	kindFull                    // there is no space
	kindContended               // another transaction was first: try again
	kindExists
	kindReferenced
)

// translate turns an engine's error into one of this package.
func (d *DB) translate(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNotFound
	}

	// A context of the caller that ended early is not the database's fault, and is returned as it
	// is. A deadline is: it bounds how long the database may take, and ends the transaction.
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, sql.ErrTxDone) {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}

	// What is contended has been tried again for as long as there was time.
	switch d.engine.kind(err) {
	case kindFull:
		d.full.Store(true)
		return fmt.Errorf("%w: %w", ErrFull, err)
	case kindUnavailable, kindContended:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	case kindExists:
		return fmt.Errorf("%w: %w", ErrExists, err)
	case kindReferenced:
		return fmt.Errorf("%w: %w", ErrReferenced, err)
	}
	return err
}
