// Package oidc lets people log in at a provider of OpenID Connect. A [Provider] begins a log-in,
// which is a [Flow], and finishes it with an [Identity].
package oidc

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

const (
	// answerTime bounds each request to the provider, and answerSize its answer in bytes.
	answerTime = 10 * time.Second
	answerSize = 1 << 20

	// skew is how far the provider's clock may be ahead of the console's.
	skew = 5 * time.Minute
)

// CallbackPath is the path of the console to which the provider sends browsers back.
const CallbackPath = "/login/oidc/callback"

// Options configure a [Provider]. Issuer, ClientID, Secret and PublicURL must be set.
type Options struct {
	Issuer    string // the URL of the provider, as it is in its tokens
	ClientID  string
	Secret    string // of the client
	PublicURL string // of the console, as browsers see it, without a path

	// UserClaim is the claim that names the user; "" means preferred_username. An email has to
	// be verified.
	UserClaim string

	// GroupsClaim is the claim with the groups of the user; "" means groups.
	GroupsClaim string

	// Groups are the groups whose members may log in; empty means that all may.
	Groups []string

	// Clock returns the time; nil means time.Now.
	Clock func() time.Time
}

// Provider is a provider of OpenID Connect. It is safe for concurrent use.
type Provider struct {
	o      Options
	client *http.Client

	mu sync.Mutex

	// known is nil until the provider is asked for its addresses, and after a failure. Guarded
	// by mu.
	known *discovery
}

// discovery is a question for the addresses of the provider, and its answer.
type discovery struct {
	done  chan struct{} // closed when there is an answer
	found *oidc.Provider
	err   error
}

// New returns a provider. It asks the provider for nothing: that need not run yet.
func New(o Options) (*Provider, error) {
	var errs []error
	for _, u := range []struct {
		name string
		err  error
	}{{"Issuer", checkURL(o.Issuer)}, {"PublicURL", CheckPublicURL(o.PublicURL)}} {
		if u.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", u.name, u.err))
		}
	}

	if o.ClientID == "" {
		errs = append(errs, errors.New("ClientID: it is empty"))
	}
	if o.Secret == "" {
		errs = append(errs, errors.New("no Secret"))
	}

	// All mistakes are known now, and the defaults follow.
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("oidc: %w", err)
	}
	o.UserClaim = cmp.Or(o.UserClaim, "preferred_username")
	o.GroupsClaim = cmp.Or(o.GroupsClaim, "groups")
	if o.Clock == nil {
		o.Clock = time.Now
	}

	client := &http.Client{Timeout: answerTime, Transport: bounded{http.DefaultTransport}}
	return &Provider{o: o, client: client}, nil
}

// CheckPublicURL returns an error unless a URL may be Options.PublicURL.
func CheckPublicURL(text string) error {
	if err := checkURL(text); err != nil {
		return err
	}
	if u, err := url.Parse(text); err != nil || u.Path != "" {
		return errors.New("it has a path")
	}
	return nil
}

// checkURL returns an error unless a URL keeps what is sent from being read on the way.
func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return errors.New("it is not of the form https://host")
	}

	host := u.Hostname()
	loopback := host == "localhost" || host == "127.0.0.1" || host == "::1"
	if u.Scheme != "https" && (u.Scheme != "http" || !loopback) {
		return errors.New("it does not begin with https://")
	}
	return nil
}

// bounded cuts answers that are too large.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(answer.Body, answerSize), answer.Body}
	}
	return answer, err
}

// Errors of log-ins.
var (
	// ErrAway means that the provider does not answer.
	ErrAway = errors.New("the provider does not answer")

	// ErrRefused means that the provider has not authenticated the user for this log-in.
	ErrRefused = errors.New("the provider's answer was refused")

	// ErrGroup means that the user is in none of the groups that may log in.
	ErrGroup = errors.New("the user is in none of the groups that may log in")
)

// Flow is a log-in that has begun. Only the browser that began it may see it.
type Flow struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"`
}

// Identity is a person whom the provider has authenticated.
type Identity struct {
	Issuer  string
	Subject string // identifies the person at the issuer for ever
	User    string // the name of the user, which may change
}

// Begin begins a log-in, and returns the address at the provider for the browser.
func (p *Provider) Begin(ctx context.Context) (f Flow, address string, err error) {
	config, _, err := p.discover(ctx)
	if err != nil {
		return Flow{}, "", err
	}
	f = Flow{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier()}
	return f, config.AuthCodeURL(f.State, oidc.Nonce(f.Nonce), oauth2.S256ChallengeOption(f.Verifier)), nil
}

