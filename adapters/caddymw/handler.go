package caddymw

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/headgate/headgate/internal/httpexchange"
	"github.com/headgate/headgate/internal/upgrades"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/llmusage"
)

// The variables of a request that the handler sets.
const (
	// markVar holds the *limiter.Mark of a request that has passed, so that a second
	// handler of the same limits does not count it again. It is not in the header map of
	// the answer, which Caddy's access log shows.
	markVar = "headgate.mark"

	// degradedVar is "true" for a request over the limit of a policy with on_limit:
	// degrade, for a matcher such as "vars headgate.degraded true".
	degradedVar = "headgate.degraded"
)

// Handler limits requests. Its fields are the configuration, in JSON by their names there.
type Handler struct {
	Config

	engine *engine
}

// CaddyModule returns the module's identity.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.headgate", New: func() caddy.Module { return new(Handler) }}
}

// Provision puts the policies in force. The error names every mistake in the configuration.
// If the policies are published in Redis, it succeeds without them, as Redis may be away.
// Until they come all requests pass, and the log says so.
func (h *Handler) Provision(ctx caddy.Context) error { return h.open(ctx.Slogger().Handler()) }

func (h *Handler) open(log slog.Handler) error {
	c, err := h.Config.replaced(caddy.NewReplacer())
	if err = errors.Join(err, c.check()); err != nil {
		return err
	}
	clientLog.set(log)
	h.engine, err = acquire(c, log)
	return err
}

// Cleanup ends the following of policies, unless another handler, such as the one of the
// configuration that takes the place of this one, has the same configuration.
func (h *Handler) Cleanup() error {
	if h.engine == nil {
		return nil
	}
	err := h.engine.release()
	h.engine = nil
	return err
}

// ServeHTTP passes an admitted request to the next handler and answers the others.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	l, ctx := h.engine.limiter, r.Context()

	// A handler of the same limits has counted the request already.
	mark, _ := caddyhttp.GetVar(ctx, markVar).(*limiter.Mark)
	if l.CountedBy(mark) {
		return next.ServeHTTP(w, r)
	}

	// Only a request shows how the site is configured. The load comes first: it is the cheap part.
	if !h.engine.warned.Load() && believesAnyone(r) && !h.engine.warned.Swap(true) {
		h.engine.logger.Warn("headgate: clients can choose the address that they are counted by: " +
			"trusted_proxies is set without trusted_proxies_strict, so Caddy believes the first address of a " +
			"forwarded header, also one that the client has put there")
	}

	a := l.Admit(newRequest(r))
	a.Merge(mark, w.Header().Get)
	setHeaders(w.Header(), a.Headers())
	if a.Status() != 0 {
		return h.refuse(w, a)
	}

	// The request passes, and handlers and matchers behind this one see how.
	caddyhttp.SetVar(ctx, markVar, a.Mark())
	if a.Degraded() {
		caddyhttp.SetVar(ctx, degradedVar, "true")
	}

	h.keepUpgrade(r.Header)
	return pass(w, r, next, a)
}

// keepUpgrade removes the wish for a protocol that is not allowed: in a tunnel such as h2c
// clients send requests that nothing counts.
func (h *Handler) keepUpgrade(header http.Header) {
	if upgrades.Protocols(h.Upgrades).Allow(header) {
		return
	}
	for _, name := range []string{"Upgrade", "Connection", "Http2-Settings"} {
		header.Del(name)
	}
}

// setHeaders makes one list of the values of all headers.
func setHeaders(h http.Header, list []limiter.Header) {
	values := make([]string, len(list))
	for i, f := range list {
		values[i] = f.Value
		h[f.Name] = values[i : i+1 : i+1]
	}
}

// The errors that the error routes of a site get.
var (
	errRefused = errors.New("headgate: the request is over a limit")
	errFailed  = errors.New("headgate: whether the request is over a limit cannot be decided now")
)

// refuse answers a request that does not pass, or has the error routes of the site do so.
func (h *Handler) refuse(w http.ResponseWriter, a *limiter.Admission) error {
	status := a.Status()
	defer a.Done(status)

	if h.HandleErrors {
		if status == http.StatusServiceUnavailable {
			return caddyhttp.Error(status, errFailed)
		}
		return caddyhttp.Error(status, errRefused)
	}

	answer, _ := a.Answer()
	setHeaders(w.Header(), answer.Headers)
	w.WriteHeader(answer.Status)
	_, _ = w.Write(answer.Body) // the client may have left
	return nil
}

// pass has the next handler answer.
func pass(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, a *limiter.Admission) error {
	if a.NeedsContext() {
		r = r.WithContext(limiter.NewContext(r.Context(), a))
	}

	// Most requests need no recorder, which would cost each of them an allocation.
	if !a.NeedsStatus() && !a.HoldsLeases() {
		defer a.Done(http.StatusOK)
		return next.ServeHTTP(w, r)
	}

	// The status of the answer, or that of the error, is known at the end. A panic is a 500 too.
	rec := &recorder{ResponseWriterWrapper: &caddyhttp.ResponseWriterWrapper{ResponseWriter: w}, admission: a,
		usage: httpexchange.ReadUsage(r, a)}
	httpexchange.See(a, w.Header(), rec.usage)
	status := http.StatusInternalServerError
	defer func() { a.Done(cmp.Or(rec.sent, status)) }()

	err := next.ServeHTTP(rec, r)
	a.Answered()
	if status = statusOfError(err); err == nil { // not reached by a panic
		status = a.Unanswered(status)
	}
	return err
}

// recorder records the status of an answer, and keeps leases when the handler takes over
// the connection. [http.ResponseController] reaches the writer underneath through Unwrap,
// by which Caddy's handlers flush.
type recorder struct {
	*caddyhttp.ResponseWriterWrapper
	admission *limiter.Admission
	sent      int             // the final status that was sent, or 0
	usage     *llmusage.Meter // reads the body, or nil
}

// statusOfError returns the status of a handler that has returned err without an answer: an
// error is answered by the error routes of the site.
func statusOfError(err error) int {
	var answered caddyhttp.HandlerError
	switch {
	case err == nil:
		return http.StatusOK
	case errors.As(err, &answered):
		return cmp.Or(answered.StatusCode, http.StatusInternalServerError)
	}
	return http.StatusInternalServerError
}

func (r *recorder) send(status int) {
	informs := status < 200 && status != http.StatusSwitchingProtocols
	if r.sent == 0 && !informs {
		r.sent = status
	}
}

// WriteHeader records the status and sends it.
func (r *recorder) WriteHeader(status int) {
	r.send(status)
	r.ResponseWriterWrapper.WriteHeader(status)
}

// Write sends 200 if no status was sent before.
func (r *recorder) Write(p []byte) (int, error) {
	r.send(http.StatusOK)
	if r.usage != nil {
		_, _ = r.usage.Write(p) // also what the client does not get any more
	}
	return r.ResponseWriterWrapper.Write(p)
}

// ReadFrom sends 200 if no status was sent before.
func (r *recorder) ReadFrom(src io.Reader) (int64, error) {
	r.send(http.StatusOK)
	if r.usage != nil {
		src = io.TeeReader(src, r.usage)
	}
	return r.ResponseWriterWrapper.ReadFrom(src)
}

// Hijack returns a connection that keeps the leases until it is closed.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(r.ResponseWriterWrapper.ResponseWriter).Hijack()
	if err != nil {
		return conn, rw, err
	}
	r.send(http.StatusSwitchingProtocols)
	return r.admission.HoldConn(conn), rw, nil
}
