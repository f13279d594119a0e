// Package web serves the pages of the console. [New] returns the handler. The pages work without
// JavaScript: the one script only adds live updates. The service decides about permissions. A
// route names a function of a [request], which has the actor and the form. It answers with a page
// (show), with a question before a change (confirm) or with another page (seeOther), or it returns
// an error, which fail answers with.
package web

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"strings"
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

	// Fleet is the Redis that the instances follow, as the service has it; nil means that there is
	// none.
	Fleet service.Fleet

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
	pages  map[string]*template.Template
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
	guard.SetDenyHandler(s.handler(route{answer: foreign, open: true}))
	return s.headers(guard.Handler(s.mux())), nil
}

// mux returns all routes. A page shows that any other path is not found, and that a path
// has no such method.
func (s *site) mux() http.Handler {
	mux := http.NewServeMux()
	for _, r := range routes {
		mux.Handle(r.pattern, s.handler(r))
	}
	mux.Handle("GET /static/{file}", static())

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}

		// http.ServeMux would answer in plain text, which people who mistyped an address should not
		// see.
		none := route{answer: func(v *request) error { return unrouted(mux, v) }, open: true}
		s.handler(none).ServeHTTP(w, r)
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

// contentPolicy lets a page load resources from this origin only, and forbids
// inline scripts.
const contentPolicy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; font-src 'self'; " +
	"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// requestHeader holds the id of a request in the audit log and the log. The pages
// ignore the value that a client sends.
const requestHeader = "X-Request-Id"

// headers sets the headers of every answer. Handlers may replace them.
func (s *site) headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")

		// A browser that has once come by TLS comes by nothing else for a year.
		if s.Secure {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}

		h.Set(requestHeader, rand.Text())
		next.ServeHTTP(w, r)
	})
}

//go:embed static
var files embed.FS

// static serves the style sheet, the script, the icon and the letters. Browsers cache them and
// revalidate them.
func static() http.Handler {
	tags := map[string]string{}

	list, _ := files.ReadDir("static") // an embedded file can always be read
	for _, f := range list {
		data, _ := files.ReadFile("static/" + f.Name())
		sum := sha256.Sum256(data)
		tags[f.Name()] = `W/"` + // weak, as the file may be compressed
			hex.EncodeToString(sum[:8]) + `"`
	}

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("file")
		tag, known := tags[name]
		if !known {
			http.NotFound(w, r)
			return
		}

		// no-cache means that the browser asks each time, and gets a 304 while the file is the
		// same. A new version is in use at once.
		w.Header().Set("Cache-Control", "no-cache")
		if strings.HasSuffix(name, ".woff2") { // whose name has its version
			w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		w.Header().Set("ETag", tag)
		http.ServeFileFS(w, r, files, "static/"+name)
	})
}
