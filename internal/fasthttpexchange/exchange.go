// Package fasthttpexchange has what the adapters for the versions of Fiber do alike with a request
// of fasthttp and its answer. It imports neither version. [Meet] reports whether a limiter has
// counted a request before.
package fasthttpexchange

import (
	"github.com/valyala/fasthttp"

	"github.com/headgate/headgate/limiter"
)

// markKey is the key of the mark among the values of a request.
type markKey struct{}

// Meet returns the mark of a request, or nil, and reports whether l is among its limiters, and
// so has counted the request before.
func Meet(l *limiter.Limiter, ctx *fasthttp.RequestCtx) (mark *limiter.Mark, counted bool) {
	mark, _ = ctx.UserValue(markKey{}).(*limiter.Mark)
	return mark, mark != nil && l.CountedBy(mark)
}

// Enter sets the headers of a limiter, merged with those of the limiters of the mark, which may
// be nil. Of a request that passes it leaves the mark, until the request ends.
func Enter(ctx *fasthttp.RequestCtx, a *limiter.Admission, mark *limiter.Mark) {
	header := &ctx.Response.Header
	if mark != nil {
		a.Merge(mark, func(name string) string { return string(header.Peek(name)) })
	}
	a.SetCanonical(header)
	if a.Outcome() == limiter.Pass {
		ctx.SetUserValue(markKey{}, a.Mark())
	}
}

// Write writes the answer of an admission, and reports whether it has one. It copies the body,
// because the admission may reuse its memory.
func Write(ctx *fasthttp.RequestCtx, a *limiter.Admission) (ok bool) {
	answer, ok := a.Answer()
	if !ok {
		return false
	}

	response := &ctx.Response
	response.SetStatusCode(answer.Status)
	for _, h := range answer.Headers {
		if h.Name == fasthttp.HeaderContentType {
			response.Header.SetContentType(h.Value) // half the time of Set
			continue
		}
		response.Header.Set(h.Name, h.Value)
	}

	// fasthttp keeps the body until it is sent, which is after the admission has ended.
	response.SetBody(answer.Body)
	return true
}

// Answered calls own, the program's own answer, and reports whether it has set a status or a
// body, or taken over the connection. What it has set is gone if it panics, which would end
// the process.
func Answered(l *limiter.Limiter, ctx *fasthttp.RequestCtx, own func() error) (answered bool, err error) {
	answer := &ctx.Response
	status := answer.StatusCode()
	if !l.Try("Config.Refused or Config.Failed", func() bool { err = own(); return true }) {
		answer.ResetBody()
		answer.SetStatusCode(status)
		return false, nil
	}
	return Outlives(ctx) || answer.StatusCode() != status || len(answer.Body()) > 0, err
}
