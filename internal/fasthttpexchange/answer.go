package fasthttpexchange

import (
	"github.com/valyala/fasthttp"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/llmusage"
)

// See has the admission see an answer that the handlers have made. The usage in a stream of a
// body is not read, as fasthttp sends it after them.
func See(a *limiter.Admission, answer *fasthttp.Response) {
	if !a.NeedsAnswer() {
		return
	}

	// fasthttp keeps the values, and hands out bytes that it uses again.
	seen := limiter.Seen{Header: func(name string) (lines []string) {
		for _, line := range answer.Header.PeekAll(name) {
			lines = append(lines, string(line))
		}
		return lines
	}}

	if a.NeedsUsage() && !answer.IsBodyStream() {
		seen.Usage = &llmusage.Meter{}
		_, _ = seen.Usage.Write(answer.Body())
	}
	a.See(seen)
}

// Watch takes Accept-Encoding out of a request whose answer's usage is read: what a handler
// compresses cannot be read.
func Watch(ctx *fasthttp.RequestCtx, a *limiter.Admission) {
	if a.NeedsUsage() {
		ctx.Request.Header.Del(fasthttp.HeaderAcceptEncoding)
	}
}

// ReadAhead returns the whole body of a request, which the handlers read again, or false if that
// has more than max bytes, or is read by the handlers as a stream.
func ReadAhead(ctx *fasthttp.RequestCtx, max int64) (text []byte, whole bool) {
	if ctx.Request.IsBodyStream() {
		return nil, false
	}
	text = ctx.Request.Body()
	return text, int64(len(text)) <= max
}
