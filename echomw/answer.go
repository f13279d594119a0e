package echomw

import (
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/core"
)

// Answer writes what the template returns, for [WithRefused] and [WithFailed]:
//
//	echomw.WithRefused(echomw.Answer(core.JSON))
func Answer(t core.Template) func(echo.Context, *core.Admission) error {
	return func(c echo.Context, a *core.Admission) error { return write(c, t(a)) }
}

// Fallback answers every request with one answer that is kept ready, for
// [WithDegraded].
func Fallback(answer core.Answer) echo.HandlerFunc {
	return func(c echo.Context) error { return write(c, answer) }
}

// problem writes what [Answer] of core.ProblemJSON does.
func problem(c echo.Context, a *core.Admission) error {
	w := c.Response()
	w.Header()["Content-Type"] = []string{core.ProblemType}
	w.WriteHeader(a.Outcome().Status())
	return a.WriteProblem(w)
}

func write(c echo.Context, answer core.Answer) error {
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
