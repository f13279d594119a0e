package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

const (
	// PendingLife is how long a log-in waits for its code.
	PendingLife = 5 * time.Minute

	// setupLife is how long a second factor waits to be confirmed.
	setupLife = 30 * time.Minute
)

// SecondFactor is the state of the actor's own second factor: codes of RFC 6238, which the
// user's device computes from a secret and the time.
type SecondFactor struct {
	On            bool
	Since         time.Time
	RecoveryCodes int  // that were not used
	Required      bool // by the settings
	Elsewhere     bool // a provider or a proxy signs the user in, and is responsible for it
}

// FactorSetup is a second factor that waits to be confirmed.
type FactorSetup struct {
	Secret  string // in base32
	Address string // of the form otpauth://totp/..., for a picture that a device reads
}

// SecondFactor returns the state of the actor's own second factor.
func (s *Service) SecondFactor(ctx context.Context, a Actor) (SecondFactor, error) {
	return answer(ctx, s, a, "second-factor.read", userObject(a.user), func(d *action) (state SecondFactor, err error) {
		if err := d.person(); err != nil {
			return state, err
		}
		settings, err := settingsOf(d.Tx)
		if err != nil {
			return state, err
		}

		state = SecondFactor{Required: settings.requires(d.access), Elsewhere: a.via != viaSession}

		f, on, err := confirmedFactor(d.Tx, a.user)
		if err != nil || !on {
			return state, err
		}

		n, err := d.RecoveryCodes(a.user)
		state.On, state.Since, state.RecoveryCodes = true, instant(f.ConfirmedAt), int(n)
		return state, err
	})
}

// BeginSecondFactor makes a secret for the actor's own second factor. It counts from
// ConfirmSecondFactor on, which has to come from the same session within half an hour. A
// secret that was not confirmed ends. The error is ErrCredentials if the password is wrong,
// which counts as a failed attempt to log in. It requires a session that began with a
// password.
func (s *Service) BeginSecondFactor(ctx context.Context, a Actor, password string) (FactorSetup, error) {
	setup := FactorSetup{Secret: auth.NewFactor()}
	begin := func(d *action) error {
		// One that was not confirmed ends.
		if err := d.DeleteSecondFactor(a.user); err != nil {
			return err
		}
		f := store.SecondFactor{User: a.user, Secret: setup.Secret, Session: a.session, CreatedAt: d.now}
		if err := d.InsertSecondFactor(f); err != nil {
			return err
		}

		return d.done("", "")
	}
	err := s.withProof(
		ctx, a, "second-factor.begin", userObject(a.user), proof{password: password}, (*action).mayBegin, begin)
	if err != nil {
		return FactorSetup{}, err
	}

	setup.Address, err = auth.FactorAddress(a.user, setup.Secret)
	return setup, err
}

// SecondFactorSetup returns the second factor that the actor's session sets up, or
// ErrNotFound.
func (s *Service) SecondFactorSetup(ctx context.Context, a Actor) (FactorSetup, error) {
	return answer(ctx, s, a, "second-factor.setup", userObject(a.user), func(d *action) (FactorSetup, error) {
		f, err := d.setup()
		if err != nil {
			return FactorSetup{}, err
		}
		address, err := auth.FactorAddress(a.user, f.Secret)
		return FactorSetup{f.Secret, address}, err
	})
}

// ConfirmSecondFactor puts the second factor that the actor's session sets up in force, and
// returns the recovery codes, which are not stored. Each replaces one code at a log-in. It
// ends all other sessions of the user, which began without a code, and forgets all other browsers,
// because another person may have used the password there. The error is ErrCredentials if the code
// is wrong, and ErrNotFound if there is nothing to confirm.
func (s *Service) ConfirmSecondFactor(ctx context.Context, a Actor, code string) ([]string, error) {
	codes, digests := auth.NewRecoveryCodes()
	err := s.act(ctx, a, store.CounterUsers, "second-factor.confirm", userObject(a.user), func(d *action) error {
		f, err := d.setup()
		if err != nil {
			return err
		}

		// A right code shows that the device has the secret. It counts as used.
		step, right := auth.CodeStep(f.Secret, code, d.now, f.LastStep)
		if !right {
			return ErrCredentials
		}

		if err := d.Tx.ConfirmSecondFactor(f, d.now, step); err != nil {
			return err
		}
		if err := d.SetRecoveryCodes(a.user, digests); err != nil {
			return err
		}

		// Sessions and browsers without a code may be those of another person.
		if err := d.DeleteOtherSessions(a.user, a.session); err != nil {
			return err
		}

		device, err := knownDevice(d.Tx, a.user, a.meta)
		if err != nil {
			return err
		}
		if err := d.DeleteOtherDevices(a.user, device); err != nil {
			return err
		}

		return d.done("", "")
	})
	if err != nil {
		return nil, err
	}

	return codes, nil
}

