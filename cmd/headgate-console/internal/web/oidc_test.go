package web

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/oauth2-proxy/mockoidc"

	"github.com/headgate/headgate/cmd/headgate-console/internal/oidc"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// idp is a provider of OpenID Connect whose tokens a test may change.
type idp struct {
	*mockoidc.MockOIDC
	t     *testing.T
	lie   func(jwt.MapClaims)              // changes the claims of a token
	key   *mockoidc.Keypair                // that signs a changed token
	alg   jwt.SigningMethod                // other than RS256
	reply func(w http.ResponseWriter) bool // answers the exchange of a code itself
}

func newIDP(t *testing.T) *idp {
	t.Helper()
	m, err := mockoidc.NewServer(nil)
	if err != nil {
		t.Fatal(err)
	}

	p := &idp{MockOIDC: m, t: t, key: m.Keypair}

	m.AddMiddleware(p.change)
	listener := httptest.NewUnstartedServer(nil).Listener
	if err := m.Start(listener, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Server.Close() })
	return p
}

// change replaces the token in the answer to the exchange of a code.
func (p *idp) change(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A reply takes the place of the provider's answer. All other requests pass.
		if r.URL.Path != mockoidc.TokenEndpoint || p.reply != nil && p.reply(w) {
			if r.URL.Path != mockoidc.TokenEndpoint {
				next.ServeHTTP(w, r)
			}
			return
		}

		// The provider answers into a recorder, as a lie needs its claims.
		answer := httptest.NewRecorder()
		next.ServeHTTP(answer, r)
		if p.lie == nil || answer.Code != http.StatusOK {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(answer.Code)
			w.Write(answer.Body.Bytes())
			return
		}

		// The claims are changed and signed anew, so the signature is right and only the lie is
		// wrong.
		var fields map[string]any
		if err := json.NewDecoder(bytes.NewReader(answer.Body.Bytes())).Decode(&fields); err != nil {
			p.t.Error(err)
		}

		claims := jwt.MapClaims{}
		if _, _, err := jwt.NewParser().ParseUnverified(fields["id_token"].(string), claims); err != nil {
			p.t.Error(err)
		}

		p.lie(claims)
		fields["id_token"] = p.sign(claims)
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(fields)
	})
}

func (p *idp) sign(claims jwt.MapClaims) string {
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, claims)
	var key any = p.key.PrivateKey

	// A token without a signature, and one signed with the secret that both sides know, are
	// classical forgeries.
	switch p.alg {
	case jwt.SigningMethodNone:
		token, key = jwt.NewWithClaims(p.alg, claims), jwt.UnsafeAllowNoneSignatureType
	case jwt.SigningMethodHS256:
		token, key = jwt.NewWithClaims(p.alg, claims), []byte(p.ClientSecret)
	}

	id, err := p.key.KeyID()
	if err != nil {
		p.t.Error(err)
	}
	token.Header["kid"] = id

	text, err := token.SignedString(key)
	if err != nil {
		p.t.Error(err)
	}
	return text
}

// withIDP returns a world whose users may log in at a provider.
func withIDP(t *testing.T, change ...func(*oidc.Options)) (*world, *idp) {
	t.Helper()
	p := newIDP(t)
	o := oidc.Options{Issuer: p.Issuer(), ClientID: p.ClientID, Secret: p.ClientSecret, PublicURL: "http://localhost:1"}
	for _, f := range change {
		f(&o)
	}
	provider, err := oidc.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return newWorld(t, func(o *Options) { o.Provider = provider }), p
}

// visit begins a log-in and returns the path and query with which the provider sends the
// browser back.
func (b *browser) visit(p *idp, as *mockoidc.MockUser, next string) *url.URL {
	b.t.Helper()
	p.QueueUser(as)
	begun := b.get("/login/oidc?next=" + url.QueryEscape(next)).want(http.StatusSeeOther)

	// The client stops at the redirect that sends the browser back, which the test sends itself.
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	answer, err := client.Get(begun.header.Get("Location"))
	if err != nil {
		b.t.Fatal(err)
	}
	answer.Body.Close()

	back, err := answer.Location()
	if err != nil {
		b.t.Fatal(err)
	}
	return back
}

func ada() *mockoidc.MockUser {
	return &mockoidc.MockUser{Subject: "4711", PreferredUsername: "ada", Email: "ada@example.com",
		EmailVerified: true, Groups: []string{"staff"}}
}

// invited adds a user who has never chosen a password.
func (w *world) invited(name string) {
	w.t.Helper()
	_, err := w.CreateUser(w.t.Context(), w.admin, name)
	w.must(err)
}

