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

	try, err := s.attempt(ctx, a.user, a.meta, false)
	if err != nil {
		return err
	}
	u, err := s.checkedUser(ctx, a.user, own.password)
	s.endProof(ctx, a, verb, object, try, err)
	if err != nil {
		return err
	}

	// As at a log-in, a guess of a code counts only after the right password.
	if try, err = s.attempt(ctx, a.user, a.meta, auth.IsCode(own.code)); err != nil {
		return err
	}
	err = s.act(ctx, a, store.CounterUsers, verb, object, func(d *action) error {
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

		if err := d.useOwnCode(own.code); err != nil {
			return err
		}
		return f(d)
	})
	s.endProof(ctx, a, verb, object, try, err)
	return err
}

// endProof ends an attempt of withProof by its error.
func (s *Service) endProof(ctx context.Context, a Actor, verb, object string, try auth.Try, err error) {
	if !errors.Is(err, ErrCredentials) {
		s.refund(ctx, try)
		return
	}

	try.Failed()
	reason := "the password is wrong"
	if errors.Is(err, ErrCode) {
		reason = "the code is wrong"
	}
	s.auditRefusal(ctx, a, verb, object, reason)
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
