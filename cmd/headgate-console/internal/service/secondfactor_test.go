package service

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/oidc"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

// codeAt returns the code of a secret some time from now.
func (w *world) codeAt(secret string, later time.Duration) string {
	w.t.Helper()
	code := must(totp.GenerateCode(secret, w.clock.now().Add(later)))
	return code
}

// step is how long a code lasts.
const step = 30 * time.Second

// enrol gives the actor a second factor, and goes on to the next time step.
func (w *world) enrol(a Actor, password string) (secret string, recovery []string) {
	w.t.Helper()
	setup := must(w.BeginSecondFactor(w.t.Context(), a, password))
	recovery = must(w.ConfirmSecondFactor(w.t.Context(), a, w.codeAt(setup.Secret, 0)))
	w.clock.pass(step)
	return setup.Secret, recovery
}

// pending logs in with a password, and returns the log-in that waits for a code.
func (w *world) pending(user string, m Meta) string {
	w.t.Helper()
	s := must(w.Login(w.t.Context(), user, userPassword, m))
	if s.Token != "" || s.Device != "" || s.Pending == "" {
		w.t.Fatalf("the log-in without a code is %+v", s)
	}
	return s.Pending
}

func TestSecondFactorIsAskedForAfterThePassword(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		x := w.person("x", nil)

		// A session that began with the password alone, before there was a second factor.
		other := must(w.Login(ctx, "x", userPassword, Meta{}))

		setup := must(w.BeginSecondFactor(ctx, x, userPassword))

		// Until a code has confirmed the secret, the user could not give one: the password is
		// enough.
		if s, err := w.Login(ctx, "x", userPassword, Meta{}); err != nil || s.Token == "" {
			t.Errorf("a factor that is not confirmed counts: %+v %v", s, err)
		}
		if _, err := w.ConfirmSecondFactor(ctx, x, "000000"); !errors.Is(err, ErrCredentials) {
			t.Errorf("a wrong code confirms: %v", err)
		}

		recovery := must(w.ConfirmSecondFactor(ctx, x, w.codeAt(setup.Secret, 0)))
		equal(t, "recovery codes", len(recovery), 10)

		// From now on a password alone is not enough, also for those who are inside already.
		_, err := w.Authenticate(ctx, other.Token, Meta{})
		wantErr(t, "a session that began without a code", err, ErrNotLoggedIn)

		state, err := w.SecondFactor(ctx, x)
		if want := (SecondFactor{On: true, Since: w.clock.now(), RecoveryCodes: 10}); err != nil || state != want {
			t.Errorf("the state is %+v %v, want %+v", state, err, want)
		}

		w.useFactor(setup.Secret)
		for _, e := range w.entries(AuditQuery{}) {
			if text := fmt.Sprint(e); strings.Contains(text, setup.Secret) || strings.Contains(text, recovery[0]) {
				t.Errorf("the audit log has a secret: %+v", e)
			}
		}
	})
}

// useFactor logs x in with a code of the next step, and finds each attempt in the audit log. The
// code of now was used.
func (w *world) useFactor(secret string) {
	t, ctx := w.t, w.t.Context()
	t.Helper()

	p := w.pending("x", Meta{})
	wantErr(t, "a pending log-in as a session", errOf(w.Authenticate(ctx, p, Meta{})), ErrNotLoggedIn)

	wantErr(t, "the code that confirmed", errOf(w.LoginCode(ctx, p, w.codeAt(secret, 0), Meta{})), ErrCredentials)

	// The code of the next step is right, for clocks that differ.
	s := must(w.LoginCode(ctx, p, w.codeAt(secret, step), Meta{}))
	if _, err := w.Authenticate(ctx, s.Token, Meta{}); err != nil || s.Device == "" || s.Recovered || s.Pending != "" {
		t.Errorf("the session is %+v %v", s, err)
	}

	_, err := w.LoginCode(ctx, p, w.codeAt(secret, 2*step), Meta{})
	wantErr(t, "a pending log-in that was used", err, ErrNotLoggedIn)

	var got []string
	for _, e := range w.entries(AuditQuery{Object: "user:x", Action: "session."}) {
		got = append(got, fmt.Sprintf("%s %s by %q: %s", e.Action, e.Outcome, e.Actor, e.Note))
	}

	// The attempt with a log-in that was used is not among them: it is of no user.
	want := []string{`session.login done by "x": with a code`, `session.code refused by "": the code was used before`,
		`session.password done by "x": `}
	if strings.Join(got[:3], "\n") != strings.Join(want, "\n") {
		t.Errorf("the audit log has\n%s\nwant\n%s", strings.Join(got[:3], "\n"), strings.Join(want, "\n"))
	}
}