func TestProviderLogsPeopleIn(t *testing.T) {
	w, p := withIDP(t)
	w.invited("ada")
	b := w.browser()

	b.get("/login").has(`href="/login/oidc"`)

	// The second log-in finds the person whom the first has made the user.
	for range 2 {
		b.get(b.visit(p, ada(), "/keys").RequestURI()).goes("/keys")
		b.get("/policies").want(http.StatusOK)
		b.post("/logout", nil).goes("/login?done=out")
	}

	list, err := w.Audit(t.Context(), w.admin,
		service.AuditQuery{Actor: "ada", Action: "session.login", Outcome: service.Done})
	w.must(err)
	if len(list) != 2 || list[0].Via != "oidc" {
		t.Errorf("the audit log has %+v", list)
	}

	// What comes after the log-in is a page of this console, whatever the link asks for.
	for _, next := range []string{"https://evil.example", "//evil.example", "/\\evil.example"} {
		b.get(b.visit(p, ada(), next).RequestURI()).goes("/")
	}
}

// The same person stays the same user, and nobody else becomes it.
func TestProviderPersonStaysTheUser(t *testing.T) {
	w, p := withIDP(t)
	w.invited("ada")
	w.invited("bob")
	b := w.browser()
	b.get(b.visit(p, ada(), "").RequestURI()).goes("/")

	// A provider may give a name to another person, who has another subject.
	other := ada()
	other.Subject = "4712"
	b = w.browser()
	b.get(b.visit(p, other, "").RequestURI()).want(http.StatusForbidden)
	b.get("/policies").goes("/login?next=%2Fpolicies")

	// The subject decides, so the same person under a new name stays ada.
	renamed := ada()
	renamed.PreferredUsername = "bob"
	b.get(b.visit(p, renamed, "").RequestURI()).goes("/")
	b.get("/account").has(`value="ada"`)

	w.must(w.DisableUser(t.Context(), w.admin, "ada"))
	b.get(b.visit(p, ada(), "").RequestURI()).want(http.StatusForbidden)

	// No name of a stranger makes a user: users are added by administrators.
	for _, name := range []string{"nobody", "", "ADA", "ada' OR 1=1", strings.Repeat("a", 1000)} {
		stranger := ada()
		stranger.Subject, stranger.PreferredUsername = "x"+name, name
		b.get(b.visit(p, stranger, "").RequestURI()).want(http.StatusForbidden)
	}
}

// A provider, or a browser, that lies gets no session.
func TestProviderLiesAreRefused(t *testing.T) {
	other, err := mockoidc.RandomKeypair(2048)
	if err != nil {
		t.Fatal(err)
	}

	w, p := withIDP(t)
	w.invited("ada")
	// Each lie is in the address with which the browser comes back, or in the token that the
	// provider gives for the code.
	for name, set := range map[string]func(p *idp, back url.Values){
		"another state":        func(_ *idp, back url.Values) { back.Set("state", "x") },
		"no state":             func(_ *idp, back url.Values) { back.Del("state") },
		"another code":         func(_ *idp, back url.Values) { back.Set("code", "x") },
		"no code":              func(_ *idp, back url.Values) { back.Del("code") },
		"an error":             func(_ *idp, back url.Values) { back.Set("error", "access_denied") },
		"another issuer":       func(_ *idp, back url.Values) { back.Set("iss", "https://evil.example") },
		"a token of no nonce":  func(p *idp, _ url.Values) { p.lie = func(c jwt.MapClaims) { delete(c, "nonce") } },
		"a token of one nonce": func(p *idp, _ url.Values) { p.lie = func(c jwt.MapClaims) { c["nonce"] = "x" } },
		"another audience":     func(p *idp, _ url.Values) { p.lie = func(c jwt.MapClaims) { c["aud"] = "x" } },
		"two audiences": func(p *idp, _ url.Values) {
			p.lie = func(c jwt.MapClaims) { c["aud"] = []string{p.ClientID, "x"} }
		},
		"another client": func(p *idp, _ url.Values) {
			p.lie = func(c jwt.MapClaims) { c["azp"] = "x" }
		},
		"a token of another issuer": func(p *idp, _ url.Values) {
			p.lie = func(c jwt.MapClaims) { c["iss"] = "https://evil.example" }
		},
		"an expired token": func(p *idp, _ url.Values) {
			p.lie = func(c jwt.MapClaims) { c["exp"] = time.Now().Add(-time.Minute).Unix() }
		},
		"a token of tomorrow": func(p *idp, _ url.Values) {
			p.lie = func(c jwt.MapClaims) { c["iat"] = time.Now().Add(24 * time.Hour).Unix() }
		},
		"a token that is not valid yet": func(p *idp, _ url.Values) {
			p.lie = func(c jwt.MapClaims) { c["nbf"] = time.Now().Add(time.Hour).Unix() }
		},
		"no subject": func(p *idp, _ url.Values) { p.lie = func(c jwt.MapClaims) { delete(c, "sub") } },
		"no name": func(p *idp, _ url.Values) {
			p.lie = func(c jwt.MapClaims) { delete(c, "preferred_username") }
		},
		"a name that is none": func(p *idp, _ url.Values) {
			p.lie = func(c jwt.MapClaims) { c["preferred_username"] = 7 }
		},
		"another key": func(p *idp, _ url.Values) { p.lie, p.key = func(jwt.MapClaims) {}, other },
		"no signature": func(p *idp, _ url.Values) {
			p.lie, p.alg = func(jwt.MapClaims) {}, jwt.SigningMethodNone
		},
		"the secret as key": func(p *idp, _ url.Values) {
			p.lie, p.alg = func(jwt.MapClaims) {}, jwt.SigningMethodHS256
		},
		"no token": func(p *idp, _ url.Values) {
			p.reply = func(w http.ResponseWriter) bool {
				w.Header().Set("Content-Type", "application/json")
				w.Write([]byte(`{"access_token": "x", "token_type": "bearer"}`))
				return true
			}
		},
	} {
		before := w.refusals()
		b := w.browser()
		back := b.visit(p, ada(), "")
		query := back.Query()

		// Whatever the lie before has changed is set back.
		p.lie, p.key, p.alg, p.reply = nil, p.Keypair, nil, nil
		set(p, query)
		back.RawQuery = query.Encode()

		if got := b.get(back.RequestURI()).status; got != http.StatusForbidden {
			t.Errorf("%s: the status is %d and not 403", name, got)
		}

		b.get("/policies").goes("/login?next=%2Fpolicies")
		if n := w.refusals() - before; n != 1 {
			t.Errorf("%s: %d refusals are in the audit log, want 1", name, n)
		}
	}

	// Nobody is named as the one who was refused, as the name is a part of the lie.
	list, err := w.Audit(t.Context(), w.admin, service.AuditQuery{Action: "session.login", Outcome: service.Refused})
	w.must(err)
	for _, e := range list {
		if e.Via != "oidc" || e.Actor != "" {
			t.Errorf("the audit log has %+v", e)
		}
	}
}

