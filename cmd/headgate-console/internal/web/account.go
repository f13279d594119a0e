package web

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// account is the page of the user who is logged in.
type account struct {
	User      service.Access
	Must      bool // the user must change the password first
	Proxied   bool // the proxy signs the user in, so the page has no passwords
	Provider  bool // people may log in at a provider of OpenID Connect
	Sessions  []service.OpenSession
	Tokens    []token
	Apps      []appChoice
	MinLength int // of a password
	Factor    service.SecondFactor
	MaxDays   int // of a token
	Lives     []string
	Last      string // the last day on which a token may end
	Draft     tokenForm
	Mistakes  mistakes
}

// token is an API token of the user.
type token struct {
	service.Token
	State string // "", "expired" or "revoked"
	Soon  bool   // it ends within endsSoon
}

// endsSoon is how long before its end the page warns of a token.
const endsSoon = 14 * 24 * time.Hour

func (r *request) tokenOf(t service.Token) token {
	remaining := t.Expires.Sub(r.Clock())
	switch {
	case !t.RevokedAt.IsZero():
		return token{t, "revoked", false}
	case remaining <= 0:
		return token{t, "expired", false}
	}
	return token{t, "", remaining <= endsSoon}
}

// Ending returns the tokens that end soon.
func (a account) Ending() (list []token) {
	for _, t := range a.Tokens {
		if t.Soon {
			list = append(list, t)
		}
	}
	return list
}

// Alive returns how many tokens have not ended.
func (a account) Alive() (n int) {
	for _, t := range a.Tokens {
		if t.State == "" {
			n++
		}
	}
	return n
}

// tokenForm is a new token as it was filled in.
type tokenForm struct {
	Label, Scope string
	Days         string // how long it lasts
	Until        string // its last day instead, or ""
	Apps         []string
}

// emptyToken is the form of a new token before it is filled in.
var emptyToken = tokenForm{Scope: "read", Days: "90"}

func accountPage(r *request) error { return r.showAccount(emptyToken, nil) }

func (r *request) showAccount(draft tokenForm, m mistakes) error {
	a := account{
		User: r.access, Must: r.access.MustChangePassword, Proxied: r.proxied, Provider: r.Provider != nil,
		MinLength: auth.MinPassword, Draft: draft, Mistakes: m,
	}

	// Before the password is changed the service answers nothing else, and the page has nothing
	// else.
	if a.Must {
		return r.show(statusOf(m), "account", "Choose a password", a)
	}
	var err error
	if a.Sessions, err = r.Service.Sessions(r.req.Context(), r.actor); err != nil {
		return err
	}

	tokens, err := r.Service.Tokens(r.req.Context(), r.actor)
	if err != nil {
		return err
	}
	for _, t := range tokens {
		a.Tokens = append(a.Tokens, r.tokenOf(t))
	}

	if a.Factor, err = r.Service.SecondFactor(r.req.Context(), r.actor); err != nil {
		return err
	}

	longest, err := r.Service.TokenLife(r.req.Context(), r.actor)
	if err != nil {
		return err
	}
	a.lives(longest, r.Clock())

	for _, app := range r.apps {
		a.Apps = append(a.Apps, appChoice{Name: app.Name, Checked: slices.Contains(draft.Apps, app.Name)})
	}

	return r.show(statusOf(m), "account", "Your account", a)
}

// lives fills in how long a token may last.
func (a *account) lives(longest time.Duration, now time.Time) {
	const day = 24 * time.Hour
	// A token that ends with a day lasts until the day after has begun, so the last day is one
	// before.
	a.MaxDays = int(longest / day)
	a.Last = now.UTC().Add(longest - day).Format(time.DateOnly)

	list := []string{"30", "90", "365"}
	a.Lives = slices.DeleteFunc(list, func(s string) bool { return atoi(s) > a.MaxDays })
	if len(a.Lives) == 0 {
		a.Lives = []string{strconv.Itoa(a.MaxDays)}
	}

	// The form begins with a choice that there is, even if the longest life was made shorter.
	if !slices.Contains(a.Lives, a.Draft.Days) {
		a.Draft.Days = a.Lives[len(a.Lives)-1]
	}
}

func changePassword(r *request) error {
	if r.proxied {
		return errNoPassword
	}

	// All mistakes that can be found without the old password are shown at once.
	m := mistakes{}
	if r.field("password") != r.field("repeat") {
		m.add("repeat", "it is not the same as the new password")
	}
	if err := auth.CheckPassword(r.actor.User(), r.field("password")); err != nil {
		m.add("password", err.Error())
	}

	again := func(m mistakes) error { return r.showAccount(emptyToken, m) }
	if len(m) > 0 {
		return again(m)
	}
	change := r.Service.ChangePassword
	if r.field("tokens") == "end" {
		change = r.Service.ChangePasswordAndEndTokens
	}
	session, err := change(r.req.Context(), r.actor, r.field("old"), r.field("password"))
	return after(proofErr(err, "old", ""), again, func() error {
		// All other sessions have ended, and this browser goes on with a new one.
		r.setSession(session)
		return r.seeOther("/account", "password")
	})
}

func endSession(r *request) error {
	err := r.Service.RevokeSession(r.req.Context(), r.actor, r.field("id"))
	return after(err, nil, r.to("/account", "ended"))
}

func createToken(r *request) error {
	draft := tokenForm{
		Label: r.field("label"), Scope: r.field("scope"), Days: r.field("days"), Until: r.field("until"),
		Apps: r.req.PostForm["apps"],
	}

	// A life and a last day share one rule of the service. field is where the form shows its
	// mistake.
	ask := service.TokenDraft{
		Label: draft.Label, Scope: service.Scope(draft.Scope), Apps: draft.Apps,
		Password: r.field("password"), Code: r.field("code"),
	}
	field := "life"
	if draft.Until == "" {
		ask.Life = time.Duration(min(max(atoi(draft.Days), 0), math.MaxInt16)) * 24 * time.Hour
	} else {
		field = "until"
		last, err := time.Parse(time.DateOnly, draft.Until)
		if err != nil {
			return r.showAccount(draft, mistakes{field: {notDay}})
		}
		ask.Expires = last.AddDate(0, 0, 1) // with the end of the day
	}

	_, secret, err := r.Service.CreateToken(r.req.Context(), r.actor, ask)
	again := func(m mistakes) error { return r.showAccount(draft, m.renamed("life", field)) }

	// The secret is shown here and never again, so the answer is a page and not a redirect.
	return after(proofErr(err, "own", "code"), again, func() error {
		return r.show(http.StatusOK, "once", "A new token", once{Secret: secret, Back: "/account"})
	})
}

// atoi returns a whole number, or 0, which the service refuses with all other mistakes.
func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

// revokeToken revokes a token. It asks first about those of the user, which are all that the page
// shows.
func revokeToken(r *request) error {
	id := r.field("id")
	if !r.confirmed() {
		tokens, err := r.Service.Tokens(r.req.Context(), r.actor)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(tokens, func(t service.Token) bool { return t.ID == id }); i >= 0 {
			return r.confirm(r.asks("token", "the token "+tokens[i].Label, "/account", hidden{"id", id}))
		}
	}

	return after(r.Service.RevokeToken(r.req.Context(), r.actor, id), nil, r.to("/account", "revoked"))
}