// A code of the step before, of now and of the next step is right, and none after it was used.
func TestSecondFactorCodesOfOneStepAround(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	ctx := t.Context()
	secret, _ := w.enrol(w.person("x", nil), userPassword)

	// Far from the code that confirmed, which was used.
	w.clock.pass(10 * step)
	p := w.pending("x", Meta{})

	addresses := 0
	wrong := func(what string, later time.Duration) {
		addresses++ // so that no limit is reached
		_, err := w.LoginCode(ctx, p, w.codeAt(secret, later), Meta{Address: fmt.Sprintf("198.51.100.%d:1", addresses)})
		wantErr(t, fmt.Sprintf("the code of %s %s", later, what), err, ErrCredentials)
	}

	// Two steps away is too far in both directions.
	wrong("at first", -2*step)
	wrong("at first", 2*step)

	// A code makes those of earlier steps void, so that one that was seen cannot be used
	// afterwards.
	for _, later := range []time.Duration{-step, 0, step} {
		must(w.LoginCode(ctx, w.pending("x", Meta{}), w.codeAt(secret, later), Meta{}))
		for _, again := range []time.Duration{-step, 0, step} {
			if again <= later {
				wrong(fmt.Sprint("after that of ", later), again)
			}
		}
	}
}

func TestSecondFactorAcceptsWhatPeopleType(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	secret, recovery := w.enrol(w.person("x", nil), userPassword)

	// Applications show codes in groups, and people copy recovery codes from paper.
	code := w.codeAt(secret, 0)
	must(w.LoginCode(t.Context(), w.pending("x", Meta{}), " "+code[:3]+" "+code[3:], Meta{}))
	_, err := w.LoginCode(t.Context(), w.pending("x", Meta{}),
		strings.ToUpper(strings.ReplaceAll(recovery[3], "-", " ")), Meta{})
	w.must(err)
	p := w.pending("x", Meta{})

	// Each is from an address of its own, so that no limit answers before the code is looked at.
	for i, wrong := range []string{"", "0", code + "0", secret, "x\x00", strings.Repeat("7", 100_000),
		strings.Repeat("x", 100_000), "' OR 1=1 --", "１２３４５６"} {
		_, err := w.LoginCode(t.Context(), p, wrong, Meta{Address: fmt.Sprintf("192.0.2.%d:1", i+10)})
		wantErr(t, fmt.Sprintf("%.20q", wrong), err, ErrCredentials)
	}
}