// Finish checks what the provider sent the browser back with, exchanges the code, and checks
// the token. The error wraps ErrAway, ErrRefused or ErrGroup, and holds no secret.
func (p *Provider) Finish(ctx context.Context, f Flow, query url.Values) (Identity, error) {
	// What can be refused without the provider is refused first: the code is not sent then.
	if f.State == "" || subtle.ConstantTimeCompare([]byte(f.State), []byte(query.Get("state"))) != 1 {
		return Identity{}, refused("it is for another log-in")
	}
	if iss := query.Get("iss"); iss != "" && iss != p.o.Issuer {
		return Identity{}, refused("it comes from another issuer")
	}
	if query.Get("error") != "" || query.Get("code") == "" {
		return Identity{}, refused("it has no code")
	}

	config, verifier, err := p.discover(ctx)
	if err != nil {
		return Identity{}, err
	}

	ctx = oidc.ClientContext(ctx, p.client)
	answer, err := config.Exchange(ctx, query.Get("code"), oauth2.VerifierOption(f.Verifier))

	// An answer of 500 and above, like none, may be another one in a moment. Below that the
	// provider has refused the code.
	var denied *oauth2.RetrieveError
	switch {
	case errors.As(err, &denied) && denied.Response.StatusCode < http.StatusInternalServerError:
		return Identity{}, refused("it does not give a token for the code")
	case err != nil:
		return Identity{}, ErrAway
	}

	// Without a token the text is empty, which is not a valid one.
	raw, _ := answer.Extra("id_token").(string)
	token, err := verifier.Verify(ctx, raw)
	if err != nil {
		return Identity{}, refused("its token is not valid: " + reasonOf(err))
	}

	return p.identity(f, token)
}

// identity checks the claims that the verifier leaves to its caller.
func (p *Provider) identity(f Flow, token *oidc.IDToken) (Identity, error) {
	claims := map[string]any{}
	if err := token.Claims(&claims); err != nil {
		return Identity{}, refused("its token has no claims")
	}

	now := p.o.Clock()
	user, _ := claims[p.o.UserClaim].(string)
	azp, named := claims["azp"].(string)
	verified, _ := claims["email_verified"].(bool)

	// The nonce is compared first: a token of another log-in reveals nothing about its claims.
	switch {
	case subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(f.Nonce)) != 1:
		return Identity{}, refused("its token is for another log-in")
	case (len(token.Audience) > 1 || named) && azp != p.o.ClientID:
		return Identity{}, refused("its token is for another client")
	case token.IssuedAt.After(now.Add(skew)):
		return Identity{}, refused("its token comes from the future")
	case token.Subject == "" || user == "":
		return Identity{}, refused("its token does not name the user")
	case p.o.UserClaim == "email" && !verified:
		return Identity{}, refused("it has not verified the email")
	case !p.member(claims[p.o.GroupsClaim]):
		return Identity{}, ErrGroup
	}
	return Identity{Issuer: token.Issuer, Subject: token.Subject, User: user}, nil
}

// member reports whether one of the groups may log in.
func (p *Provider) member(claim any) bool {
	if len(p.o.Groups) == 0 {
		return true
	}

	// Some providers send a single group as a text instead of a list.
	if one, ok := claim.(string); ok {
		return slices.Contains(p.o.Groups, one)
	}

	list, _ := claim.([]any)
	return slices.ContainsFunc(list, func(g any) bool {
		name, ok := g.(string)
		return ok && slices.Contains(p.o.Groups, name)
	})
}

// discover returns what is needed to ask the provider about a log-in.
func (p *Provider) discover(ctx context.Context) (*oauth2.Config, *oidc.IDTokenVerifier, error) {
	d := p.discovery(ctx)
	select {
	case <-d.done:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}

	if d.err != nil {
		return nil, nil, ErrAway
	}

	return &oauth2.Config{
		ClientID: p.o.ClientID, ClientSecret: p.o.Secret, Endpoint: d.found.Endpoint(),
		RedirectURL: p.o.PublicURL + CallbackPath,
		Scopes:      p.scopes(),
	}, d.found.Verifier(&oidc.Config{ClientID: p.o.ClientID, Now: p.o.Clock}), nil
}

// discovery asks the provider for its addresses, until it has answered once. Log-ins share a
// question, so that a provider that hangs delays none of them by more than answerTime.
func (p *Provider) discovery(ctx context.Context) *discovery {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known != nil {
		return p.known
	}

	d := &discovery{done: make(chan struct{})}
	p.known = d

	// The log-in that is the first to ask may be given up, and others wait for the same answer. So
	// the question does not end with it.
	go func() {
		defer close(d.done)
		d.found, d.err = oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), p.client), p.o.Issuer)

		// The next log-in asks again. Those that wait have the error in d.
		if d.err != nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.known = nil
		}
	}()

	return d
}

// scopes returns what to ask for: the scope of groups is not known to every provider.
func (p *Provider) scopes() []string {
	list := []string{oidc.ScopeOpenID, "profile", "email"}
	if len(p.o.Groups) > 0 {
		list = append(list, "groups")
	}
	return list
}

func refused(why string) error { return fmt.Errorf("%w: %s", ErrRefused, why) }

// reasonOf returns the reason of a token's refusal without its content.
func reasonOf(err error) string {
	var expired *oidc.TokenExpiredError
	if errors.As(err, &expired) {
		return "it has expired"
	}
	return "its signature, issuer or audience is wrong"
}
