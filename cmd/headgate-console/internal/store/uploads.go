package store

// Upload is the text of an import that a user has not confirmed yet.
type Upload struct {
	User   string
	Digest string // of Data
	At     int64  // µs
	Data   []byte
}

// Upload returns the upload of a user that has a digest and was made at an instant in µs or later,
// or ErrNotFound.
func (t *Tx) Upload(user, digest string, since int64) ([]byte, error) {
	scan := func(s scanner) (data []byte, err error) { return data, s.Scan(&data) }
	return readOne(t, scan,
		"SELECT data FROM uploads WHERE user_name = ? AND digest = ? AND at >= ?", user, digest, since)
}

// InsertUpload adds an upload, of which a user has one.
func (t *Tx) InsertUpload(u Upload) error {
	const q = "INSERT INTO uploads (user_name, digest, at, data) VALUES (?, ?, ?, ?)"
	_, err := t.exec(q, u.User, u.Digest, u.At, u.Data)
	return err
}

// ForgetUploads deletes the upload of a user, and all that were made before an instant in µs.
func (t *Tx) ForgetUploads(user string, before int64) error {
	_, err := t.exec("DELETE FROM uploads WHERE user_name = ? OR at < ?", user, before)
	return err
}
