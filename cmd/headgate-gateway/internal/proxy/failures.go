// This file answers requests that the upstream does not answer.

package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"syscall"

	"github.com/headgate/headgate/internal/quietlog"
	"github.com/headgate/headgate/limiter"
)

// failure is a reason for which the upstream does not answer a request.
type failure struct {
	status int
	level  slog.Level
	text   string // for the log
	detail string // for the client; "" if the client has gone
}

// statusGone is the status of a request whose client has gone, as nginx logs it. It is
// never sent.
const statusGone = 499

var (
	tooLarge = failure{http.StatusRequestEntityTooLarge, slog.LevelInfo,
		"a request had a larger body than the gateway passes on", "the body of the request is too large"}
	tooSlow = failure{http.StatusRequestTimeout, slog.LevelInfo,
		"a client did not send the body of its request in time", "the body of the request did not come in time"}
	badBody = failure{http.StatusBadRequest, slog.LevelInfo,
		"a client broke off the body of its request", "the body of the request is incomplete"}
	gone = failure{statusGone, slog.LevelDebug,
		"a client has gone before its answer", ""}
	ended = failure{http.StatusServiceUnavailable, slog.LevelWarn,
		"a request was broken off as the gateway ends", "the gateway is being restarted"}
	refused = failure{http.StatusBadGateway, slog.LevelError,
		"the upstream refuses connections", "the server behind the gateway cannot be reached"}
	unreachable = failure{http.StatusBadGateway, slog.LevelError,
		"the upstream cannot be reached", "the server behind the gateway cannot be reached"}
	late = failure{http.StatusGatewayTimeout, slog.LevelError,
		"the upstream did not answer in time", "the server behind the gateway did not answer in time"}
	broken = failure{http.StatusBadGateway, slog.LevelError,
		"the upstream broke off a request", "the server behind the gateway gave no valid answer"}
)

// failed is called for a request that the upstream has not answered.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	// An interim answer of the upstream may have removed the headers of the limiter.
	x := exchangeOf(r.Context())
	x.restore()

	f := x.failure(r.Context(), err)
	p.logFailure(f, slog.String("upstream", x.call.Address()), slog.String("error", err.Error()))
	if f.detail == "" {
		w.WriteHeader(f.status)
		return
	}
	write(w, f.status, f.detail)
}

// failure returns the reason of an error. What the client has caused comes before what the
// upstream has: a request that the client breaks off makes the upstream fail too.
func (e *exchange) failure(ctx context.Context, err error) failure {
	var large *http.MaxBytesError
	var dial *net.OpError
	isDial := errors.As(err, &dial) && dial.Op == "dial"

	switch {
	case errors.As(err, &large) || errors.As(e.bodyErr, &large):
		return tooLarge
	case errors.Is(e.bodyErr, os.ErrDeadlineExceeded):
		return tooSlow
	// A context that was canceled is that of the connection; one with another cause is the server's
	// end.
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled):
		return gone
	case ctx.Err() != nil:
		return ended
	case e.bodyErr != nil:
		return badBody
	// A refused connection is a failed dial as well, and a late one may be, so both come first.
	case errors.Is(err, syscall.ECONNREFUSED):
		return refused
	case isTimeout(err):
		return late
	case isDial:
		return unreachable
	}
	return broken
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// logFailure logs a failure, in few lines however many there are.
func (p *Proxy) logFailure(f failure, attrs ...slog.Attr) {
	p.options.Log.Record(f.level, f.text, attrs...)
}

// write answers with a problem (RFC 9457), as the limiter does.
func write(w http.ResponseWriter, status int, detail string) {
	body, _ := json.Marshal(struct {
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{http.StatusText(status), status, detail}) // texts and a number

	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", limiter.ProblemType)
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	w.Write(append(body, '\n'))
}

// brokenOff receives the lines of ReverseProxy, which are about answers that end too soon.
type brokenOff struct{ events *quietlog.Log }

// Write implements io.Writer.
func (b brokenOff) Write(line []byte) (int, error) {
	b.events.Record(slog.LevelWarn, "an answer was broken off by the upstream or the client",
		slog.String("last", string(line[:min(len(line), 200)])))
	return len(line), nil
}
