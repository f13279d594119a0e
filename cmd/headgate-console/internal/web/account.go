package web

import (
	"errors"
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

func (v *request) tokenOf(t service.Token) token {
	remaining := t.Expires.Sub(v.Clock())
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

// tokenForm is a new token as it was filled in.
type tokenForm struct {
	Label, Scope string
	Days         string // how long it lasts
	Until        string // its last day instead, or ""
	Apps         []string
}

// emptyToken is the form of a new token before it is filled in.
var emptyToken = tokenForm{Scope: "read", Days: "90"}

func accountPage(v *request) error {
	return v.showAccount(http.StatusOK, emptyToken, nil)
}

func (v *request) showAccount(status int, draft tokenForm, m mistakes) error {
	a := account{
		User: v.access, Must: v.access.MustChangePassword, Proxied: v.proxied, Provider: v.Provider != nil,
		MinLength: auth.MinPassword, Draft: draft, Mistakes: m,
	}

	// Before the password is changed the service answers nothing else, and the page has nothing
	// else.
	if a.Must {
		return v.show(status, "account", "Choose a password", a)
	}
	var err error
	if a.Sessions, err = v.Service.Sessions(v.r.Context(), v.actor); err != nil {
		return err
	}

	tokens, err := v.Service.Tokens(v.r.Context(), v.actor)
	if err != nil {
		return err
	}
	for _, t := range tokens {
		a.Tokens = append(a.Tokens, v.tokenOf(t))
	}

	if a.Factor, err = v.Service.SecondFactor(v.r.Context(), v.actor); err != nil {
		return err
	}

	longest, err := v.Service.TokenLife(v.r.Context(), v.actor)
	if err != nil {
		return err
	}
	a.lives(longest, v.Clock())

	apps, err := v.Service.Apps(v.r.Context(), v.actor)
	if err != nil {
		return err
	}
	for _, app := range apps {
		a.Apps = append(a.Apps, appChoice{Name: app.Name, Checked: slices.Contains(draft.Apps, app.Name)})
	}

	return v.show(status, "account", "Your account", a)
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

func changePassword(v *request) error {
	if v.proxied {
		return errNoPassword
	}

	// All mistakes that can be found without the old password are shown at once.
	m := mistakes{}
	if v.field("password") != v.field("repeat") {
		m.add("repeat", "it is not the same as the new password")
	}
	if err := auth.CheckPassword(v.actor.User(), v.field("password")); err != nil {
		m.add("password", err.Error())
	}

	draft := emptyToken
	if len(m) > 0 {
		return v.showAccount(http.StatusUnprocessableEntity, draft, m)
	}

	session, err := v.Service.ChangePassword(v.r.Context(), v.actor, v.field("old"), v.field("password"))
	if errors.Is(err, service.ErrCredentials) {
		return v.showAccount(http.StatusUnprocessableEntity, draft, mistakes{"old": {"it is not your password"}})
	}
	if m := mistakesOf(err); m != nil {
		return v.showAccount(http.StatusUnprocessableEntity, draft, m)
	}
	if err != nil {
		return err
	}

	// All other sessions have ended, and this browser goes on with a new one.
	v.setSession(session)
	return v.seeOther("/account", "password")
}

func endSession(v *request) error {
	if err := v.Service.RevokeSession(v.r.Context(), v.actor, v.field("id")); err != nil {
		return err
	}
	return v.seeOther("/account", "ended")
}

func createToken(v *request) error {
	draft := tokenForm{
		Label: v.field("label"), Scope: v.field("scope"), Days: v.field("days"), Until: v.field("until"),
		Apps: v.r.PostForm["apps"],
	}

	// A life and a last day share one rule of the service. field is where the form shows its
	// mistake.
	ask := service.TokenDraft{Label: draft.Label, Scope: service.Scope(draft.Scope), Apps: draft.Apps}
	field := "life"
	if draft.Until == "" {
		ask.Life = time.Duration(min(max(atoi(draft.Days), 0), math.MaxInt16)) * 24 * time.Hour
	} else {
		field = "until"
		last, err := time.Parse(time.DateOnly, draft.Until)
		if err != nil {
			return v.showAccount(http.StatusUnprocessableEntity, draft,
				mistakes{field: {"it is not a day such as 2026-03-01"}})
		}
		ask.Expires = last.AddDate(0, 0, 1) // with the end of the day
	}

	_, secret, err := v.Service.CreateToken(v.r.Context(), v.actor, ask)
	if m := mistakesOf(err); m != nil {
		if texts, there := m["life"]; there {
			delete(m, "life")
			m[field] = texts
		}

		// The secret is shown here and never again, so the answer is a page and not a redirect.
		return v.showAccount(http.StatusUnprocessableEntity, draft, m)
	}
	if err != nil {
		return err
	}
	return v.show(http.StatusOK, "once", "A new token", once{Secret: secret, Back: "/account"})
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
func revokeToken(v *request) error {
	id := v.field("id")
	if !v.confirmed() {
		tokens, err := v.Service.Tokens(v.r.Context(), v.actor)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(tokens, func(t service.Token) bool { return t.ID == id }); i >= 0 {
			return v.confirm(confirmation{
				Title: "Revoke the token " + tokens[i].Label + "?",
				Consequences: []string{"Programs that use it get a 401 from now on. " +
					"A token that was revoked never works again: they need another one."},
				Action: "/account/tokens/revoke", Fields: []hidden{{"id", id}},
				Button: "Revoke the token", Danger: true, Back: "/account",
			})
		}
	}

	if err := v.Service.RevokeToken(v.r.Context(), v.actor, id); err != nil {
		return err
	}
	return v.seeOther("/account", "revoked")
}