func TestRecoveryCodesWorkOnce(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		x := w.person("x", nil)
		secret, recovery := w.enrol(x, userPassword)

		s, err := w.LoginCode(ctx, w.pending("x", Meta{}), recovery[0], Meta{})
		if err != nil || !s.Recovered {
			t.Fatalf("%+v %v", s, err)
		}

		_, err = w.LoginCode(ctx, w.pending("x", Meta{}), recovery[0], Meta{})
		wantErr(t, "a recovery code again", err, ErrCredentials)

		if e := w.entries(AuditQuery{Object: "user:x", Action: "session.login"})[0]; e.Note !=
			"with a recovery code; 9 are left" {
			t.Errorf("the audit log says %q", e.Note)
		}

		// New codes need the password and a code, and make the old ones void.
		x = w.actor(s)
		_, err = w.RenewRecoveryCodes(ctx, x, "wrong", recovery[2])
		wantErr(t, "new codes with a wrong password", err, ErrCredentials)
		for _, code := range []string{"", "000000", recovery[0]} {
			_, err = w.RenewRecoveryCodes(ctx, x, userPassword, code)
			wantErr(t, fmt.Sprintf("new codes with the code %q", code), err, ErrCode)
		}
		if state, err := w.SecondFactor(ctx, x); err != nil || state.RecoveryCodes != 9 {
			t.Errorf("after refusals: %+v %v", state, err)
		}

		// A code of the device is as good as one of the recovery codes, and none is used twice.
		again := must(w.RenewRecoveryCodes(ctx, x, userPassword, w.codeAt(secret, 0)))
		_, err = w.LoginCode(ctx, w.pending("x", Meta{}), w.codeAt(secret, 0), Meta{Address: "192.0.2.7:1"})
		wantErr(t, "the code that renewed", err, ErrCredentials)
		fresh := must(w.RenewRecoveryCodes(ctx, x, userPassword, again[0]))
		_, err = w.LoginCode(ctx, w.pending("x", Meta{}), recovery[1], Meta{})
		wantErr(t, "an old code after new ones", err, ErrCredentials)

		must(w.LoginCode(ctx, w.pending("x", Meta{}), fresh[1], Meta{}))

		if state, err := w.SecondFactor(ctx, x); err != nil || state.RecoveryCodes != 9 {
			t.Errorf("%+v %v", state, err)
		}
	})
}

// Of many log-ins with one code exactly one succeeds, whether the code is of the device or a
// recovery code, and whether they are of one pending log-in or of several.
func TestOneCodeOpensOneSession(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		secret, recovery := w.enrol(w.person("x", nil), userPassword)
		services := []*Service{w.Service, w.another()}

		// The races are between transactions, so half of the tries go to another console.
		for round, row := range []struct {
			what   string
			codes  []string // of the tries in turn
			shared bool
		}{
			{"a code in several log-ins", []string{w.codeAt(secret, 0)}, false},
			{"a recovery code in several log-ins", recovery[:1], false},
			{"a code in one log-in", []string{w.codeAt(secret, step)}, true},
			{"a recovery code in one log-in", recovery[1:2], true},
			{"several recovery codes in one log-in", recovery[2:], true},
		} {
			const tries = 8
			shared := w.pending("x", Meta{})
			outcomes := make([]error, tries)

			var group sync.WaitGroup
			for i := range tries {
				p := shared
				if !row.shared {
					p = w.pending("x", Meta{})
				}
				group.Go(func() {
					_, outcomes[i] = services[i%2].LoginCode(ctx, p, row.codes[i%len(row.codes)],
						Meta{Address: fmt.Sprintf("192.0.%d.%d:1", round+2, i)})
				})
			}

			// The others learn that the code was used or that the log-in has ended, whichever
			// comes first.
			group.Wait()
			done := 0
			for _, err := range outcomes {
				if err == nil {
					done++
				} else if !errors.Is(err, ErrCredentials) && !errors.Is(err, ErrNotLoggedIn) {
					t.Errorf("%s: %v", row.what, err)
				}
			}

			equal(t, fmt.Sprintf("%s log-ins", row.what), done, 1)
		}

		// Three were used: one in each of the rounds with recovery codes.
		if n := w.count("recovery_codes"); n != 7 { // a log-in that fails uses none up
			t.Errorf("%d recovery codes are left, want 7", n)
		}
	})
}

