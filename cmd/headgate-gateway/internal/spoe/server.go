// Package spoe answers HAProxy's Stream Processing Offload Engine: HAProxy asks by its protocol
// SPOP about each request before it passes it on. [New] makes a [Server], which answers with
// variables of the transaction.
package spoe

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/callers"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/engine"
	"github.com/headgate/headgate/internal/quietlog"
	"github.com/headgate/headgate/internal/upgrades"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/policy"
)

// Message is the name of the message that HAProxy sends.
const Message = "headgate"

const (
	// DefaultMaxWait is below the processing time-out of the example configuration.
	DefaultMaxWait = 400 * time.Millisecond

	maxMaxWait = 30 * time.Second

	// DefaultMaxConns is far above what one HAProxy needs, which sends up to 20 requests
	// over each connection before it opens another.
	DefaultMaxConns = 1000

	maxMaxConns = 1 << 20
)

const (
	// frameTimeout is how long a frame may take from its first byte to its last, and the
	// HELLO of a new connection too.
	frameTimeout = 5 * time.Second

	// idleTimeout is above every "timeout idle" in use, by which HAProxy closes first.
	idleTimeout = 10 * time.Minute

	// maxPending is how many requests of a connection are decided at the same time.
	// HAProxy has up to "max-waiting-frames", 20, under way.
	maxPending = 128
)

// Options configure a Server. Callers and Log must be set.
type Options struct {
	// Callers knows the trusted proxies before HAProxy. Trust replaces it and Upgrades.
	Callers *callers.Callers

	// Log receives what is wrong with requests.
	Log *quietlog.Log

	// Upgrades are the protocols to which a client may switch by Upgrade. A request for
	// another one is refused with 400, because this face cannot remove the wish.
	Upgrades upgrades.Protocols

	// MaxWait is the longest time that a request waits for its turn, whatever its policies
	// allow: at most 30 s, and 0 means DefaultMaxWait. It has to be below the "timeout
	// processing" of HAProxy.
	MaxWait time.Duration

	// MaxConns is the maximum number of connections; 0 means DefaultMaxConns. Any further
	// one is closed.
	MaxConns int
}

// Face returns the face for the engine.
func Face() engine.Face {
	return engine.Face{
		Name: "spoe",
		CannotKeep: func(p policy.Policy) string {
			if p.Limit.Leased() {
				return "HAProxy does not say when a request ends, so no lease would be released"
			}
			return ""
		},
		SeesNoAnswers: true,
		Bind:          callers.Described,
	}
}

// Server answers HAProxy. Its methods are safe for concurrent use.
type Server struct {
	options  Options
	trust    atomic.Pointer[trust]
	limiters map[string]*limiter.Limiter // by application; that of "" is the default

	mu        sync.Mutex
	listeners map[net.Listener]struct{} // Guarded by mu.
	conns     map[*conn]struct{}        // Guarded by mu.
	closed    bool                      // Guarded by mu.
	idle      chan struct{}             // closed when no connection is left after Shutdown. Guarded by mu.
}

// trust is what can change while the server runs.
type trust struct {
	callers  *callers.Callers
	upgrades upgrades.Protocols
}

// Trust puts other Callers and Upgrades in place of those of the Options, for messages that come
// from now on.
func (s *Server) Trust(c *callers.Callers, u upgrades.Protocols) { s.trust.Store(&trust{c, u}) }

// New returns a server. The error names every mistake.
func New(e *engine.Engine, o Options) (*Server, error) {
	s := &Server{
		options: o, limiters: map[string]*limiter.Limiter{},
		listeners: map[net.Listener]struct{}{}, conns: map[*conn]struct{}{},
	}

	var errs []error
	if o.Callers == nil || o.Log == nil {
		errs = append(errs, errors.New("spoe: Callers and Log must be set"))
	}
	if o.MaxWait < 0 || o.MaxWait > maxMaxWait {
		errs = append(errs, fmt.Errorf("spoe: MaxWait: %s is not within 0 to %s", o.MaxWait, maxMaxWait))
	}
	if o.MaxConns < 0 || o.MaxConns > maxMaxConns {
		errs = append(errs, fmt.Errorf("spoe: MaxConns: %d is not within 0 to %d", o.MaxConns, maxMaxConns))
	}

	s.Trust(o.Callers, o.Upgrades)
	if o.MaxWait == 0 {
		s.options.MaxWait = DefaultMaxWait
	}
	if o.MaxConns == 0 {
		s.options.MaxConns = DefaultMaxConns
	}

	for i, app := range e.Apps() {
		l, err := e.Limiter(app, Face())
		errs = append(errs, err)
		s.limiters[app] = l
		if i == 0 {
			s.limiters[""] = l
		}
	}

	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s, nil
}

