// Package web serves the pages of the console. [New] returns the handler. The pages work without
// JavaScript: the one script only adds live updates. The service decides about permissions. A
// route names a function of a [request], which has the actor and the form. It answers with a page
// (show), with a question before a change (confirm) or with another page (seeOther), or it returns
// an error, which fail answers with.
package web

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/live"
	"github.com/headgate/headgate/cmd/headgate-console/internal/oidc"
	"github.com/headgate/headgate/cmd/headgate-console/internal/publish"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/cmd/headgate-console/internal/trustedproxy"
	"github.com/headgate/headgate/core"
)

// Options configure the pages. Only Service must be set.
type Options struct {
	Service *service.Service

	// Fleet is the Redis that the instances follow; nil means that there is none.
	Fleet Fleet

	// Publishing returns the result of the last attempt to publish; nil means that
	// nothing is published.
	Publishing func() publish.Status

	// Takeover says what is lost if the policies of this database replace those of another one;
	// nil means that nothing is published.
	Takeover func(context.Context) (publish.Takeover, error)

	// Proxies are the trusted proxies; nil means none.
	Proxies *trustedproxy.Proxies

	// Provider is the provider of OpenID Connect at which people may log in; nil means none.
	Provider *oidc.Provider

	// Secure means that browsers reach the pages over TLS only. Browsers then send
	// the session's cookie over TLS only.
	Secure bool

	// Logger receives faults that the pages do not show; nil means slog.Default().
	Logger *slog.Logger

	// Clock returns the time; nil means time.Now.
	Clock func() time.Time
}

// site serves all pages.
type site struct {
	Options
	pages  map[string]*page
	recent *live.Shared[string, []core.Banned] // bans, by the names of the policies
}

// New returns the pages, to be mounted at "/". They are safe for concurrent use.
func New(o Options) (http.Handler, error) {
	if o.Service == nil {
		return nil, errors.New("web: Service is nil")
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}

	pages, err := parsedPages()
	if err != nil {
		return nil, err
	}

	s := &site{Options: o, pages: pages, recent: newBans(o.Fleet)}

	// The guard is inside of the headers, so that its refusal is a page like all others.
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(s.public(foreign))
	return s.headers(guard.Handler(s.mux())), nil
}

// mux returns all routes. A page shows that any other path is not found, and that a path
// has no such method.
func (s *site) mux() http.Handler {
	mux := http.NewServeMux()
	for _, r := range routes {
		if r.open {
			mux.Handle(r.pattern, s.public(r.answer))
			continue
		}
		mux.Handle(r.pattern, s.private(r))
	}
	mux.Handle("GET /static/{file}", static())

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}

		// http.ServeMux would answer in plain text, which people who mistyped an address should not
		// see.
		s.public(func(v *request) error { return unrouted(mux, v) }).ServeHTTP(w, r)
	})
}

// unrouted returns the error of a request without a route.
func unrouted(mux *http.ServeMux, r *request) error {
	answer := probe{header: http.Header{}}
	mux.ServeHTTP(&answer, r.req)

	if answer.status != http.StatusMethodNotAllowed {
		return service.ErrNotFound
	}

	r.w.Header().Set("Allow", answer.header.Get("Allow"))
	return errMethod
}

// probe records the answer that http.ServeMux gives by itself.
type probe struct {
	header http.Header
	status int
}

func (p *probe) Header() http.Header         { return p.header }
func (p *probe) WriteHeader(status int)      { p.status = status }
func (p *probe) Write(b []byte) (int, error) { return len(b), nil }