func TestPendingLoginEnds(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		x := w.person("x", nil)
		secret, recovery := w.enrol(x, userPassword)

		// The recovery code would be right, so what is refused is the log-in.
		try := func(p, what string) {
			t.Helper()
			wantErr(t, what, errOf(w.LoginCode(ctx, p, recovery[9], Meta{})), ErrNotLoggedIn)
		}

		try("", "no log-in")
		try(secret, "a secret of something else")

		// Five minutes end it, to the microsecond.
		p := w.pending("x", Meta{})
		w.clock.pass(PendingLife)
		try(p, "a log-in after five minutes")

		last := w.pending("x", Meta{})
		w.clock.pass(PendingLife - time.Microsecond)
		must(w.LoginCode(ctx, last, recovery[0], Meta{}))

		// It ends with the user being disabled, and does not come back when they are enabled.
		p = w.pending("x", Meta{})
		w.must(w.DisableUser(ctx, w.admin, "x"))
		try(p, "a disabled user")
		w.must(w.EnableUser(ctx, w.admin, "x"))
		try(p, "a user who was disabled")

		w.must(w.db.Update(ctx, func(tx *store.Tx) error { // a log-in that overtook a new password
			u := must(tx.User("x"))
			late := w.clock.now().Add(PendingLife).UnixMicro()
			return tx.InsertPendingLogin(store.PendingLogin{Hash: auth.Digest("late"), User: "x",
				PasswordAt: u.PasswordAt - 1, ExpiresAt: late})
		}))
		try("late", "a log-in with the password before")

		// A new password ends it, as it was begun with the old one.
		p = w.pending("x", Meta{})
		oneTime := must(w.ResetPassword(ctx, w.admin, "x"))
		try(p, "an old password")

		s, err := w.Login(ctx, "x", oneTime, Meta{})
		if err != nil || s.Pending == "" {
			t.Errorf("a one-time password replaces the second factor: %+v %v", s, err)
		}

		w.must(w.RemoveSecondFactor(ctx, w.admin, "x"))
		try(s.Pending, "a factor that was removed")

		equal(t, "pending log-ins stay", w.count("pending_logins"), 0)
	})
}

// count returns the number of rows of a table.
func (w *world) count(table string) (n int) {
	w.t.Helper()
	db := raw(w.t, w.url)
	defer db.Close()
	w.must(db.QueryRowContext(w.t.Context(), "SELECT COUNT(*) FROM "+table).Scan(&n))
	return n
}

// Wrong codes have the limits of wrong passwords, and together a limit that the right user
// passes with a known browser or a recovery code.
func TestWrongCodesAreLimited(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	ctx := t.Context()
	secret, recovery := w.enrol(w.person("x", nil), userPassword)

	// The browser in which the user has logged in with a code is known.
	known := must(w.LoginCode(ctx, w.pending("x", Meta{}), w.codeAt(secret, 0), Meta{}))
	w.clock.pass(step)

	p := w.pending("x", Meta{})
	try := func(code, address, device string) error {
		_, err := w.LoginCode(ctx, p, code, Meta{Address: address, Device: device})
		return err
	}

	// Five from one address in five minutes.
	var limited *LimitedError
	for i := range 5 {
		wantErr(t, fmt.Sprint("wrong code ", i), try("000000", "192.0.2.9:1", ""), ErrCredentials)
	}
	if err := try(w.codeAt(secret, 0), "192.0.2.9:2", ""); !errors.As(err, &limited) ||
		limited.RetryAfter != time.Minute {
		t.Errorf("the sixth code from an address: %v %+v", err, limited)
	}

	// And twenty in an hour from all addresses together, also if each of them tries once.
	for i := range 15 {
		wantErr(t, fmt.Sprint("wrong code elsewhere ", i), try("000000", fmt.Sprintf("198.51.100.%d:1", i), ""),
			ErrCredentials)
	}
	if err := try(w.codeAt(secret, 0), "203.0.113.1:1", ""); !errors.As(err, &limited) ||
		limited.RetryAfter != 3*time.Minute {
		t.Errorf("the 21st code: %v %+v", err, limited)
	}

	// A recovery code cannot be guessed and a known browser has its own limit: a flood of others
	// does not lock the user out.
	w.must(try(recovery[0], "203.0.113.1:1", ""))

	p = w.pending("x", Meta{})
	w.must(try(w.codeAt(secret, 0), "203.0.113.1:1", known.Device))

	if e := w.entries(AuditQuery{Object: "user:x", Action: "session.code"})[0]; e.Note != tooMany {
		t.Errorf("the audit log says %q", e.Note)
	}

	w.person("y", nil) // whose limit is another
	w.enrol(w.actor(must(w.Login(ctx, "y", userPassword, Meta{}))), userPassword)
	_, err := w.LoginCode(ctx, w.pending("y", Meta{}), "000000", Meta{Address: "203.0.113.2:1"})
	wantErr(t, "a wrong code of another user", err, ErrCredentials)
}

