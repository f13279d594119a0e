package ginmw

import (
	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/limiter"
)

// reject answers a refused or failed request. It calls own, the function of
// Config.Refused or Config.Failed, and writes the answer of the Config if own is nil or
// writes nothing.
func reject(c *gin.Context, a *limiter.Admission, own func(*gin.Context, *limiter.Admission)) {
	defer a.Done(a.Status())
	c.Abort()
	if own != nil && answered(c, a, own) {
		return
	}
	answer, _ := a.Answer()
	write(c, answer)
}

// answered calls own and reports whether own has written, set a status, or added an
// error that another middleware may answer.
func answered(c *gin.Context, a *limiter.Admission, own func(*gin.Context, *limiter.Admission)) bool {
	status, errs := c.Writer.Status(), len(c.Errors)
	own(c, a)
	return c.Writer.Written() || c.Writer.Status() != status || len(c.Errors) > errs
}

func write(c *gin.Context, answer limiter.Answer) {
	for _, h := range answer.Headers {
		c.Writer.Header()[h.Name] = []string{h.Value}
	}
	c.Status(answer.Status)
	if len(answer.Body) == 0 {
		c.Writer.WriteHeaderNow()
		return
	}
	// A writer that compresses decides by the first Write whether it does, and says so in the
	// header, which is still to be sent then.
	_, _ = c.Writer.Write(answer.Body) // the client may have left
}