// ErrClosed is returned by Serve after Shutdown.
var ErrClosed = errors.New("spoe: the server is closed")

// Serve accepts connections until Shutdown, and then returns ErrClosed. It closes the
// listener. Any other error is that of the listener.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	if !s.track(l) {
		return ErrClosed
	}

	var pause time.Duration
	for {
		nc, err := l.Accept()
		if err != nil {
			if s.isClosed() {
				return ErrClosed
			}
			var temporary interface{ Temporary() bool } // too many open files, as in net/http
			if !errors.As(err, &temporary) || !temporary.Temporary() {
				return err
			}

			// The pause doubles with each failure, as in net/http: a file may become free.
			s.options.Log.Record(slog.LevelError, "no connection of HAProxy can be accepted",
				slog.String("error", err.Error()))
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			time.Sleep(pause)
			continue
		}

		pause = 0
		c := &conn{server: s, net: nc, pending: make(chan struct{}, maxPending)}
		if !s.add(c) {
			_ = nc.Close()
			continue
		}
		go c.serve()
	}
}

// track adds a listener, unless the server is closed.
func (s *Server) track(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.listeners[l] = struct{}{}
	}
	return !s.closed
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// add adds a connection, unless the server is closed or has as many as it may.
func (s *Server) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if len(s.conns) >= s.options.MaxConns {
		s.options.Log.Record(slog.LevelWarn, "HAProxy has opened more connections than the gateway accepts",
			slog.Int("max", s.options.MaxConns))
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if s.idle != nil && len(s.conns) == 0 {
		close(s.idle)
		s.idle = nil
	}
}

// Shutdown closes the listeners, answers what has been asked, and ends the connections.
// It returns the cause of ctx if that ends before.
func (s *Server) Shutdown(ctx context.Context) error {
	// From here on no connection is added. Those that are there close idle when the last has ended.
	s.mu.Lock()
	s.closed = true
	for l := range s.listeners {
		_ = l.Close()
	}
	idle := make(chan struct{})
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}

	if len(conns) == 0 {
		close(idle)
	} else {
		s.idle = idle
	}
	s.mu.Unlock()

	for _, c := range conns {
		c.drain()
	}

	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		for _, c := range conns {
			_ = c.net.Close()
		}
		return context.Cause(ctx)
	}
}

// conn is a connection of HAProxy.
//
//	greet --HELLO--> next --NOTIFY--> next, while answer decides, up to maxPending at a time
//	greet --health check--> finished
//	next  --DISCONNECT, a mistake, or drain--> wait for the answers, disconnect, closed
//	next  --the connection is lost--> those who wait are cancelled, closed
type conn struct {
	server *Server
	net    net.Conn
	max    uint32 // size of a frame, by agreement

	pending chan struct{} // holds one element for each request that is being decided
	done    sync.WaitGroup

	write sync.Mutex // of frames: answers come in any order

	mu       sync.Mutex
	draining bool // Guarded by mu.
}

// drain makes the connection end once all that has been asked is answered.
func (c *conn) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draining = true
	_ = c.net.SetReadDeadline(time.Unix(1, 0)) // ends the wait for the next frame
}

// await lets the next frame take its time, and reports whether there may be one.
func (c *conn) await(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		return false
	}
	return c.net.SetReadDeadline(time.Now().Add(d)) == nil
}

// serve answers the frames of the connection until it ends.
func (c *conn) serve() {
	ctx, cancel := context.WithCancel(context.Background())
	defer c.server.remove(c)
	defer c.net.Close()

	r := bufio.NewReader(c.net)
	err := c.greet(r)
	for err == nil {
		err = c.next(ctx, r)
	}

	if !errors.As(err, new(*fault)) && !c.isDraining() {
		cancel() // HAProxy has left, and with it all who wait
	}

	// Answers are written before the DISCONNECT, after which HAProxy reads nothing.
	c.done.Wait()
	cancel()
	c.disconnect(err)
}

func (c *conn) isDraining() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.draining
}

var (
	// errDisconnected is how a connection ends that HAProxy closes.
	errDisconnected = &fault{normal, "normal"}

	errFinished = errors.New("the connection has served its purpose")
)

// disconnect says why the connection ends, if HAProxy is there to hear it.
func (c *conn) disconnect(err error) {
	// A connection that is lost, or that was opened for a health check, gets no last frame.
	why := &fault{normal, "normal"}
	if !errors.As(err, &why) && !c.isDraining() {
		return
	}

	if why.status != normal {
		c.server.options.Log.Record(slog.LevelWarn, "a connection of HAProxy was ended",
			slog.String("peer", c.net.RemoteAddr().String()), slog.String("reason", why.text))
	}
	c.send(appendDisconnect(nil, why.status, why.text))
}

