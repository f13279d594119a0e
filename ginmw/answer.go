package ginmw

import (
	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/limiter"
)

// Answer writes what the template returns, for [WithRefused] and [WithFailed]:
//
//	ginmw.WithRefused(ginmw.Answer(limiter.JSON))
func Answer(t limiter.Template) func(*gin.Context, *limiter.Admission) {
	return func(c *gin.Context, a *limiter.Admission) { write(c, t(a)) }
}

// Fallback answers every request with one answer that is kept ready, for
// [WithDegraded].
func Fallback(answer limiter.Answer) gin.HandlerFunc {
	return func(c *gin.Context) { write(c, answer) }
}

// problem writes what [Answer] of limiter.ProblemJSON does.
func problem(c *gin.Context, a *limiter.Admission) {
	c.Writer.Header()["Content-Type"] = []string{limiter.ProblemType}
	c.Status(a.Outcome().Status())
	c.Writer.WriteHeaderNow()
	_ = a.WriteProblem(c.Writer) // the client may have left
}

func write(c *gin.Context, answer limiter.Answer) {
	for _, h := range answer.Headers {
		c.Writer.Header()[h.Name] = []string{h.Value}
	}
	c.Status(answer.Status)
	c.Writer.WriteHeaderNow()
	if len(answer.Body) > 0 {
		_, _ = c.Writer.Write(answer.Body) // the client may have left
	}
}
