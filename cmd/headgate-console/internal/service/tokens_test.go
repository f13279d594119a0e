package service

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestTokenScope(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.create(sample("pa", "a"))
		w.create(sample("pb", "b"))

		x := w.person("x", map[string]Role{"a": Owner, "b": Owner})
		onlyA := w.token(x, Write, "a")

		// The token of one application does not see the other, though its user owns both.
		w.must(w.DeletePolicy(ctx, onlyA, "pa", 1))
		wantErr(t, "another application", w.DeletePolicy(ctx, onlyA, "pb", 1), ErrNotFound)
		wantErr(t, "a token to read with", w.DeletePolicy(ctx, w.token(x, Read), "pb", 1), ErrDenied)

		if rows := w.entries(AuditQuery{Object: "policy:pa", Action: "policy.delete"}); len(rows) != 1 ||
			rows[0].Via != onlyA.via || rows[0].Actor != "x" {
			t.Errorf("%+v", rows)
		}

		// A token can do no more than its user can now.
		w.must(w.SetRole(ctx, w.admin, "x", "b", Viewer))
		wantErr(t, "a token of a user who has lost the role", w.DeletePolicy(ctx, w.token(x, Write), "pb", 1),
			ErrDenied)

		admins := w.token(w.admin, Write, "a")
		wantErr(t, "an administrator's token for another application", w.DeletePolicy(ctx, admins, "pb", 1),
			ErrNotFound)
	})
}

func TestTokensEnd(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		x, y := w.person("x", map[string]Role{"a": Viewer}), w.person("y", nil)

		alive := func(secret string) bool {
			_, err := w.AuthenticateToken(ctx, secret, Meta{})
			if err != nil && !errors.Is(err, ErrNotLoggedIn) {
				t.Error(err)
			}
			return err == nil
		}

		old, oldSecret, err := w.CreateToken(ctx, x, TokenDraft{Label: "old", Scope: Read, Life: time.Hour})
		w.must(err)
		revoked, revokedSecret, err := w.CreateToken(ctx, x,
			TokenDraft{Label: "revoked", Scope: Write, Apps: []string{"a"}, Life: MaxTokenLife})
		w.must(err)

		// Good to the last microsecond, and neither an altered secret nor the name of a token is
		// one.
		w.clock.pass(time.Hour - time.Microsecond)
		if !alive(oldSecret) || !alive(revokedSecret) || alive(oldSecret+"x") || alive(old.ID) || alive("") {
			t.Error("the tokens are not good")
		}

		w.clock.pass(time.Microsecond)
		if alive(oldSecret) {
			t.Error("a token outlived its hour")
		}

		wantErr(t, "another user's token", w.RevokeToken(ctx, y, revoked.ID), ErrNotFound)
		w.must(w.RevokeToken(ctx, x, revoked.ID))
		wantErr(t, "a second time", w.RevokeToken(ctx, x, revoked.ID), ErrNotFound)

		if alive(revokedSecret) {
			t.Error("a token outlived its end")
		}

		list, err := w.Tokens(ctx, x)
		if err != nil || len(list) != 2 ||
			!list[0].RevokedAt.Equal(w.clock.now()) && !list[1].RevokedAt.Equal(w.clock.now()) {
			t.Errorf("%+v %v", list, err)
		}

		for field, draft := range map[string]TokenDraft{
			"label": {Scope: Read, Life: 1}, "scope": {Label: "x", Scope: "all", Life: 1},
			"life": {Label: "x", Scope: Read, Life: MaxTokenLife + 1},
			"apps": {Label: "x", Scope: Read, Life: 1, Apps: []string{"b"}},
		} {
			_, _, err := w.CreateToken(ctx, x, draft)
			wantFault(t, field, err, field)
		}
	})
}

func TestTokensAreBounded(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	for range maxTokens {
		w.token(w.admin, Read)
	}
	_, _, err := w.CreateToken(t.Context(), w.admin, TokenDraft{Label: "x", Scope: Read, Life: time.Hour})
	wantFault(t, "one token too many", err, "")
}