// RenewRecoveryCodes replaces the recovery codes of the actor, and returns the new ones. It takes a
// code of the second factor or a recovery code, as DisableSecondFactor does, because new codes are
// as good as the device. The errors are those of DisableSecondFactor.
func (s *Service) RenewRecoveryCodes(ctx context.Context, a Actor, password, code string) ([]string, error) {
	codes, digests := auth.NewRecoveryCodes()
	err := s.withOwnFactor(ctx, a, "second-factor.renew-codes", password, code, func(d *action) error {
		return d.SetRecoveryCodes(a.user, digests)
	})
	if err != nil {
		return nil, err
	}

	return codes, nil
}

// ErrCode is an ErrCredentials: the password is right, and the code is wrong.
var ErrCode = fmt.Errorf("%w: the code is wrong", ErrCredentials)

// DisableSecondFactor turns the actor's own second factor off, with a code of it or a recovery
// code. The error is ErrCode if that is wrong or was used before, ErrCredentials if the password is
// wrong, a LimitedError after too many failed attempts, and ErrNotFound without a second factor. If
// the settings require one, the user has to set up another before any other action.
func (s *Service) DisableSecondFactor(ctx context.Context, a Actor, password, code string) error {
	return s.withOwnFactor(ctx, a, "second-factor.disable", password, code, func(d *action) error {
		return d.DeleteSecondFactor(a.user)
	})
}

// RemoveSecondFactor turns the second factor of another user off, who has lost the device and
// the recovery codes, and ends all sessions of the user. It requires an administrator.
func (s *Service) RemoveSecondFactor(ctx context.Context, a Actor, name string) error {
	return s.manage(ctx, a, "user.remove-second-factor", userObject(name), func(d *action) error {
		if _, err := d.user(name); err != nil {
			return err
		}

		// One's own takes the password, so that a stolen session is not enough.
		if name == a.user {
			return invalid("name", "turn off your own second factor on the page of your account, with your password")
		}

		if _, on, err := confirmedFactor(d.Tx, name); err != nil || !on {
			if err == nil {
				err = errUnchanged
			}
			return err
		}

		if err := d.DeleteSecondFactor(name); err != nil {
			return err
		}
		if err := d.signOut(name); err != nil {
			return err
		}

		return d.done("", "")
	})
}

// local refuses all but a session that began with a password.
func (a *action) local() error {
	if err := a.person(); err != nil {
		return err
	}
	switch a.actor.via {
	case viaSession:
		return nil
	case viaOIDC:
		return a.deny("the provider has signed the user in, and is responsible for a second factor")
	}
	return a.deny("the proxy has signed the user in, and is responsible for a second factor")
}

// mayBegin refuses to set up a second factor where one is in force. That one has to be turned off
// first, which ends its recovery codes too.
func (a *action) mayBegin() error {
	return a.withFactor(false, invalid("", "a second factor is in force already: turn it off first"))
}

// mayChange is ErrNotFound without a second factor in force.
func (a *action) mayChange() error { return a.withFactor(true, ErrNotFound) }

// withFactor refuses an actor without a password of the console, and returns otherwise unless a
// second factor of the actor is in force, or is not.
func (a *action) withFactor(inForce bool, otherwise error) error {
	if err := a.local(); err != nil {
		return err
	}
	_, on, err := confirmedFactor(a.Tx, a.actor.user)
	if err == nil && on != inForce {
		err = otherwise
	}
	return err
}

// withOwnFactor runs f, which changes the actor's second factor, if the password and the code are
// right.
func (s *Service) withOwnFactor(
	ctx context.Context, a Actor, verb, password, code string, f func(*action) error,
) error {
	change := func(d *action) error {
		if err := f(d); err != nil {
			return err
		}
		return d.done("", "")
	}
	return s.withProof(ctx, a, verb, userObject(a.user), proof{password, code}, (*action).mayChange, change)
}

// setup returns the second factor that the actor's session sets up, or ErrNotFound.
func (a *action) setup() (store.SecondFactor, error) {
	if err := a.local(); err != nil {
		return store.SecondFactor{}, err
	}
	f, err := a.SecondFactor(a.actor.user)
	if err != nil {
		return f, err
	}
	if f.ConfirmedAt > 0 || f.Session != a.actor.session || a.now >= f.CreatedAt+setupLife.Microseconds() {
		return f, ErrNotFound
	}
	return f, nil
}

// confirmedFactor returns the second factor of a user, if one is in force.
func confirmedFactor(t *store.Tx, user string) (f store.SecondFactor, on bool, err error) {
	f, err = t.SecondFactor(user)
	if errors.Is(err, ErrNotFound) {
		return f, false, nil
	}
	return f, err == nil && f.ConfirmedAt > 0, err
}

// mustSetUp reports whether an actor has to set up a second factor before anything else. A
// token has none, and for other ways to sign in others are responsible. A password that has
// to be changed comes first.
func mustSetUp(t *store.Tx, a Actor, access Access) (bool, error) {
	if a.via != viaSession || access.MustChangePassword {
		return false, nil
	}
	settings, err := settingsOf(t)
	if err != nil || !settings.requires(access) {
		return false, err
	}
	_, on, err := confirmedFactor(t, a.user)
	return !on, err
}
