package ginmw

import (
	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/core"
)

// Answer writes what the template returns, for [WithRefused] and [WithFailed]:
//
//	ginmw.WithRefused(ginmw.Answer(core.JSON))
func Answer(t core.Template) func(*gin.Context, *core.Admission) {
	return func(c *gin.Context, a *core.Admission) { write(c, t(a)) }
}

// Fallback answers every request with one answer that is kept ready, for
// [WithDegraded].
func Fallback(answer core.Answer) gin.HandlerFunc {
	return func(c *gin.Context) { write(c, answer) }
}

// problem writes what [Answer] of core.ProblemJSON does.
func problem(c *gin.Context, a *core.Admission) {
	c.Writer.Header()["Content-Type"] = []string{core.ProblemType}
	c.Status(a.Outcome().Status())
	c.Writer.WriteHeaderNow()
	_ = a.WriteProblem(c.Writer) // the client may have left
}

func write(c *gin.Context, answer core.Answer) {
	for _, h := range answer.Headers {
		c.Writer.Header()[h.Name] = []string{h.Value}
	}
	c.Status(answer.Status)
	c.Writer.WriteHeaderNow()
	if len(answer.Body) > 0 {
		_, _ = c.Writer.Write(answer.Body) // the client may have left
	}
}