// A person at the provider becomes a user who has a password only where that user is signed in,
// because people may choose their names at some providers.
func TestProviderDoesNotTakeOverUsersWithPasswords(t *testing.T) {
	w, p := withIDP(t)
	w.person("ada", nil)
	w.person("bob", nil)

	as := func(name, subject string) *mockoidc.MockUser {
		return &mockoidc.MockUser{Subject: subject, PreferredUsername: name}
	}
	refused := func(b *browser, user *mockoidc.MockUser) {
		t.Helper()
		got := b.get(b.visit(p, user, "").RequestURI()).want(http.StatusForbidden)
		if !strings.Contains(got.text, "Sign in with it first") {
			t.Errorf("%s: the page says %s", user.PreferredUsername, got.text)
		}
	}

	// Without a session the names of users with passwords are of no use to mallory.
	for _, name := range []string{service.FirstUser, "ada"} {
		b := w.browser()
		refused(b, as(name, "mallory"))
		b.get("/policies").goes("/login?next=%2Fpolicies")
	}

	bob := w.as("bob")
	refused(bob, as("ada", "bob")) // the session is of another user

	// The log-in begins in a session of ada, which ends before the provider answers.
	ended := w.as("ada")
	back := ended.visit(p, as("ada", "4711"), "").RequestURI()
	ended.post("/account/password", url.Values{"old": {password}, "password": {"eleven slow lanterns"},
		"repeat": {"eleven slow lanterns"}}).want(http.StatusSeeOther)
	w.must(w.DisableUser(t.Context(), w.admin, "ada"))
	w.must(w.EnableUser(t.Context(), w.admin, "ada"))
	ended.get(back).want(http.StatusForbidden) // the session has ended since

	b := w.as("bob")

	b.get("/account").has(`href="/login/oidc?next=%2Faccount"`)
	b.get(b.visit(p, as("bob", "4712"), "/account").RequestURI()).goes("/account")
	b.get("/account").lacks(`href="/login/oidc`)

	// From then on the person is bob without a session, whatever the provider calls him.
	fresh := w.browser()
	fresh.get(fresh.visit(p, as("renamed", "4712"), "").RequestURI()).goes("/")

	// The first log-in is audited with a note that the person has become the user.
	var first []string
	list, err := w.Audit(t.Context(), w.admin, service.AuditQuery{Action: "session.login", Actor: "bob"})
	w.must(err)
	for _, e := range list {
		if e.Via == "oidc" {
			first = append(first, e.Note)
		}
	}

	if want := []string{"", "the person at the provider becomes the user"}; !slices.Equal(first, want) {
		t.Errorf("the audit log has the notes %q, want %q", first, want)
	}
}

