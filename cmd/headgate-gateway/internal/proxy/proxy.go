// Package proxy is the face of the gateway that stands before a server: it passes on the requests
// that the limits admit. A [Proxy] is its handler.
package proxy

import (
	"context"
	"errors"
	"log"
	"net/http"
	"net/http/httputil"
	"sync"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/callers"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/engine"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/refusal"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/requestlog"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/upstream"
	"github.com/headgate/headgate/internal/quietlog"
	"github.com/headgate/headgate/internal/upgrades"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

// Face is the face of the engine. It can carry out every policy. A proxy sets Carries.
var Face = engine.Face{Name: "proxy", AnswersClients: true}

// Options configure a proxy. Upstreams and Log must be set.
type Options struct {
	// App is the application whose policies apply; "" means the default.
	App string

	// Upstreams are the servers behind the proxy. The caller starts and closes them.
	Upstreams *upstream.Table

	// Refusals, unless nil, are the answers to requests that are refused.
	Refusals *refusal.Book

	// Logged says that requests have a record of package requestlog, which the proxy completes.
	Logged bool

	// BodyBytes is the largest body of a request; 0 means any. It is the bound of the
	// server, for the answer to requests that announce more.
	BodyBytes int64

	// Upgrades are the protocols to which a client may switch by Upgrade. The wish for another
	// one is not passed on.
	Upgrades upgrades.Protocols

	// Callers know the trusted proxies before this one. nil trusts none.
	Callers *callers.Callers

	// Log receives why requests could not be passed on.
	Log *quietlog.Log
}

// Proxy is a http.Handler. It does not change: With makes another one.
type Proxy struct {
	options Options
	limiter *limiter.Limiter
	limited http.Handler
	reverse *httputil.ReverseProxy
	costs   *costs
	ahead   *ahead // with all that With has made
}

// New returns a proxy whose requests pass the limits of the engine first.
//
// The rate limit headers of an answer are those of the gateway where a policy applies to
// the request, and those of the upstream where none does. If the upstream itself refuses
// the request with a 429 and has such headers, they replace those of the gateway.
//
// A header of the answer that settles what a request costs is not passed on to the client, and
// a header of the request that names it not to the upstream, unless a trusted proxy has sent it.
func New(e *engine.Engine, o Options) (*Proxy, error) {
	if o.Upstreams == nil || o.Log == nil {
		return nil, errors.New("proxy: Options.Upstreams and Log must be set")
	}

	headers, face := &costs{}, Face
	face.Carries = headers.set
	l, err := e.Limiter(o.App, face)
	if err != nil {
		return nil, err
	}
	return behind(l, o, headers, new(ahead)), nil
}

// With returns a proxy of the same application with other options. Upstreams and Log must be set.
func (p *Proxy) With(o Options) *Proxy { return behind(p.limiter, o, p.costs, p.ahead) }

// behind returns a proxy behind a limiter, whose policies have the headers.
func behind(l *limiter.Limiter, o Options, headers *costs, held *ahead) *Proxy {
	p := &Proxy{options: o, limiter: l, costs: headers, ahead: held}
	p.reverse = &httputil.ReverseProxy{
		Rewrite:        p.rewrite,
		Transport:      sender{headers},
		ModifyResponse: p.answered,
		ErrorHandler:   p.failed,
		ErrorLog:       log.New(brokenOff{o.Log}, "", 0),
		BufferPool:     &buffers,
	}

	// Without refusals and without a log, single requests that are refused are not looked at.
	var c nethttp.Config
	if o.Refusals != nil || o.Logged {
		c = nethttp.Config{Refused: p.refuse, Failed: p.refuse}
	}

	// The handler of the callers comes first: a limiter must not see headers of peers that are not
	// trusted.
	p.limited = nethttp.New(l, c)(http.HandlerFunc(p.pass))
	if o.Callers != nil {
		p.limited = o.Callers.Handler(p.limited)
	}
	return p
}

// refuse answers a request that the limits do not admit, if the configuration says how.
func (p *Proxy) refuse(w http.ResponseWriter, r *http.Request, a *limiter.Admission) {
	if record := requestlog.Of(r.Context()); record != nil {
		if names := a.Violated(); len(names) > 0 {
			record.Policy = names[0]
		}
	}

	answer, ok := p.options.Refusals.Answer(a)
	if !ok {
		return
	}
	for _, h := range answer.Headers {
		w.Header()[h.Name] = []string{h.Value}
	}
	w.WriteHeader(answer.Status)
	_, _ = w.Write(answer.Body) // the client may have left
}

// sender sends requests to the upstream of their exchange.
type sender struct{ costs *costs }

// RoundTrip implements http.RoundTripper.
func (s sender) RoundTrip(r *http.Request) (*http.Response, error) {
	x := exchangeOf(r.Context())
	return x.upstream.Do(withoutInterim(r, s.costs.inForce().answered), &x.call)
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	limited := p.limited
	if p.costs.inForce().reads {
		limited = p.ahead.bound(limited)
	}
	limited.ServeHTTP(w, r)
}

// pass passes on a request that the limits admit.
func (p *Proxy) pass(w http.ResponseWriter, r *http.Request) {
	// These requests have cost a unit: the limits come before every other answer.
	switch {
	case r.Method == http.MethodConnect:
		w.Header().Set("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
		write(w, http.StatusMethodNotAllowed, "the gateway makes no tunnels")
		return
	case r.RequestURI == "*": // net/http answers OPTIONS
		write(w, http.StatusBadRequest, "only OPTIONS has the target *")
		return
	case p.options.BodyBytes > 0 && r.ContentLength > p.options.BodyBytes:
		p.logFailure(tooLarge)
		write(w, tooLarge.status, tooLarge.detail)
		return
	}

	to := p.options.Upstreams.Find(r)
	if to == nil {
		write(w, http.StatusNotFound, "the gateway has no server for this host and path")
		return
	}
	x := &exchange{writer: w, header: w.Header(), upstream: to}
	x.save()
	if record := requestlog.Of(r.Context()); record != nil {
		defer func() {
			record.Upstream, record.Attempts = to.Name()+" "+x.call.Address(), x.call.Attempts()
		}()
	}
	defer x.call.End()

	// The exchange reads the body, to know later whether the client or the upstream has failed.
	if r.Body != nil && r.Body != http.NoBody {
		x.body = r.Body
		r.Body = x
	}
	if r.Header["Expect"] != nil {
		w = toldOnce{w}
	}
	p.reverse.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
}

// toldOnce is the writer of a client that waits to be told to send its body. net/http tells it when
// the body is first read, which is once the upstream has said so. That of the upstream would be one
// more.
type toldOnce struct{ http.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (t toldOnce) WriteHeader(status int) {
	if status != http.StatusContinue {
		t.ResponseWriter.WriteHeader(status)
	}
}

// Unwrap is for http.ResponseController.
func (t toldOnce) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// buffers are those that answers are copied through.
var buffers bufferPool

type bufferPool struct{ pool sync.Pool }

const bufferBytes = 32 << 10

// Get implements httputil.BufferPool.
func (b *bufferPool) Get() []byte {
	if p, ok := b.pool.Get().(*[bufferBytes]byte); ok {
		return p[:]
	}
	return make([]byte, bufferBytes)
}

// Put implements httputil.BufferPool.
func (b *bufferPool) Put(buf []byte) {
	if len(buf) == bufferBytes {
		b.pool.Put((*[bufferBytes]byte)(buf))
	}
}
