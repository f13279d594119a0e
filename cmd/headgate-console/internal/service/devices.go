package service

import (
	"errors"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

const (
	// DeviceLife is how long a device is known after the last log-in in it.
	DeviceLife = 180 * 24 * time.Hour

	// maxDevices is the largest number of known devices of a user.
	maxDevices = 20
)

// knownDevice returns the digest of the device that a request comes from if the user has
// logged in there, or "". A known device has limits of failed log-ins of its own, so that
// an attack from elsewhere does not lock the user out. It grants nothing else.
func knownDevice(t *store.Tx, user string, m Meta) (string, error) {
	if m.Device == "" {
		return "", nil
	}
	d, err := t.Device(user, auth.Digest(m.Device))
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	return d.Hash, err
}

// rememberDevice makes the device of a log-in known. It returns the secret of a new one, or ""
// if the device was known before. It forgets old devices.
func rememberDevice(t *store.Tx, user string, m Meta, now int64) (secret string, err error) {
	hash, err := knownDevice(t, user, m)
	if err != nil {
		return "", err
	}

	// A known device gets the time of this log-in.
	if hash == "" {
		secret = auth.NewSecret()
		hash = auth.Digest(secret)
	} else if err := t.DeleteDevice(user, hash); err != nil {
		return "", err
	}

	if err := t.InsertDevice(store.Device{Hash: hash, User: user, SeenAt: now}); err != nil {
		return "", err
	}

	// The newest come first. What is too old or too much is forgotten.
	list, err := t.DevicesOf(user)
	kept := 1
	for _, d := range list {
		if d.Hash == hash {
			continue
		}
		if kept < maxDevices && now-d.SeenAt <= DeviceLife.Microseconds() {
			kept++
			continue
		}
		if err := t.DeleteDevice(user, d.Hash); err != nil {
			return "", err
		}
	}

	return secret, err
}
