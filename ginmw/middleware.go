package ginmw

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/internal/exchange"
	"github.com/headgate/headgate/internal/httpexchange"
	"github.com/headgate/headgate/internal/setup"
	"github.com/headgate/headgate/limiter"
)

// New returns middleware that asks l about every request. It is safe for
// concurrent use and may be used in any number of places. A request that meets
// l more than once is counted the first time; see [limiter.Limiter.Counted].
// New takes one Config or none, and ignores any but the first. It logs mistakes in l and in the
// Config to the log of l; see [limiter.Limiter.CheckRequests]. A nil limiter answers 503.
func New(l *limiter.Limiter, config ...Config) gin.HandlerFunc {
	c, err := setup.ConfigOf(l, config)
	l.LogSetup("ginmw.New", err)

	x := &exchange.Exchange[*gin.Context]{Limiter: l, Framework: &framework{limiter: l}, Skip: c.Skip,
		Refused: own(c.Refused), Failed: own(c.Failed)}
	if c.Degraded != nil {
		x.Degraded = func(g *gin.Context) error { g.Abort(); c.Degraded(g); return nil }
	}
	return func(g *gin.Context) { _ = x.Serve(g) }
}

// own returns a function of the Config, or nil. It has answered if it has written, set a
// status, or added an error that another middleware may answer.
func own(f func(*gin.Context, *limiter.Admission)) exchange.Own[*gin.Context] {
	if f == nil {
		return nil
	}
	return func(c *gin.Context, a *limiter.Admission) (answered bool, err error) {
		c.Abort()
		status, errs := c.Writer.Status(), len(c.Errors)
		f(c, a)
		return c.Writer.Written() || c.Writer.Status() != status || len(c.Errors) > errs, nil
	}
}

// framework is Gin around the handlers after the middleware.
type framework struct {
	limiter *limiter.Limiter
	trust   trust
}

func (*framework) Context(c *gin.Context) context.Context { return c.Request.Context() }

func (f *framework) Ask(c *gin.Context) (*gin.Context, *limiter.Admission) {
	var w http.ResponseWriter = c.Writer
	met, counted := httpexchange.Meet(f.limiter, w, c.Request)
	if counted {
		return c, nil
	}
	a := f.limiter.Admit(f.view(c))
	c.Request = met.Enter(w, c.Request, a)
	return c, a
}

func (*framework) Next(c *gin.Context) error { c.Next(); return nil }

func (*framework) Watch(c *gin.Context, a *limiter.Admission) *gin.Context {
	w := &writer{ResponseWriter: c.Writer, admission: a, usage: httpexchange.ReadUsage(c.Request, a)}
	httpexchange.See(a, w.Header(), w.usage)
	c.Writer = w
	return c
}

// End returns the status of the answer. Without one, an error among those of the context is for
// a middleware around this one to answer, by a status that is not known here.
func (*framework) End(c *gin.Context, a *limiter.Admission, _ error, returned bool) int {
	status := c.Writer.Status()
	switch {
	case c.Writer.Written():
		return status
	case !returned, len(c.Errors) > 0 && status == http.StatusOK:
		return http.StatusInternalServerError
	}
	return a.Unanswered(status)
}

// Write leaves it to the writer when the header goes out before a body: one that compresses
// decides by the body whether it does.
func (*framework) Write(c *gin.Context, a *limiter.Admission) (ok bool, err error) {
	answer, ok := a.Answer()
	if ok {
		c.Abort()
		err = httpexchange.Send(c.Writer, a, answer)
	}
	if ok && len(answer.Body) == 0 {
		c.Writer.WriteHeaderNow()
	}
	return ok, err
}