// Codes that are guessed with a session and the password count with those at the log-in, wherever
// they are asked for: otherwise each address had five guesses in five minutes, without an end.
func TestWrongCodesOfASessionAreLimited(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	ctx := t.Context()
	x := w.person("x", nil)
	secret, recovery := w.enrol(x, userPassword)

	at := func(i int) Actor {
		from := x
		from.meta.Address = fmt.Sprintf("198.51.100.%d:1", i)
		return from
	}
	guess := []func(i int) error{
		func(i int) error { return w.DisableSecondFactor(ctx, at(i), userPassword, "000000") },
		func(i int) error { return errOf(w.RenewRecoveryCodes(ctx, at(i), userPassword, "000000")) },
		func(i int) error {
			return errOf(w.LoginCode(ctx, w.pending("x", Meta{}), "000000", at(i).meta))
		},
	}

	// Twenty in an hour are checked, of each kind in turn.
	checked, limited := 0, new(LimitedError)
	for i := range 60 {
		switch err := guess[i%len(guess)](i); {
		case errors.Is(err, ErrCredentials):
			checked++
		case !errors.As(err, &limited):
			t.Errorf("guess %d: %v", i, err)
		}
	}
	equal(t, "wrong codes were checked", checked, 20)

	// Also the right one has to wait then, and a wrong password and a recovery code do not.
	if err := w.DisableSecondFactor(ctx, at(70), userPassword, w.codeAt(secret, 0)); !errors.As(err, &limited) ||
		limited.RetryAfter != 3*time.Minute {
		t.Errorf("the right code after twenty wrong ones: %v", err)
	}
	wantErr(t, "a wrong password", w.DisableSecondFactor(ctx, at(71), "wrong", "000000"), ErrCredentials)
	w.must(w.DisableSecondFactor(ctx, at(72), userPassword, recovery[0]))
}

// A browser in which the user logged in before there was a second factor has no limit of its own
// for codes: there the password alone may have been enough for another person.
func TestSecondFactorForgetsBrowsersBefore(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.person("x", nil)

		// One browser is known by a password alone, and another is the one in which the factor is
		// set up.
		before := must(w.Login(ctx, "x", userPassword, Meta{Address: "192.0.2.9:1"})).Device

		session := must(w.Login(ctx, "x", userPassword, Meta{}))
		x := must(w.Authenticate(ctx, session.Token, Meta{Device: session.Device}))

		secret, _ := w.enrol(x, userPassword)
		if n := w.count("devices"); n != 2 { // that of the administrator and that of the session
			t.Errorf("%d browsers are known", n)
		}

		// The limit of all addresses lets 20 of 25 wrong codes through: the browser from before
		// gives no more.
		p := w.pending("x", Meta{})

		refused := 0
		for i := range 25 {
			_, err := w.LoginCode(ctx, p, "000000", Meta{Address: fmt.Sprintf("198.51.100.%d:1", i), Device: before})
			if limited := new(LimitedError); errors.As(err, &limited) {
				refused++
			}
		}

		equal(t, "wrong codes in the browser before that were refused", refused, 5)

		// The browser of the set-up is still known, and its limit is its own.
		must(w.LoginCode(ctx, p, w.codeAt(secret, 0), Meta{Device: session.Device}))
	})
}

