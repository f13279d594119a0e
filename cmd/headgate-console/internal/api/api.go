package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/publish"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/cmd/headgate-console/internal/trustedproxy"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/redisstore"
)

// Options configure an [API]. Only Service must be set.
type Options struct {
	Service *service.Service

	// Cookie is the name of the cookie that holds a session's token, which is that of the
	// pages; "" admits API tokens only.
	Cookie string

	// Proxies are the trusted proxies; nil means none.
	Proxies *trustedproxy.Proxies

	// Publishing returns the result of the publisher's last attempt. Nil means
	// that there is no Redis.
	Publishing func() publish.Status

	// Peek returns the decision that a request of one unit would get under a
	// policy, for a key in its stored form, and changes nothing. Nil means that
	// there is no Redis.
	Peek func(ctx context.Context, p policy.Policy, key string) (core.Decision, error)

	// Reset makes a key fresh. Nil means that there is no Redis.
	Reset func(ctx context.Context, p policy.Policy, key string) error

	// Bans returns the keys that policies have banned, in their stored form. Nil means
	// that there is no Redis.
	Bans func(ctx context.Context, policies []string) ([]core.Banned, error)

	// Lift ends the ban of a key. Nil means that there is no Redis.
	Lift func(ctx context.Context, p policy.Policy, key string) error

	// Impose bans a key for a time from now on. Nil means that there is no Redis.
	Impose func(ctx context.Context, p policy.Policy, key string, span time.Duration) error

	// Credits returns what a key has left of its grants. Nil means that there is no Redis.
	Credits func(ctx context.Context, p policy.Policy, key string) ([]redisstore.Credit, error)

	// Grant gives a key units beside its limit, until an instant, unless the decision says that
	// such a grant cannot be. Nil means that there is no Redis.
	Grant func(ctx context.Context, p policy.Policy, key string, units int64, until time.Time) (core.Decision, error)

	// Revoke takes all units of grants from a key. Nil means that there is no Redis.
	Revoke func(ctx context.Context, p policy.Policy, key string) error

	// Debit charges a key units, if need be beyond its limit, as many as the decision says. Nil
	// means that there is no Redis.
	Debit func(ctx context.Context, p policy.Policy, key string, units int64) (core.Decision, error)

	// Clock returns the time for the limit of wrong tokens and for the names of backups; nil means
	// time.Now.
	Clock func() time.Time

	// Logger receives faults of the program, which answers do not reveal; nil
	// means slog.Default().
	Logger *slog.Logger
}

// API answers the requests under /api/. It is safe for concurrent use.
type API struct {
	o          Options
	mux        *http.ServeMux
	attempts   *attempts
	protection *http.CrossOriginProtection
}

// New returns an API. Its routes are absolute, so the mux in which it handles /api/ must not strip
// the prefix.
func New(o Options) (*API, error) {
	if o.Service == nil {
		return nil, errors.New("api: Service is nil")
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())

	if o.Clock == nil {
		o.Clock = time.Now
	}
	a := &API{o: o, mux: http.NewServeMux(), protection: http.NewCrossOriginProtection()}

	var err error
	if a.attempts, err = newAttempts(o.Clock); err != nil {
		return nil, fmt.Errorf("api: %w", err)
	}

	for _, route := range routes() {
		a.mux.HandleFunc(route.pattern, func(w http.ResponseWriter, r *http.Request) { a.answer(w, r, route) })
	}
	return a, nil
}

// ServeHTTP implements [http.Handler].
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Answers of http.ServeMux, and problems, have these headers, too.
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Request-Id", requestID(r))

	if err := a.unrouted(r); err != nil {
		(&call{API: a, w: w, r: r}).fail(err)
		return
	}
	a.mux.ServeHTTP(w, r)
}

// answer serves a route. If that fails, it answers with the problem.
func (a *API) answer(w http.ResponseWriter, r *http.Request, route route) {
	c := &call{API: a, w: w, r: r}
	if err := c.serve(route); err != nil {
		c.fail(err)
	}
}
