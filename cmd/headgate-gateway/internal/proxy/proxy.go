// Package proxy is the face of the gateway that stands before a server: it passes on the requests
// that the limits admit. A [Proxy] is its handler.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/callers"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/engine"
	"github.com/headgate/headgate/internal/quietlog"
	"github.com/headgate/headgate/internal/upgrades"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

// Face is the face of the engine. It can carry out every policy. A proxy sets Carries.
var Face = engine.Face{Name: "proxy"}

// Options configure a proxy. Upstream and Log must be set.
type Options struct {
	// App is the application whose policies apply; "" means the default.
	App string

	// Upstream is the server: http://host:port, https:// with TLS, or h2c:// for HTTP/2
	// without TLS. Its path, if any, comes before that of each request.
	Upstream *url.URL

	// Host, unless "", is the host that the upstream is asked for, instead of the one
	// that the client asked for.
	Host string

	// ConnectTimeout bounds a connection to the upstream, and HeaderTimeout the time until
	// the header of an answer. The answer itself may take any time.
	ConnectTimeout, HeaderTimeout time.Duration

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

// Proxy is a http.Handler.
type Proxy struct {
	options   Options
	limited   http.Handler
	reverse   *httputil.ReverseProxy
	transport *http.Transport
	costs     *costs
}

// New returns a proxy whose requests pass the limits of the engine first. The caller
// should call Close.
//
// The rate limit headers of an answer are those of the gateway where a policy applies to
// the request, and those of the upstream where none does. If the upstream itself refuses
// the request with a 429 and has such headers, they replace those of the gateway.
//
// A header of the answer that settles what a request costs is not passed on to the client, and
// a header of the request that names it not to the upstream, unless a trusted proxy has sent it.
func New(e *engine.Engine, o Options) (*Proxy, error) {
	if err := CheckUpstream(o.Upstream); err != nil {
		return nil, fmt.Errorf("proxy: Options.Upstream: %w", err)
	}
	if o.Log == nil {
		return nil, errors.New("proxy: Options.Log is nil")
	}

	headers, face := &costs{}, Face
	face.Carries = headers.set
	l, err := e.Limiter(o.App, face)
	if err != nil {
		return nil, err
	}
	return behind(l, o, headers), nil
}

// CheckUpstream returns an error if a proxy cannot use the URL.
func CheckUpstream(u *url.URL) error {
	switch {
	case u == nil:
		return errors.New("it is missing")
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "h2c":
		return errors.New("it does not begin with http://, https:// or h2c://")
	case u.Hostname() == "":
		return errors.New("it names no host")
	case u.User != nil:
		return errors.New("it has a user or password, which the upstream would not get")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return errors.New("it has more than a host and a path")
	}
	return nil
}

// behind returns a proxy behind a limiter, whose policies have the headers.
func behind(l *limiter.Limiter, o Options, headers *costs) *Proxy {
	p := &Proxy{options: o, transport: transport(&o), costs: headers}

	p.reverse = &httputil.ReverseProxy{
		Rewrite:        p.rewrite,
		Transport:      p.transport,
		ModifyResponse: p.answered,
		ErrorHandler:   p.failed,
		ErrorLog:       log.New(brokenOff{o.Log}, "", 0),
		BufferPool:     &buffers,
	}

	p.limited = nethttp.New(l)(http.HandlerFunc(p.pass))
	// The handler of the callers comes first: a limiter must not see headers of peers that are not
	// trusted.
	if o.Callers != nil {
		p.limited = o.Callers.Handler(p.limited)
	}
	return p
}

// idle is how many connections to the upstream are kept for later requests, and idleTime
// for how long.
const (
	idle     = 512
	idleTime = 90 * time.Second
)

func transport(o *Options) *http.Transport {
	// Without TLS no protocol is negotiated, so HTTP/2 in the clear has to be asked for by the URL.
	protocols := &http.Protocols{}
	switch o.Upstream.Scheme {
	case "h2c":
		protocols.SetUnencryptedHTTP2(true)
	case "https":
		protocols.SetHTTP1(true)
		protocols.SetHTTP2(true)
	default:
		protocols.SetHTTP1(true)
	}

	dialer := &net.Dialer{Timeout: o.ConnectTimeout, KeepAlive: 30 * time.Second}
	return &http.Transport{
		DialContext:           dialer.DialContext,
		Protocols:             protocols,
		TLSHandshakeTimeout:   o.ConnectTimeout,
		ResponseHeaderTimeout: o.HeaderTimeout,
		ExpectContinueTimeout: time.Second,
		MaxIdleConnsPerHost:   idle,
		IdleConnTimeout:       idleTime,
		DisableCompression:    true, // the client gets what the upstream sends
		WriteBufferSize:       8 << 10,
		ReadBufferSize:        8 << 10,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: 30 * time.Second},
	}
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.limited.ServeHTTP(w, r) }

// Close ends the connections to the upstream that have no request.
func (p *Proxy) Close() { p.transport.CloseIdleConnections() }

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

	x := &exchange{writer: w, header: w.Header()}
	x.save()

	// The exchange reads the body, to know later whether the client or the upstream has failed.
	if r.Body != nil && r.Body != http.NoBody {
		x.body = r.Body
		r.Body = x
	}
	p.reverse.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
}

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