func TestSecondFactorNeedsThePassword(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		x := w.person("x", nil)

		wantErr(t, "to begin with a wrong password", errOf(w.BeginSecondFactor(ctx, x, "wrong")), ErrCredentials)
		wantErr(t, "to turn off what is not on", w.DisableSecondFactor(ctx, x, userPassword, "000000"), ErrNotFound)
		_, err := w.RenewRecoveryCodes(ctx, x, userPassword, "000000")
		wantErr(t, "recovery codes without a factor", err, ErrNotFound)

		secret, recovery := w.enrol(x, userPassword)
		wantFault(t, "a second one", errOf(w.BeginSecondFactor(ctx, x, userPassword)), "")
		err = w.DisableSecondFactor(ctx, x, "wrong", recovery[0])
		wantErr(t, "to turn it off with a wrong password", err, ErrCredentials)

		// Nothing of it is left: neither the question for a code nor recovery codes for the next
		// one.
		err = w.DisableSecondFactor(ctx, x, userPassword, "000000")
		wantErr(t, "to turn it off with a wrong code", err, ErrCode)
		err = w.DisableSecondFactor(ctx, x, userPassword, w.codeAt(secret, -step))
		wantErr(t, "to turn it off with a code that was used", err, ErrCode)
		rows := w.entries(AuditQuery{Action: "second-factor.disable"})
		if len(rows) != 3 || rows[0].Note != "the code is wrong" || rows[2].Note != "the password is wrong" {
			t.Errorf("the audit log has %+v", rows)
		}
		w.must(w.DisableSecondFactor(ctx, x, userPassword, w.codeAt(secret, 0)))
		if s, err := w.Login(ctx, "x", userPassword, Meta{}); err != nil || s.Token == "" {
			t.Errorf("after it was turned off: %+v %v", s, err)
		}
		if n := w.count("recovery_codes"); n != 0 {
			t.Errorf("%d recovery codes stay", n)
		}

		// An open session is no way to guess the password: these attempts are limited, too.
		for i := range 3 { // the first four were before
			if _, err := w.BeginSecondFactor(ctx, x, "wrong"); i < 1 {
				wantErr(t, "a wrong password", err, ErrCredentials)
			} else if limited := new(LimitedError); !errors.As(err, &limited) {
				t.Errorf("the password may be tried for ever: %v", err)
			}
		}
	})
}

// A set-up belongs to its session and ends after half an hour.
func TestSecondFactorSetupIsOfOneSession(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	ctx := t.Context()
	x := w.person("x", nil)
	other := w.actor(must(w.Login(ctx, "x", userPassword, Meta{})))

	// A second beginning replaces the first secret.
	first := must(w.BeginSecondFactor(ctx, x, userPassword))
	second := must(w.BeginSecondFactor(ctx, x, userPassword))

	if got, err := w.SecondFactorSetup(ctx, x); err != nil || got != second || got == first {
		t.Errorf("the set-up is %+v %v, want %+v", got, err, second)
	}

	// Another session of the user neither sees the secret nor confirms it.
	wantErr(t, "the set-up of another session", errOf(w.SecondFactorSetup(ctx, other)), ErrNotFound)
	_, err := w.ConfirmSecondFactor(ctx, other, w.codeAt(second.Secret, 0))
	wantErr(t, "to confirm in another session", err, ErrNotFound)

	_, err = w.ConfirmSecondFactor(ctx, x, w.codeAt(first.Secret, 0))
	wantErr(t, "to confirm the first secret", err, ErrCredentials)

	w.clock.pass(setupLife)
	_, err = w.ConfirmSecondFactor(ctx, x, w.codeAt(second.Secret, 0))
	wantErr(t, "to confirm after half an hour", err, ErrNotFound)
}