// send writes a frame. The connection is closed if HAProxy does not read it.
func (c *conn) send(b []byte) {
	c.write.Lock()
	defer c.write.Unlock()
	_ = c.net.SetWriteDeadline(time.Now().Add(frameTimeout))
	if _, err := c.net.Write(b); err != nil {
		_ = c.net.Close()
	}
}

// next reads a frame and begins to answer it.
func (c *conn) next(ctx context.Context, r *bufio.Reader) error {
	// The first byte of a frame may take long, the others may not. What is buffered has come.
	if r.Buffered() == 0 {
		if !c.await(idleTimeout) {
			return errDisconnected
		}
		if _, err := r.Peek(1); err != nil {
			return err
		}
	}

	if !c.await(frameTimeout) {
		return errDisconnected
	}
	f, err := readFrame(r, c.max)
	if err != nil {
		return err
	}

	switch f.kind {
	case haproxyDisconnect:
		return errDisconnected
	case notify:
		if f.flags&final == 0 {
			return &fault{noFragmentation, "fragments are not supported"}
		}
	default: // may be skipped
		return nil
	}

	// The next frame is not read while maxPending requests are being decided.
	c.pending <- struct{}{}
	c.done.Go(func() {
		defer func() { <-c.pending }()
		c.send(c.server.answer(ctx, f, c.max))
	})

	return nil
}

// greet answers the HELLO of HAProxy.
func (c *conn) greet(r *bufio.Reader) error {
	if !c.await(frameTimeout) {
		return errDisconnected
	}
	f, err := readFrame(r, maxFrame)
	if err != nil {
		return err
	}
	h, err := readHello(f)
	if err != nil {
		return err
	}

	// What both sides can do is used, as this answer says.
	c.max = min(h.maxFrame, maxFrame)
	b := beginFrame(nil, agentHello, 0, 0)
	b = appendPair(b, "version", version)
	b = appendPair(b, "max-frame-size", c.max)
	b = appendPair(b, "capabilities", h.common())
	c.send(endFrame(b))

	if h.healthCheck {
		return errFinished
	}
	return nil
}

// version is that of the protocol, which HAProxy has spoken since 1.8.
const version = "2.0"

// hello is what HAProxy says about itself.
type hello struct {
	versions, capabilities []string
	maxFrame               uint32
	healthCheck            bool
}

// readHello reads the first frame of a connection.
func readHello(f frame) (h hello, err error) {
	if f.kind != haproxyHello || f.flags&final == 0 {
		return h, errInvalid
	}

	// Names that are not known are of later versions of the protocol, and mean nothing here.
	seen := map[string]bool{}
	p := parser{rest: f.payload}
	if err := p.pairs(func(name string, v value) {
		switch name {
		case "supported-versions":
			h.versions = list(v.text)
		case "capabilities":
			h.capabilities = list(v.text)
		case "max-frame-size":
			h.maxFrame = uint32(min(v.number, maxFrame))
		case "healthcheck":
			h.healthCheck = v.number == 1
		}
		seen[name] = true
	}); err != nil {
		return h, err
	}

	// The order is that of the protocol's own error codes.
	switch {
	case !seen["supported-versions"]:
		return h, &fault{noVersion, "the versions are missing"}
	case !seen["max-frame-size"]:
		return h, &fault{noFrameSize, "the size of frames is missing"}
	case !seen["capabilities"]:
		return h, &fault{noCapabilities, "the capabilities are missing"}
	case !slices.ContainsFunc(h.versions, func(v string) bool { return strings.HasPrefix(v, "2.") }):
		return h, &fault{unsupportedVersion, "only version 2 is supported"}
	case h.maxFrame < minFrame:
		return h, &fault{badFrameSize, "the size of frames is below 256"}
	}

	return h, nil
}

// common returns the capabilities that both sides have. Without pipelining HAProxy sends
// the next request when it has the answer to the one before.
func (h *hello) common() string {
	const pipelining = "pipelining"
	if slices.Contains(h.capabilities, pipelining) {
		return pipelining
	}
	return ""
}

// list returns the elements of a list that commas separate.
func list(s string) []string {
	elements := strings.Split(s, ",")
	for i := range elements {
		elements[i] = strings.TrimSpace(elements[i])
	}
	return elements
}

