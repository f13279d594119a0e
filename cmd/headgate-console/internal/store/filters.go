package store

// Filter is a filter of the list of policies that a user has saved.
type Filter struct {
	User      string
	Name      string
	Query     string // JSON
	CreatedAt int64  // µs
}

func scanFilter(s scanner) (f Filter, err error) {
	return f, s.Scan(&f.User, &f.Name, &f.Query, &f.CreatedAt)
}

// FiltersOf returns the filters of a user by name.
func (t *Tx) FiltersOf(user string) ([]Filter, error) {
	const q = "SELECT user_name, name, query, created_at FROM filters WHERE user_name = ? ORDER BY name"
	return readAll(t, scanFilter, q, user)
}

// InsertFilter adds a filter, or returns ErrExists if the user has one of that name.
func (t *Tx) InsertFilter(f Filter) error {
	const q = "INSERT INTO filters (user_name, name, query, created_at) VALUES (?, ?, ?, ?)"
	_, err := t.exec(q, f.User, f.Name, f.Query, f.CreatedAt)
	return err
}

// DeleteFilter removes a filter of a user, or returns ErrNotFound.
func (t *Tx) DeleteFilter(user, name string) error {
	return t.execOne(ErrNotFound, "DELETE FROM filters WHERE user_name = ? AND name = ?", user, name)
}
