package api

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/publish"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/cmd/headgate-console/internal/trustedproxy"
	"github.com/headgate/headgate/limiter"
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

	// Fleet is the Redis of the instances, as the service has it; nil means that there is none.
	Fleet service.Fleet

	// Clock returns the time for the limit of wrong tokens and for the names of backups; nil means
	// time.Now.
	Clock func() time.Time

	// Logger receives faults of the program, which answers do not reveal; nil
	// means slog.Default().
	Logger *slog.Logger
}

// API answers the requests under /api/. It is safe for concurrent use.
type API struct {
	o           Options
	mux         *http.ServeMux
	wrong       *limiter.Limiter // of tokens
	protection  *http.CrossOriginProtection
	description []byte // the OpenAPI description
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
	if a.wrong, err = newWrongTokens(o.Clock); err != nil {
		return nil, fmt.Errorf("api: %w", err)
	}
	if a.description, err = json.Marshal(describe(routes())); err != nil {
		return nil, fmt.Errorf("api: the description: %w", err)
	}

	methods := map[string][]string{}
	for _, r := range routes() {
		a.mux.HandleFunc(r.pattern, func(w http.ResponseWriter, req *http.Request) {
			c := &call{API: a, w: w, r: req, route: r, status: http.StatusOK}
			c.fail(c.serve())
		})
		method, path, _ := strings.Cut(r.pattern, " ")
		if methods[path] = append(methods[path], method); method == http.MethodGet {
			methods[path] = append(methods[path], http.MethodHead)
		}
	}

	// These patterns are less specific than those of the routes.
	for path, list := range methods {
		slices.Sort(list)
		p := newProblem(http.StatusMethodNotAllowed, "method-not-allowed", "the route has no such method")
		p.allow = strings.Join(list, ", ")
		a.mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { p.write(w) })
	}
	a.mux.HandleFunc("/api/", func(w http.ResponseWriter, _ *http.Request) { noRoute.write(w) })
	return a, nil
}

var noRoute = newProblem(http.StatusNotFound, "not-found", "there is no such route")

// ServeHTTP implements [http.Handler].
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Request-Id", requestID(r))

	// http.ServeMux would redirect to another spelling of the path.
	if escaped := r.URL.EscapedPath(); path.Clean(escaped) != escaped {
		noRoute.write(w)
		return
	}
	a.mux.ServeHTTP(w, r)
}

// call is one request to a route.
type call struct {
	*API
	w      http.ResponseWriter
	r      *http.Request
	route  route
	actor  service.Actor // the zero value if the route is open to all
	status int           // of an answer with content
	tag    string        // the ETag of the answer; "" stands for a digest of it
}

func (c *call) ctx() context.Context { return c.r.Context() }

// id returns the id of the request in the answer, the log and the audit log.
func (c *call) id() string { return c.w.Header().Get("X-Request-Id") }

// path returns the value of a wildcard of the route's pattern.
func (c *call) path(name string) string { return c.r.PathValue(name) }

// name returns the policy of the path.
func (c *call) name() string { return c.path("name") }

func (c *call) serve() (err error) {
	if !c.route.open {
		if c.actor, err = c.authenticate(); err != nil {
			return err
		}
	}
	return c.route.serve(c)
}

// send answers with a value as JSON, with nothing if the value is empty, or with 304 if the client
// has the value under its tag.
func (c *call) send(v any) error {
	if e, ok := v.(interface{ empty() bool }); ok && e.empty() {
		c.w.WriteHeader(http.StatusNoContent)
		return nil
	}

	b, err := json.Marshal(v)
	if err != nil {
		return err
	}

	// A digest is that of the JSON, and the answer may be compressed, so the tag is a weak one.
	reads := c.r.Method == http.MethodGet || c.r.Method == http.MethodHead
	if c.tag == "" && reads {
		sum := sha256.Sum256(b)
		c.tag = `W/"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
	}
	if c.tag != "" {
		c.w.Header().Set("ETag", c.tag)
	}

	if reads && unchanged(c.r, c.tag) {
		c.w.WriteHeader(http.StatusNotModified)
		return nil
	}

	c.w.Header().Set("Content-Type", mediaJSON)
	c.w.WriteHeader(c.status)
	c.w.Write(append(b, '\n'))
	return nil
}

// maxRequestID is the largest number of bytes of a client's X-Request-Id.
const maxRequestID = 64

// requestID returns the X-Request-Id of the client if it is valid, or a new id.
func requestID(r *http.Request) string {
	// The id goes to the log, so it has no character that could mean something there.
	const valid = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."
	id := r.Header.Get("X-Request-Id")
	if id == "" || len(id) > maxRequestID || strings.Trim(id, valid) != "" {
		return auth.NewID()
	}
	return id
}
