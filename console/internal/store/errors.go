package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Errors of calls, apart from faults of the program. Test with errors.Is.
var (
	// ErrUnavailable means that the database could not be reached, or not in
	// time, or that it cannot write. Nothing was changed, unless the connection
	// broke during the commit: then the change was made in full or not at all.
	ErrUnavailable = errors.New("the database is not available")

	// ErrNotFound means that there is no such row.
	ErrNotFound = errors.New("not found")

	// ErrExists means that a row with the same name is there already.
	ErrExists = errors.New("exists already")

	// ErrReferenced means that a row does not exist to which another refers, or
	// that a row to be deleted is in use.
	ErrReferenced = errors.New("is missing or in use")

	// ErrStale means that the row has another version than the one that the
	// change is based on.
	ErrStale = errors.New("was changed in the meantime")
)

// kind is the meaning of an engine's error.
type kind int

const (
	kindOther       kind = iota // a fault of the program
	kindUnavailable             // the database is away
	kindContended               // lost against another transaction: try again
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
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, sql.ErrConnDone) {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	switch d.engine.kind(err) {
	case kindUnavailable, kindContended:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	case kindExists:
		return fmt.Errorf("%w: %w", ErrExists, err)
	case kindReferenced:
		return fmt.Errorf("%w: %w", ErrReferenced, err)
	}
	return err
}