func TestSettingsApplyToExistingSessions(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		want := Settings{SessionIdle: 10 * time.Minute, SessionLife: 20 * time.Minute}
		w.must(w.SaveSettings(ctx, w.admin, want))

		want.SecondFactor, want.TokenLife = ForNobody, MaxTokenLife // which were kept
		if got, err := w.Settings(ctx, w.admin); err != nil || got != want {
			t.Errorf("%+v %v", got, err)
		}

		s := must(w.Login(ctx, FirstUser, adminPassword, Meta{}))
		w.clock.pass(10 * time.Minute)
		wantErr(t, "an idle session", errOf(w.Authenticate(ctx, s.Token, Meta{})), ErrNotLoggedIn)

		err := w.SaveSettings(ctx, w.admin, Settings{SessionIdle: time.Second, SessionLife: 1000 * time.Hour})
		wantFault(t, "too short", err, "session_idle")
		wantFault(t, "too long", err, "session_life")
	})
}

// A token that has expired says so, unless it would not be right anyway.
func TestTokenThatExpiredSaysSo(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	ctx := t.Context()
	x := w.person("x", nil)

	try := func(secret string) error {
		_, err := w.AuthenticateToken(ctx, secret, Meta{})
		return err
	}

	end := w.clock.now().Add(36 * time.Hour)
	token, secret, err := w.CreateToken(ctx, x, TokenDraft{Label: "x", Scope: Read, Expires: end})
	w.must(err)
	if !token.Expires.Equal(end) {
		t.Errorf("it ends at %s, want %s", token.Expires, end)
	}

	w.clock.pass(36*time.Hour - time.Microsecond)
	w.must(try(secret))

	// Its holder learns why it is refused. To all others it is a token like any that is wrong.
	w.clock.pass(time.Microsecond)
	wantErr(t, "an expired token", try(secret), ErrTokenExpired)
	wantErr(t, "an expired token", try(secret), ErrNotLoggedIn)

	for what, err := range map[string]error{"another secret": try(secret + "x"), "none": try("")} {
		if !errors.Is(err, ErrNotLoggedIn) || errors.Is(err, ErrTokenExpired) {
			t.Errorf("%s: %v", what, err)
		}
	}

	w.must(w.DisableUser(ctx, w.actor(must(w.Login(ctx, FirstUser, adminPassword, Meta{}))), "x"))
	if err := try(secret); errors.Is(err, ErrTokenExpired) {
		t.Errorf("a token of a disabled user: %v", err)
	}
}

// The settings bound the life of new tokens.
func TestTokenLifeOfTheSettings(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		const day = 24 * time.Hour

		create := func(draft TokenDraft) error {
			draft.Label, draft.Scope = "x", Read
			return errOf(w.createdOf(draft))
		}

		// Before the settings say otherwise the bound is that of the program.
		now := w.clock.now()
		w.must(create(TokenDraft{Expires: now.Add(MaxTokenLife)}))

		w.must(w.SaveSettings(ctx, w.admin, Settings{SessionIdle: time.Hour, SessionLife: time.Hour,
			TokenLife: 30 * day}))
		w.must(create(TokenDraft{Life: 30 * day}))
		w.must(create(TokenDraft{Expires: now.Add(30 * day)}))

		for _, draft := range []TokenDraft{
			{Life: 30*day + 1}, {Life: -1}, {}, {Expires: now}, {Expires: now.Add(-time.Hour)},
			{Expires: now.Add(30*day + 1)},
			{Expires: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}, {Expires: time.Unix(0, 0)},
		} {
			wantFault(t, draft.Expires.String(), create(draft), "life")
		}

		for _, life := range []time.Duration{day - 1, MaxTokenLife + 1, -1} {
			err := w.SaveSettings(ctx, w.admin,
				Settings{SessionIdle: time.Hour, SessionLife: time.Hour, TokenLife: life})
			wantFault(t, life.String(), err, "token_life")
		}

		wantFault(t, "another requirement", w.SaveSettings(ctx, w.admin,
			Settings{SessionIdle: time.Hour, SessionLife: time.Hour, SecondFactor: "x"}), "second_factor")
	})
}

