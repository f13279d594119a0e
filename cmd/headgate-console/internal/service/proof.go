package service

import (
	"context"
	"errors"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

// proof shows that it is the user who acts, and not another person with the user's session.
type proof struct {
	password string
	code     string // of the second factor, or a recovery code; ignored without a second factor
}

// withProof runs f if the actor may do it, if the password is the actor's own and, where the actor
// has a second factor, if the code is right, which is used up. The error is ErrCode if that is
// wrong, ErrCredentials if the password is wrong, and a LimitedError after too many of either. Both
// count as failed attempts to log in.
func (s *Service) withProof(
	ctx context.Context, a Actor, verb, object string, own proof, may, f func(*action) error,
) error {
	// A refusal costs no attempt.
	if err := s.ask(ctx, a, verb, object, may); err != nil {
		return err
	}

	u, _, err := tried(ctx, s, a.user, a.meta, false, func() (store.User, error) {
		return s.checkedUser(ctx, a.user, own.password)
	})

	// As at a log-in, a guess of a code counts only after the right password.
	if err == nil {
		_, _, err = tried(ctx, s, a.user, a.meta, auth.IsCode(own.code), func() (none struct{}, err error) {
			return none, s.actOnProof(ctx, a, verb, object, own.code, u, may, f)
		})
	}

	switch {
	case errors.Is(err, ErrCode):
		s.auditRefusal(ctx, a, verb, object, "the code is wrong")
	case errors.Is(err, ErrCredentials):
		s.auditRefusal(ctx, a, verb, object, "the password is wrong")
	}
	return err
}

// actOnProof runs f after the password of the user u was right.
func (s *Service) actOnProof(
	ctx context.Context, a Actor, verb, object, code string, u store.User, may, f func(*action) error,
) error {
	return s.act(ctx, a, store.CounterUsers, verb, object, func(d *action) error {
		if err := may(d); err != nil {
			return err
		}
		current, err := d.user(a.user)
		if err != nil {
			return err
		}

		// The password was checked outside of this transaction.
		if current.Password != u.Password {
			return ErrCredentials
		}

		if err := d.useOwnCode(code); err != nil {
			return err
		}
		return f(d)
	})
}

// useOwnCode uses up a code of the actor's second factor, if the actor has one. The error is
// ErrCode if it is wrong or was used before.
func (a *action) useOwnCode(code string) error {
	f, on, err := confirmedFactor(a.Tx, a.actor.user)
	if err != nil || !on {
		return err
	}
	_, err = useCode(a.Tx, f, code, a.now)
	if errors.Is(err, ErrCredentials) {
		return ErrCode
	}
	return err
}
