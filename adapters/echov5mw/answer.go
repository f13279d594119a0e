package echov5mw

import (
	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate/limiter"
)

// reject answers a refused or failed request. It calls own, the function of
// Config.Refused or Config.Failed, and writes the answer of the Config if own is nil or
// writes nothing.
func reject(c *echo.Context, a *limiter.Admission, own func(*echo.Context, *limiter.Admission) error) error {
	defer a.Done(a.Status())
	if own != nil {
		w := wrap(c, a)
		err := own(c, a)
		w.unwrap(c)
		if err != nil || w.answered() {
			return err
		}
	}
	answer, _ := a.Answer()
	return write(c, answer)
}

// degrade returns a handler for a request over the limit of a Degrade rule.
func (m *middleware) degrade(next echo.HandlerFunc, a *limiter.Admission) echo.HandlerFunc {
	if m.config.Degraded != nil {
		return m.config.Degraded
	}
	return func(c *echo.Context) error {
		if answer, ok := a.Answer(); ok {
			return write(c, answer)
		}
		return next(c)
	}
}

func write(c *echo.Context, answer limiter.Answer) error {
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
