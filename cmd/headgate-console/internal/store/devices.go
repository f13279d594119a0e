package store

// Device is a browser in which a user has logged in.
type Device struct {
	Hash   string // of the secret in its cookie, which is not stored
	User   string
	SeenAt int64 // µs; the last log-in
}

const deviceColumns = "SELECT hash, user_name, seen_at FROM devices"

func scanDevice(s scanner) (d Device, err error) {
	return d, s.Scan(&d.Hash, &d.User, &d.SeenAt)
}

// Device returns a device of a user, or ErrNotFound.
func (t *Tx) Device(user, hash string) (Device, error) {
	return readOne(t, scanDevice, deviceColumns+" WHERE user_name = ? AND hash = ?", user, hash)
}

// DevicesOf returns the devices of a user, the newest first.
func (t *Tx) DevicesOf(user string) ([]Device, error) {
	return readAll(t, scanDevice, deviceColumns+" WHERE user_name = ? ORDER BY seen_at DESC, hash", user)
}

// InsertDevice adds a device.
func (t *Tx) InsertDevice(d Device) error {
	_, err := t.exec("INSERT INTO devices (hash, user_name, seen_at) VALUES (?, ?, ?)", d.Hash, d.User, d.SeenAt)
	return err
}

// DeleteDevice removes a device of a user, or returns ErrNotFound.
func (t *Tx) DeleteDevice(user, hash string) error {
	return t.execOne(ErrNotFound, "DELETE FROM devices WHERE user_name = ? AND hash = ?", user, hash)
}

// DeleteOtherDevices removes all devices of a user but one, or all with "".
func (t *Tx) DeleteOtherDevices(user, hash string) error {
	_, err := t.exec("DELETE FROM devices WHERE user_name = ? AND hash <> ?", user, hash)
	return err
}
