// Package web serves the pages of the console. They work without JavaScript; the
// one script only adds live updates.
//
// The package makes no decision about permissions: the service does.
package web

import (
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/headgate/headgate/console/internal/publish"
	"github.com/headgate/headgate/console/internal/service"
	"github.com/headgate/headgate/console/internal/trustedproxy"
)

// Options configure the pages. Only Service must be set.
type Options struct {
	Service *service.Service

	// Fleet is the Redis that the instances follow; nil means that there is none.
	Fleet Fleet

	// Publishing returns the result of the last attempt to publish; nil means that
	// nothing is published.
	Publishing func() publish.Status

	// Proxies are the trusted proxies; nil means none.
	Proxies *trustedproxy.Proxies

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
	pages map[string]*page
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
	pages, err := parsePages()
	if err != nil {
		return nil, err
	}
	s := &site{Options: o, pages: pages}
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(s.public(foreign))
	return s.headers(guard.Handler(s.mux())), nil
}

// mux returns all routes. Any other path is not found.
func (s *site) mux() *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range routes() {
		if r.open {
			mux.Handle(r.pattern, s.public(r.answer))
			continue
		}
		mux.Handle(r.pattern, s.private(r))
	}
	mux.Handle("GET /static/{file}", static())
	mux.Handle("/", s.public(func(*request) error { return service.ErrNotFound }))
	return mux
}
