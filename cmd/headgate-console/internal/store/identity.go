package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
)

// identityName is the name of the setting that holds the identity of the database.
const identityName = "database_id"

// identity tells a database from all others, also from its own copies.
type identity struct {
	// ID is random. What is published carries it.
	ID string `json:"id"`

	// Former is the ID before the last [Tx.RenewID], or "".
	Former string `json:"former,omitempty"`

	// Places say where the database was when it was opened last, in one or more ways. A database
	// that is at none of them is a copy, and gets an ID of its own.
	Places []string `json:"places"`
}

// newID returns a random id.
func newID() string { return strings.ToLower(rand.Text()) }

// identify gives the database an id unless it has one. It runs while no other process opens the
// database.
func (d *DB) identify(ctx context.Context, r runner, logger *slog.Logger) error {
	places := d.engine.places()
	is, err := readIdentity(ctx, r)
	known := slices.ContainsFunc(is.Places, func(place string) bool { return slices.Contains(places, place) })

	switch {
	case err != nil:
		return err
	case known && slices.Equal(is.Places, places):
		return nil
	case !known && is.ID != "":
		logger.InfoContext(ctx, "the database is a copy, or was moved; it has a new id from now on")
		fallthrough
	case !known:
		is.ID, is.Former = newID(), ""
	}

	is.Places = places
	return writeIdentity(ctx, r, is)
}

// readIdentity returns the zero identity for a database that has none yet.
func readIdentity(ctx context.Context, r runner) (is identity, err error) {
	var text string
	err = r.QueryRowContext(ctx, "SELECT value FROM settings WHERE name = ?", identityName).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return is, nil
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &is)
	}
	if err != nil {
		err = fmt.Errorf("the setting %s: %w", identityName, err)
	}
	return is, err
}

func writeIdentity(ctx context.Context, r runner, is identity) error {
	text, err := json.Marshal(is)
	if err != nil {
		return err
	}
	_, err = r.ExecContext(ctx, setSetting, identityName, string(text))
	return err
}

// ID returns the id of the database, which no copy of it shares: a copy of a file gets another
// one when it is opened under another name, and so does a dump that is read into a database of
// another name.
func (t *Tx) ID() (string, error) {
	is, err := readIdentity(t.ctx, t.tx)
	return is.ID, t.db.translate(err)
}

// FormerID returns the id that the database had before the last RenewID, or "".
func (t *Tx) FormerID() (string, error) {
	is, err := readIdentity(t.ctx, t.tx)
	return is.Former, t.db.translate(err)
}

// RenewID gives the database a new id and returns it, so that copies of the database which could
// not be told from it can be from now on.
func (t *Tx) RenewID() (string, error) {
	is, err := readIdentity(t.ctx, t.tx)
	if err != nil {
		return "", t.db.translate(err)
	}
	is.ID, is.Former = newID(), is.ID
	return is.ID, t.db.translate(writeIdentity(t.ctx, t.tx, is))
}
