package service

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

// attack sends wrong passwords of a user from many addresses, five from each.
func (w *world) attack(user string, addresses int) {
	w.t.Helper()
	for i := range addresses {
		for range 5 {
			_, err := w.Login(w.t.Context(), user, "wrong",
				Meta{Address: fmt.Sprintf("198.51.%d.%d:1", 100+i/250, i%250)})
			var limited *LimitedError
			if !errors.Is(err, ErrCredentials) && !errors.As(err, &limited) {
				w.t.Fatal(err)
			}
		}
	}
}

// Failures elsewhere do not keep the right password out: at a new address it is checked,
// however many addresses have failed.
func TestLoginAttackFromManyAddressesLocksNobodyOut(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	w.person("x", nil)
	w.attack("x", 400)
	for i := range 3 {
		if _, err := w.Login(t.Context(), "x", userPassword,
			Meta{Address: fmt.Sprintf("192.0.2.%d:1", 20+i)}); err != nil {
			t.Errorf("the right password at new address %d: %v", i, err)
		}
	}
}

// An operator who recovers a user has the password of now, and no failure counts any more.
func TestRecoverLiftsTheLimitsOfAttempts(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	const address = "192.0.2.9:1"
	for i := range 40 { // exhaust the address as well as the pair
		w.Login(t.Context(), fmt.Sprintf("nobody%d", i), "wrong", Meta{Address: address})
		w.Login(t.Context(), FirstUser, "wrong", Meta{Address: address})
	}

	var limited *LimitedError
	if _, err := w.Login(t.Context(), FirstUser, adminPassword, Meta{Address: address}); !errors.As(err, &limited) {
		t.Fatalf("the address is not limited: %v", err)
	}

	password, err := w.another().Recover(t.Context(), FirstUser) // another process
	w.must(err)
	if _, err := w.Login(t.Context(), FirstUser, password, Meta{Address: address}); err != nil {
		t.Errorf("the recovered user: %v", err)
	}
}

// While a user is under attack, an address that has failed twice waits until the next
// attempt, and a browser in which the user has logged in before does not.
func TestLoginUnderAttackSlowsUnknownAddresses(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		w.person("x", nil)
		known := must(w.Login(t.Context(), "x", userPassword, Meta{}))
		if known.Device == "" {
			t.Fatal("the log-in makes no device known")
		}

		// Thirty addresses with five failures each are more than the hundred an hour beyond which
		// a user counts as attacked.
		w.attack("x", 30)
		from := func(address, device, password string) error {
			_, err := w.Login(t.Context(), "x", password, Meta{Address: address, Device: device})
			return err
		}

		const fresh = "192.0.2.30:1"
		for range 2 {
			wantErr(t, "a wrong password at a new address", from(fresh, "", "wrong"), ErrCredentials)
		}

		var limited *LimitedError
		if err := from(fresh, "", userPassword); !errors.As(err, &limited) || limited.RetryAfter != 5*time.Minute {
			t.Errorf("the third attempt at a new address: %v", err)
		}

		if err := from(fresh, "forged", userPassword); !errors.As(err, &limited) {
			t.Errorf("the third attempt with a forged device: %v", err)
		}

		// The known browser is let in at the address that has to wait, and has a limit of its own.
		w.must(from(fresh, known.Device, userPassword))
		w.must(from("198.51.100.1:1", known.Device, userPassword)) // even where the attack comes from
		for range 5 {
			wantErr(t, "a wrong password at a known device", from(fresh, known.Device, "wrong"), ErrCredentials)
		}

		if err := from(fresh, known.Device, userPassword); !errors.As(err, &limited) {
			t.Errorf("the sixth attempt with a known device: %v", err)
		}

		// An address that has not failed has its first attempt at once.
		w.must(from("192.0.2.31:1", "", userPassword))
	})
}

// A device is known for the user who logged in there, until the password changes.
func TestDeviceIsKnownForOneUserAndPassword(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	w.person("x", nil)
	w.person("y", nil)

	login := func(user, password, device string) string {
		s := must(w.Login(t.Context(), user, password, Meta{Device: device}))
		return s.Device
	}

	// A browser that is known already gets no other secret.
	device := login("x", userPassword, "")
	equal(t, "the new device of a known one", login("x", userPassword, device), "")

	if got := login("y", userPassword, device); got == "" || got == device {
		t.Errorf("the device of another user became %q", got)
	}

	password := must(w.ResetPassword(t.Context(), w.admin, "x"))
	if got := login("x", password, device); got == "" {
		t.Error("the device outlives the password")
	}

	// Only so many browsers of a user are known, or each log-in would add a row for ever.
	for range 30 {
		login("y", userPassword, "")
	}

	w.must(w.db.View(t.Context(), func(tx *store.Tx) error {
		list, err := tx.DevicesOf("y")
		equal(t, "devices are known", len(list), maxDevices)
		return err
	}))
}