func (w *world) createdOf(draft TokenDraft) (Token, error) {
	t, _, err := w.CreateToken(w.t.Context(), w.admin, draft)
	return t, err
}

func TestNewPasswordEndsTokens(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		x, y := w.person("x", map[string]Role{"a": Owner}), w.person("y", nil)

		// make gives a user a token, and alive reports whether one works.
		make := func(a Actor, life time.Duration) (id, secret string) {
			token, secret, err := w.CreateToken(ctx, a, TokenDraft{Label: "job", Scope: Write, Life: life})
			w.must(err)
			return token.ID, secret
		}
		alive := func(secret string) bool {
			_, err := w.AuthenticateToken(ctx, secret, Meta{})
			return err == nil
		}
		revoked := func(id string) []Entry {
			return w.entries(AuditQuery{Object: "token:" + id, Action: "token.revoke"})
		}

		_, others := make(y, time.Hour)
		expired, _ := make(x, time.Minute)
		first, secret := make(x, time.Hour)
		w.clock.pass(time.Minute)

		// A user who changes the password may keep the tokens, or end them.
		session := must(w.ChangePassword(ctx, x, userPassword, "seven green canals"))
		if !alive(secret) {
			t.Error("the token ended though it was to go on")
		}
		session = must(w.ChangePasswordAndEndTokens(ctx, w.actor(session), "seven green canals", userPassword))
		if list := revoked(first); alive(secret) || len(list) != 1 || list[0].Actor != "x" ||
			!strings.Contains(list[0].Before, `"job"`) {
			t.Errorf("after the change of the password: alive %v, audited %+v", alive(secret), list)
		}

		// Nothing is said again of a token that has ended by itself.
		if list := revoked(expired); len(list) > 0 {
			t.Errorf("an expired token: %+v", list)
		}

		// A new password by an administrator ends them in any case, and those of no other user.
		second, secret := make(w.actor(session), time.Hour)
		must(w.ResetPassword(ctx, w.admin, "x"))
		if list := revoked(second); alive(secret) || len(list) != 1 || list[0].Actor != FirstUser {
			t.Errorf("after the reset: alive %v, audited %+v", alive(secret), list)
		}
		if !alive(others) {
			t.Error("the token of another user ended")
		}
	})
}

func TestAdministratorEndsTokensOfOthers(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		x := w.person("x", nil)
		for range 2 {
			_, _, err := w.CreateToken(ctx, x, TokenDraft{Label: "job", Scope: Read, Life: time.Hour})
			w.must(err)
		}

		list, err := w.TokensOf(ctx, w.admin, "x")
		if err != nil || len(list) != 2 || list[0].Label != "job" {
			t.Fatalf("%+v %v", list, err)
		}
		w.must(w.RevokeToken(ctx, w.admin, list[0].ID))
		w.must(w.EndTokens(ctx, w.admin, "x"))
		w.must(w.EndTokens(ctx, w.admin, "x")) // there are none any more

		list, err = w.TokensOf(ctx, w.admin, "x")
		if err != nil || len(list) != 2 || list[0].RevokedAt.IsZero() || list[1].RevokedAt.IsZero() {
			t.Errorf("%+v %v", list, err)
		}
		if n := len(w.entries(AuditQuery{Action: "token.revoke"})); n != 2 {
			t.Errorf("the audit log has %d tokens that were revoked, want 2", n)
		}
		if n := len(w.entries(AuditQuery{Action: "user.end-tokens", Object: "user:x"})); n != 1 {
			t.Errorf("the audit log has %d rows of the whole, want 1", n)
		}

		wantErr(t, "the tokens of nobody", errOf(w.TokensOf(ctx, w.admin, "nobody")), ErrNotFound)
		wantErr(t, "an end of nobody's tokens", w.EndTokens(ctx, w.admin, "nobody"), ErrNotFound)
	})
}