func TestAdministratorRemovesSecondFactorOfAnother(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		x := w.person("x", nil)
		w.enrol(x, userPassword)

		if u, err := w.User(ctx, w.admin, "x"); err != nil || !u.SecondFactor {
			t.Errorf("%+v %v", u, err)
		}

		// One's own is turned off with the password, not with the rights of an administrator.
		wantFault(t, "one's own", w.RemoveSecondFactor(ctx, w.admin, FirstUser), "name")
		wantErr(t, "nobody's", w.RemoveSecondFactor(ctx, w.admin, "nobody"), ErrNotFound)

		w.must(w.RemoveSecondFactor(ctx, w.admin, "x"))
		w.must(w.RemoveSecondFactor(ctx, w.admin, "x")) // which changes nothing

		if rows := w.entries(AuditQuery{Action: "user.remove-second-factor", Outcome: Done}); len(rows) != 1 ||
			rows[0].Object != "user:x" || rows[0].Actor != FirstUser {
			t.Errorf("the audit log has %+v", rows)
		}

		// Their sessions end, so that they log in as their account is now.
		equal(t, "sessions stay", w.countSessions("x"), 0)

		list := must(w.Users(ctx, w.admin))
		for _, u := range list {
			if u.SecondFactor {
				t.Errorf("%s has a second factor", u.Name)
			}
		}
	})
}

func (w *world) countSessions(user string) (n int) {
	w.t.Helper()
	w.must(w.db.View(w.t.Context(), func(t *store.Tx) error {
		list, err := t.SessionsOf(user)
		n = len(list)
		return err
	}))
	return n
}

func TestRecoverClearsTheSecondFactor(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		w.enrol(w.admin, adminPassword)
		s := must(w.Login(t.Context(), FirstUser, adminPassword, Meta{}))

		// Who recovers an account may have lost the device: the new password is enough, and what
		// waits for a code ends.
		password := must(w.Recover(t.Context(), FirstUser))
		_, err := w.LoginCode(t.Context(), s.Pending, "000000", Meta{})
		wantErr(t, "a log-in that waited", err, ErrNotLoggedIn)

		if s, err = w.Login(t.Context(), FirstUser, password, Meta{}); err != nil || s.Token == "" {
			t.Errorf("%+v %v", s, err)
		}
	})
}

// If the settings require a second factor, those without one can do nothing else; tokens and
// those whom others sign in can.
func TestSecondFactorRequired(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		x := w.person("x", map[string]Role{"a": Owner})

		// Those who do not log in with a password: a token, and later a provider and a proxy.
		token := w.token(x, Write)

		who := oidc.Identity{Issuer: "https://idp.example", Subject: "1", User: "x"}
		provided := must(w.LoginByProvider(ctx, who, x, Meta{}))

		may := func(a Actor) error {
			_, err := w.Policies(ctx, a, Query{})
			return err
		}

		// An administrator who has none would lock themselves out.
		for _, r := range []Requirement{ForAdministrators, ForEveryone} {
			err := w.SaveSettings(ctx, w.admin,
				Settings{SessionIdle: time.Hour, SessionLife: 11 * time.Hour, SecondFactor: r})
			wantFault(t, "an administrator without one requires it", err, "second_factor")
		}

		w.must(may(w.admin))

		// The same administrator behind a proxy may require it.
		boss := must(w.AuthenticateByProxy(ctx, FirstUser, Meta{}))

		for _, row := range []struct {
			requirement Requirement
			admin, x    error
		}{
			{ForNobody, nil, nil}, {ForAdministrators, ErrSecondFactor, nil},
			{ForEveryone, ErrSecondFactor, ErrSecondFactor},
		} {
			w.must(w.SaveSettings(ctx, boss, Settings{SessionIdle: time.Hour, SessionLife: 11 * time.Hour,
				SecondFactor: row.requirement}))
			wantErr(t, string(row.requirement)+": the administrator", may(w.admin), row.admin)
			wantErr(t, string(row.requirement)+": x", may(x), row.x)

			w.must(may(token))
			w.must(may(w.actor(provided)))
			proxied := must(w.AuthenticateByProxy(ctx, "x", Meta{}))
			w.must(may(proxied))
		}

		// What is left to x is to set it up: a token that is made first would be a way around it.
		access, err := w.Access(ctx, x)
		if err != nil || !access.MustSetUpSecondFactor {
			t.Errorf("%+v %v", access, err)
		}

		wantErr(t, "a token of x", errOf(w.createdToken(x)), ErrSecondFactor)
		s := must(w.ChangePassword(ctx, x, userPassword, adminPassword))

		x = w.actor(s)
		_, recovery := w.enrol(x, adminPassword)
		w.must(may(x))

		w.must(w.DisableSecondFactor(ctx, x, adminPassword, recovery[0]))
		wantErr(t, "x after it was turned off", may(x), ErrSecondFactor)

		w.enrol(w.admin, adminPassword)
		w.must(may(w.admin))
	})
}

