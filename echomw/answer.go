package echomw

import (
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/limiter"
)

// Answer writes what the template returns, for [WithRefused] and [WithFailed]:
//
//	echomw.WithRefused(echomw.Answer(limiter.JSON))
func Answer(t limiter.Template) func(echo.Context, *limiter.Admission) error {
	return func(c echo.Context, a *limiter.Admission) error { return write(c, t(a)) }
}

// Fallback answers every request with one answer that is kept ready, for
// [WithDegraded].
func Fallback(answer limiter.Answer) echo.HandlerFunc {
	return func(c echo.Context) error { return write(c, answer) }
}

// problem writes what [Answer] of limiter.ProblemJSON does.
func problem(c echo.Context, a *limiter.Admission) error {
	w := c.Response()
	w.Header()["Content-Type"] = []string{limiter.ProblemType}
	w.WriteHeader(a.Outcome().Status())
	return a.WriteProblem(w)
}

func write(c echo.Context, answer limiter.Answer) error {
	w := c.Response()
	for _, h := range answer.Headers {
		w.Header()[h.Name] = []string{h.Value}
	}
	w.WriteHeader(answer.Status)
	if len(answer.Body) == 0 {
		return nil
	}
	_, err := w.Write(answer.Body)
	return err
}
