package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/internal/textform"
)

// Scope restricts a token to some of its user's permissions.
type Scope string

// The scopes.
const (
	Read  Scope = "read"
	Write Scope = "write" // includes Read

	// Backups is for [Service.BackupByToken] alone.
	Backups Scope = "backup"
)

// MaxTokenLife is the longest life of a token that the settings may permit.
const MaxTokenLife = 366 * 24 * time.Hour

// maxTokens is the largest number of tokens of a user that have not ended.
const maxTokens = 100

// TokenDraft describes a token to create.
type TokenDraft struct {
	Label string // for people
	Scope Scope
	Apps  []string      // empty means all in which the user has a role
	Life  time.Duration // at most that of the settings

	// Expires, unless it is zero, is when the token ends, instead of Life.
	Expires time.Time

	// Password and Code are the actor's own, and those of the second factor if there is one. Only
	// the scope Backups takes them.
	Password, Code string
}

// Token is an API token without its secret. It has the current permissions of its
// user, within its scope and applications, and may not manage users, applications
// or tokens.
type Token struct {
	ID        string
	Label     string
	Scope     Scope
	Apps      []string // empty means all
	CreatedAt time.Time
	Expires   time.Time
	UsedAt    time.Time // to the minute; zero means never
	RevokedAt time.Time // zero means never
}

// tokenScope is the restriction of an actor with a token.
type tokenScope struct {
	readOnly bool
	backups  bool     // for backups alone
	apps     []string // nil means all
}

func tokenObject(id string) string { return "token:" + id }

// CreateToken creates a token for the actor, and returns its secret, which is not
// stored. It requires a log-in, and for the scope Backups what [Service.Backup] requires, with its
// errors.
func (s *Service) CreateToken(ctx context.Context, a Actor, draft TokenDraft) (t Token, secret string, err error) {
	// The secret and the id are made here, because the transaction may run again.
	secret = auth.TokenPrefix + auth.NewSecret()
	id := auth.NewID()

	create := func(d *action) error {
		if err := d.checkDraft(&draft); err != nil {
			return err
		}

		life := draft.life(d.now)
		row := store.Token{
			ID: id, Hash: auth.Digest(secret), User: a.user, Label: draft.Label, Scope: string(draft.Scope),
			Apps: text(draft.Apps), CreatedAt: d.now, ExpiresAt: d.now + life.Microseconds(),
		}

		if err := d.InsertToken(row); err != nil {
			return err
		}

		t = tokenOf(row)
		return d.done("", tokenText(t))
	}

	// A session alone is not enough for a backup, nor for a token that downloads one.
	const verb = "token.create"
	if draft.Scope == Backups {
		own := proof{draft.Password, draft.Code}
		err = s.withProof(ctx, a, verb, tokenObject(id), own, (*action).mayBackUp, create)
	} else {
		err = s.act(ctx, a, store.CounterUsers, verb, tokenObject(id), func(d *action) error {
			if err := d.person(); err != nil {
				return err
			}
			return create(d)
		})
	}
	if err != nil {
		return Token{}, "", err
	}
	return t, secret, nil
}

// life returns the life of a token that is made now.
func (t *TokenDraft) life(now int64) time.Duration {
	if t.Expires.IsZero() {
		return t.Life
	}
	return t.Expires.Sub(instant(now))
}

// checkScope adds the mistakes of the scope.
func (t *TokenDraft) checkScope(f *faults) {
	if !slices.Contains([]Scope{Read, Write, Backups}, t.Scope) {
		f.add("scope", errors.New("it is not read, write or backup"))
	}
	if t.Scope == Backups && len(t.Apps) > 0 {
		f.add("apps", errors.New("a backup has all applications"))
	}
}

func (a *action) checkDraft(draft *TokenDraft) error {
	settings, err := settingsOf(a.Tx)
	if err != nil {
		return err
	}

	var f faults
	if draft.Label == "" {
		f.add("label", errors.New("it is empty"))
	}
	f.add("label", textform.Check(draft.Label, MaxLabel))

	draft.checkScope(&f)

	if life := draft.life(a.now); life <= 0 || life > settings.TokenLife {
		f.add("life", fmt.Errorf("it is not above 0 and at most %d days", settings.TokenLife/minTokenLife))
	}

	for _, app := range draft.Apps {
		if _, err := a.app(app); err != nil && !errors.Is(err, ErrNotFound) {
			return err
		} else if err != nil || a.access.Role(app) == NoRole {
			f.add("apps", fmt.Errorf("%q is not an application of yours", clip(app, MaxUserName)))
		}
	}

	// Tokens that have ended stay in the table, and do not count.
	rows, err := a.TokensOf(a.actor.user)
	if err != nil {
		return err
	}
	alive := slices.DeleteFunc(rows, func(r store.Token) bool { return tokenEnded(r, a.now) })
	if len(alive) >= maxTokens {
		f.add("", fmt.Errorf("there are %d tokens already: revoke some", len(alive)))
	}

	return f.err()
}

// Tokens returns the actor's own tokens, the newest first, including those that
// have ended.
func (s *Service) Tokens(ctx context.Context, a Actor) ([]Token, error) {
	return s.tokens(ctx, a, a.user, (*action).person)
}

// TokensOf returns the tokens of a user, the newest first, including those that have ended. It
// requires an administrator.
func (s *Service) TokensOf(ctx context.Context, a Actor, name string) ([]Token, error) {
	return s.tokens(ctx, a, name, (*action).manage)
}