// answer returns the ACK of a NOTIFY, a frame of at most max bytes.
//
// The answer sets variables of the transaction:
//
//	decided    true: the gateway has answered; it is not set if HAProxy could not ask
//	over       whether the request must not pass
//	status     that of the answer if it must not: 400, 403, 429 or 503
//	body       that of the answer if it must not, of type application/problem+json
//	retry_after, ratelimit, ratelimit_policy, x_ratelimit_limit, x_ratelimit_remaining,
//	x_ratelimit_reset
//	           the headers of those names for the answer, whether or not it passes
//	degraded   whether it passes over the limit of a policy that degrades
//
// A request that HAProxy does not describe as request.go says is not decided, and one whose path
// cannot be decoded is refused with status 400.
func (s *Server) answer(ctx context.Context, f frame, max uint32) []byte {
	b := beginFrame(make([]byte, 0, 512), ack, f.stream, f.frame)

	about, ok, err := readMessages(f.payload, Message)
	l := s.limiters[about.app]
	if err == nil && ok && l == nil {
		err = unknownApp
	}

	switch {
	case err == badPath || err == noTarget:
		b = appendRefusal(b, err.Error())
	case err != nil:
		s.options.Log.Record(slog.LevelError, "HAProxy asks about a request that it does not describe",
			slog.String("mistake", err.Error()))
	case ok && !s.trust.Load().upgrades.AllowMethod(about.request.Method, about.request.Header):
		s.options.Log.Record(slog.LevelWarn, "HAProxy asks about a request for a tunnel, which is refused: "+
			"its configuration has to remove Upgrade")
		b = appendRefusal(b, "a connection that switches to this protocol would not be counted")
	case ok:
		b = s.decide(ctx, l, &about, b, int(max)+lengthBytes)
	}

	return endFrame(b)
}

// appendRefusal appends what says that a request is none that may be decided about. detail
// needs no escape in JSON.
func appendRefusal(b []byte, detail string) []byte {
	b = appendVerdict(b, http.StatusBadRequest)
	return appendSet(b, body, `{"type":"about:blank","title":"Bad Request","status":400,"detail":"`+detail+`"}`)
}

// decide appends what the limiter says about the request, so that b has at most max bytes.
func (s *Server) decide(ctx context.Context, l *limiter.Limiter, about *described, b []byte, max int) []byte {
	ctx, cancel := context.WithTimeout(ctx, s.options.MaxWait)
	defer cancel()

	// The plan that HAProxy names has precedence over that of a proxy before it.
	ctx = callers.WithPlan(callers.WithUser(ctx, about.user), about.plan)
	if about.claims != "" {
		claims, err := callers.ReadClaims(about.claims)
		if err != nil {
			s.options.Log.Record(slog.LevelWarn, "the argument claims cannot be read, so the requests have none",
				slog.String("mistake", err.Error()))
		}
		ctx = callers.WithClaims(ctx, claims)
	}
	r := about.request.WithContext(ctx)
	if about.plan == "" {
		r = r.WithContext(callers.WithPlan(ctx, s.trust.Load().callers.Plan(nethttp.Request(r))))
	}

	// The end of the request is not known here, so it ends with the decision. The status is 0 if
	// another server answers, because that answer is not seen here.
	a := l.Admit(nethttp.Request(r))
	defer a.Done(a.Status())

	b = appendVerdict(b, a.Status())
	if a.Degraded() {
		b = appendSet(b, "degraded", true)
	}

	// The verdict and the headers come before the body, which is left out first where a frame is
	// too short.
	a.EachHeader(func(name string, v []byte) {
		if variable := variables[name]; variable != "" {
			b = appendFitting(b, variable, v, max)
		}
	})
	return appendFitting(b, body, a.Problem(), max)
}

// body is the variable that holds the body of an answer.
const body = "body"

// variables are the names of variables by the headers that they hold.
var variables = map[string]string{
	"Retry-After":           "retry_after",
	"Ratelimit":             "ratelimit",
	"Ratelimit-Policy":      "ratelimit_policy",
	"X-Ratelimit-Limit":     "x_ratelimit_limit",
	"X-Ratelimit-Remaining": "x_ratelimit_remaining",
	"X-Ratelimit-Reset":     "x_ratelimit_reset",
}

// appendVerdict appends the variables that say whether a request may pass. status is that
// of the answer if it must not, and otherwise 0.
func appendVerdict(b []byte, status int) []byte {
	b = appendSet(b, "decided", true)
	b = appendSet(b, "over", status != 0)
	if status != 0 {
		b = appendSet(b, "status", int64(status))
	}
	return b
}

// appendFitting appends a variable that is not empty, if b then has at most max bytes. The
// headers of very many policies do not fit in a frame.
func appendFitting(b []byte, name string, v []byte, max int) []byte {
	const overhead = 16 // of an action, above the name and the value
	if len(v) == 0 || len(b)+len(name)+len(v)+overhead > max {
		return b
	}
	return appendSet(b, name, v)
}