func (w *world) createdToken(a Actor) (Token, error) {
	t, _, err := w.CreateToken(w.t.Context(), a, TokenDraft{Label: "x", Scope: Read, Life: time.Hour})
	return t, err
}

// The provider is responsible for a second factor of those whom it signs in.
func TestProviderIsResponsibleForTheSecondFactor(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	ctx := t.Context()
	x := w.person("x", nil)
	w.enrol(x, userPassword)

	// x has one here, and is not asked for it.
	s, err := w.LoginByProvider(ctx, oidc.Identity{Issuer: "https://idp.example", Subject: "1", User: "x"}, x, Meta{})
	if err != nil || s.Token == "" || s.Pending != "" {
		t.Fatalf("%+v %v", s, err)
	}

	// The session of a provider has no password with which to turn it off.
	a := w.actor(s)
	wantErr(t, "to turn it off", w.DisableSecondFactor(ctx, a, userPassword, "000000"), ErrDenied)
	if state, err := w.SecondFactor(ctx, a); err != nil || !state.Elsewhere {
		t.Errorf("%+v %v", state, err)
	}

	if row := w.entries(AuditQuery{Action: "second-factor.disable"})[0]; row.Via != viaOIDC {
		t.Errorf("the audit log says it was via %q", row.Via)
	}

	w.must(w.Logout(ctx, a))
	equal(t, "notes of sessions stay", w.count("provider_sessions"), 0)
}

func TestRecoveryCodesAreStoredAsDigests(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	x := w.person("x", nil)
	_, recovery := w.enrol(x, userPassword)
	seen := map[string]bool{}

	// With its dashes a recovery code has 19 characters, and none looks like a code of the device.
	for _, code := range recovery {
		if len(code) != 19 || seen[code] || auth.IsCode(code) {
			t.Errorf("a recovery code is %q", code)
		}
		seen[code] = true

		db := raw(t, w.url)
		var n int
		w.must(db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM recovery_codes WHERE hash = ?",
			auth.RecoveryDigest(code)).Scan(&n))

		equal(t, fmt.Sprintf("rows with the digest of %q", code), n, 1)
		db.Close()
	}
}

// Who has known a password may have made a person at the provider the user. A new password ends
// that, and the person of the user becomes it again as at first.
func TestNewPasswordEndsThePersonAtTheProvider(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		x := w.person("x", nil)
		thief := oidc.Identity{Issuer: "https://idp.example", Subject: "thief", User: "x"}
		must(w.LoginByProvider(ctx, thief, x, Meta{}))
		must(w.LoginByProvider(ctx, thief, Actor{}, Meta{}))

		x = w.actor(must(w.Login(ctx, "x", userPassword, Meta{})))
		x = w.actor(must(w.ChangePassword(ctx, x, userPassword, adminPassword)))
		_, err := w.LoginByProvider(ctx, thief, Actor{}, Meta{})
		wantErr(t, "the person with a new password", err, ErrOwnPassword)

		own := oidc.Identity{Issuer: "https://idp.example", Subject: "x", User: "x"}
		must(w.LoginByProvider(ctx, own, x, Meta{}))
		must(w.LoginByProvider(ctx, own, Actor{}, Meta{}))
	})
}
