package store

// Device is a browser in which a user has logged in.
type Device struct {
	Hash   string `db:"hash"` // of the secret in its cookie, which is not stored
	User   string `db:"user_name"`
	SeenAt int64  `db:"seen_at"` // µs; the last log-in
}

var deviceRows = newRows[Device]("devices")

// Device returns a device of a user, or ErrNotFound.
func (t *Tx) Device(user, hash string) (Device, error) {
	return deviceRows.one(t, "WHERE user_name = ? AND hash = ?", user, hash)
}

// DevicesOf returns the devices of a user, the newest first.
func (t *Tx) DevicesOf(user string) ([]Device, error) {
	return deviceRows.all(t, "WHERE user_name = ? ORDER BY seen_at DESC, hash", user)
}

// InsertDevice adds a device.
func (t *Tx) InsertDevice(d Device) error { return deviceRows.insert(t, d) }

// DeleteDevice removes a device of a user, or returns ErrNotFound.
func (t *Tx) DeleteDevice(user, hash string) error {
	return t.execOne(ErrNotFound, "DELETE FROM devices WHERE user_name = ? AND hash = ?", user, hash)
}

// DeleteOtherDevices removes all devices of a user but one, or all with "".
func (t *Tx) DeleteOtherDevices(user, hash string) error {
	return t.exec("DELETE FROM devices WHERE user_name = ? AND hash <> ?", user, hash)
}
