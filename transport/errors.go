package transport

import (
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
)

// LimitedError says that a request was not sent, because its turn would come too late. The
// errors of [net/http.Client] wrap it.
type LimitedError struct {
	// Key is what [Config.Key] has returned for the request.
	Key string

	// RetryAfter is the time until the request might be sent, as far as is known: 0 if it is
	// not, and [core.Never] if Config.Limiter never admits it.
	RetryAfter time.Duration

	// Own reports whether Config.Limiter refused the request, and not what the server said.
	Own bool

	// Err is limiter.ErrLimited, or what prevented Config.Limiter from deciding.
	Err error
}

// Error says in one line which key it is about, why the request was not sent, and when to try
// again.
func (e *LimitedError) Error() string {
	by := "by what the server said"
	if e.Own {
		by = "by own limits"
	}
	text := fmt.Sprintf("transport: a request to %q was not sent, %s: %s",
		textform.Clip(e.Key), by, textform.Line(e.Err))
	switch e.RetryAfter {
	case 0:
		return text
	case core.Never:
		return text + "; it never fits"
	}
	return text + "; retry after " + textform.Duration(e.RetryAfter.Round(time.Millisecond))
}

// Unwrap returns Err.
func (e *LimitedError) Unwrap() error { return e.Err }

// retryAfter returns the RetryAfter of an error that is a LimitedError, and 0 of others.
func retryAfter(err error) time.Duration {
	var limited *LimitedError
	if errors.As(err, &limited) {
		return limited.RetryAfter
	}
	return 0
}