// A new one-time password lets another person become the user, for one whose provider has
// another name for the person.
func TestProviderPersonEndsWithANewPassword(t *testing.T) {
	w, p := withIDP(t)
	w.invited("ada")
	b := w.browser()
	b.get(b.visit(p, ada(), "").RequestURI()).goes("/")
	moved := ada()
	moved.Subject = "4712"
	b.get(b.visit(p, moved, "").RequestURI()).want(http.StatusForbidden)
	_, err := w.ResetPassword(t.Context(), w.admin, "ada")
	w.must(err)
	b.get(b.visit(p, moved, "").RequestURI()).goes("/")
	b.get(b.visit(p, ada(), "").RequestURI()).want(http.StatusForbidden)
}

// A log-in belongs to the browser that began it, and ends once.
func TestProviderAnswerIsForOneBrowserOnce(t *testing.T) {
	w, p := withIDP(t)
	w.invited("ada")
	attacker, victim := w.browser(), w.browser()
	back := attacker.visit(p, ada(), "").RequestURI()
	victim.get(back).want(http.StatusForbidden) // has begun nothing
	victim.visit(p, ada(), "")
	victim.get(back).want(http.StatusForbidden) // has begun another one
	attacker.get(back).goes("/")
	attacker.get(back).want(http.StatusForbidden)
}

// The code is worth nothing without the verifier that the browser keeps.
func TestProviderGetsTheVerifierOfItsChallenge(t *testing.T) {
	w, p := withIDP(t)
	w.invited("ada")
	b := w.browser()
	begun, err := url.Parse(b.get("/login/oidc").want(http.StatusSeeOther).header.Get("Location"))
	w.must(err)
	q := begun.Query()
	if q.Get("code_challenge_method") != "S256" || len(q.Get("code_challenge")) != 43 || q.Get("nonce") == "" ||
		q.Get("redirect_uri") != "http://localhost:1/login/oidc/callback" {
		t.Errorf("the browser is sent to %s", begun)
	}

	q.Set("code_challenge", strings.Repeat("x", 43)) // the provider saw another challenge
	begun.RawQuery = q.Encode()

	p.QueueUser(ada())
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	answer, err := client.Get(begun.String())
	w.must(err)
	answer.Body.Close()
	back, err := answer.Location()
	w.must(err)

	// The verifier of the browser does not fit to the challenge, so the code gets no token.
	b.get(back.RequestURI()).want(http.StatusForbidden)
}

func TestProviderGroupsAndEmail(t *testing.T) {
	w, p := withIDP(t, func(o *oidc.Options) { o.Groups, o.UserClaim = []string{"ops", "staff"}, "email" })
	w.invited("ada@example.com")
	b := w.browser()
	b.get(b.visit(p, ada(), "").RequestURI()).goes("/")

	// A group has to match as a whole, so staff2 is not staff.
	guest := ada()
	guest.Groups = []string{"guests", "staff2"}
	b = w.browser()
	b.get(b.visit(p, guest, "").RequestURI()).
		want(http.StatusForbidden).has("none of the groups")

	// An address that the provider has not verified may be that of another.
	forged := ada()
	forged.EmailVerified = false
	b.get(b.visit(p, forged, "").RequestURI()).want(http.StatusForbidden)

	// Each of these is no group of the person, in the forms that providers use or might.
	for _, groups := range []any{nil, 7, []any{7}, map[string]any{"staff": true}, "staff,ops"} {
		p.lie = func(c jwt.MapClaims) { c["groups"] = groups }
		b.get(b.visit(p, ada(), "").RequestURI()).want(http.StatusForbidden)
	}

	// A single group may come as a text instead of a list.
	p.lie = func(c jwt.MapClaims) { c["groups"] = "staff" }
	b.get(b.visit(p, ada(), "").RequestURI()).goes("/")
}

// A provider that is away keeps nobody from logging in with a password, and is asked again.
func TestProviderAway(t *testing.T) {
	w, p := withIDP(t)
	w.invited("ada")
	b := w.browser()

	back := b.visit(p, ada(), "")

	// The provider fails between the visit and the exchange of the code.
	p.reply = func(w http.ResponseWriter) bool {
		w.WriteHeader(http.StatusBadGateway)
		return true
	}
	b.get(back.RequestURI()).want(http.StatusServiceUnavailable)
	w.as(service.FirstUser).get("/policies").want(http.StatusOK)

	p.reply = nil
	b.get(b.visit(p, ada(), "").RequestURI()).goes("/")

	// Nothing listens at this address, from the start.
	silent, err := oidc.New(oidc.Options{Issuer: "http://127.0.0.1:1", ClientID: "x", Secret: "y",
		PublicURL: "http://localhost:1"})
	w.must(err)
	w = newWorld(t, func(o *Options) { o.Provider = silent })
	w.browser().get("/login/oidc").want(http.StatusServiceUnavailable)
}