// tokens returns the tokens of a user to an actor who may see them.
func (s *Service) tokens(ctx context.Context, a Actor, user string, may func(*action) error) ([]Token, error) {
	return answer(ctx, s, a, "token.list", userObject(user), func(d *action) ([]Token, error) {
		if err := may(d); err != nil {
			return nil, err
		}
		if _, err := d.user(user); err != nil {
			return nil, err
		}

		rows, err := d.TokensOf(user)
		list := make([]Token, len(rows))
		for i, r := range rows {
			list[i] = tokenOf(r)
		}
		return list, err
	})
}

// EndTokens ends all tokens of a user at once. It requires an administrator.
func (s *Service) EndTokens(ctx context.Context, a Actor, name string) error {
	return s.manage(ctx, a, "user.end-tokens", userObject(name), func(d *action) error {
		if _, err := d.user(name); err != nil {
			return err
		}
		n, err := d.endTokens(name)
		if err == nil && n == 0 {
			err = errUnchanged
		}
		if err != nil {
			return err
		}
		return d.done("", "")
	})
}

// endTokens ends all tokens of a user that have not ended, and returns their number. The audit log
// gets a row for each.
func (a *action) endTokens(user string) (n int, err error) {
	rows, err := a.TokensOf(user)
	if err != nil {
		return 0, err
	}

	for _, r := range rows {
		if tokenEnded(r, a.now) {
			continue
		}
		if err := a.Tx.RevokeToken(r.ID, a.now); err != nil {
			return n, err
		}

		row := a.actor.auditRow(a.now, "token.revoke", tokenObject(r.ID))
		row.Before = tokenText(tokenOf(r))
		if err := a.AddAudit(row); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// TokenLife returns the longest life of a new token.
func (s *Service) TokenLife(ctx context.Context, a Actor) (time.Duration, error) {
	return answer(ctx, s, a, "token.list", userObject(a.user), func(d *action) (time.Duration, error) {
		if err := d.person(); err != nil {
			return 0, err
		}
		settings, err := settingsOf(d.Tx)
		return settings.TokenLife, err
	})
}

// RevokeToken ends one of the actor's own tokens at once. An administrator may end
// any token. For a token that was revoked already it returns ErrNotFound.
func (s *Service) RevokeToken(ctx context.Context, a Actor, id string) error {
	return s.act(ctx, a, store.CounterUsers, "token.revoke", tokenObject(id), func(d *action) error {
		if err := d.person(); err != nil {
			return err
		}

		// An id of other characters cannot exist, and is not looked up.
		if strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") != "" {
			return ErrNotFound
		}

		row, err := d.Token(id)
		if err != nil {
			return err
		}

		// The tokens of others do not exist for the actor.
		if row.User != a.user && !d.access.CanManage() {
			return d.hide()
		}

		if err := d.Tx.RevokeToken(id, d.now); err != nil {
			return err
		}

		return d.done(tokenText(tokenOf(row)), "")
	})
}

// AuthenticateToken returns the actor of a token's secret. The error is ErrTokenExpired if
// the token would be right otherwise, and ErrNotLoggedIn for any other.
func (s *Service) AuthenticateToken(ctx context.Context, secret string, m Meta) (Actor, error) {
	hash, now := auth.Digest(secret), s.now()
	row, err := view(ctx, s, func(t *store.Tx) (store.Token, error) {
		row, err := t.TokenByHash(hash)
		if err == nil && row.RevokedAt != 0 {
			err = ErrNotLoggedIn
		}
		if err == nil {
			err = enabled(t, row.User)
		}

		// The end is looked at last, because only a token that is right otherwise has an error of
		// its own.
		if err == nil && now >= row.ExpiresAt {
			err = ErrTokenExpired
		}
		return row, err
	})
	if err != nil {
		return Actor{}, asNotLoggedIn(err)
	}

	// The last use is written once a minute, or each request would be a write.
	if now >= row.UsedAt+touchEvery.Microseconds() {
		err = s.touch(ctx, func(t *store.Tx) error { return t.TouchToken(row.ID, now) })
	}

	return Actor{user: row.User, via: viaToken + row.ID, token: scopeOf(row), meta: m.sanitized()}, err
}

// tokenEnded reports whether a token has ended at an instant in µs.
func tokenEnded(r store.Token, now int64) bool { return r.RevokedAt != 0 || now >= r.ExpiresAt }

// scopeOf returns the restriction of an actor with a token.
func scopeOf(r store.Token) *tokenScope {
	scope := &tokenScope{readOnly: r.Scope != string(Write), backups: r.Scope == string(Backups)}
	if apps := tokenOf(r).Apps; len(apps) > 0 {
		scope.apps = apps
	}
	return scope
}

func tokenOf(r store.Token) Token {
	t := Token{
		ID: r.ID, Label: r.Label, Scope: Scope(r.Scope), CreatedAt: instant(r.CreatedAt),
		Expires: instant(r.ExpiresAt), UsedAt: instant(r.UsedAt), RevokedAt: instant(r.RevokedAt),
	}
	if json.Unmarshal([]byte(r.Apps), &t.Apps) != nil {
		t.Apps = []string{""} // no application has this name, so the token may use none
	}
	return t
}

// tokenText returns the form of a token in the audit log, without its hash.
func tokenText(t Token) string {
	return text(struct {
		Label   string    `json:"label"`
		Scope   Scope     `json:"scope"`
		Apps    []string  `json:"apps"`
		Expires time.Time `json:"expires"`
	}{t.Label, t.Scope, t.Apps, t.Expires})
}
