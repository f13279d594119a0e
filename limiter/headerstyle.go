package limiter

import (
	"errors"
	"fmt"
)

// HeaderStyle names the rate limit headers of an answer. Values combine with
// "|". The zero value means XRateLimit | Draft8.
type HeaderStyle uint8

const (
	// XRateLimit is X-RateLimit-Limit, -Remaining and -Reset, the last in
	// seconds since the Unix epoch, as GitHub sends them.
	XRateLimit HeaderStyle = 1 << iota

	// XRateLimitDelta is the same with the seconds that are left in -Reset.
	XRateLimitDelta

	// Draft8 is RateLimit-Policy and RateLimit, in the form that
	// draft-ietf-httpapi-ratelimit-headers has had since its version 08.
	Draft8

	// NoHeaders is none of them. A refusal has a Retry-After nevertheless.
	NoHeaders

	styleEnd
)

func (s HeaderStyle) check() error {
	switch {
	case s >= styleEnd:
		return fmt.Errorf("Headers: style %#x is not known", uint8(s))
	case s&NoHeaders != 0 && s != NoHeaders:
		return errors.New("Headers: NoHeaders combines with nothing")
	case s&XRateLimit != 0 && s&XRateLimitDelta != 0:
		return errors.New("Headers: XRateLimit and XRateLimitDelta give one header two meanings")
	}
	return nil
}

// Header is one header field. Names are in the form that
// [net/textproto.CanonicalMIMEHeaderKey] returns, such as "X-Ratelimit-Limit".
type Header struct{ Name, Value string }
