// This file reads the claims of a token that a trusted proxy has verified.

package callers

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/headgate/headgate/core"
)

// MaxClaims is the maximum length in bytes of claims, as they are sent.
const MaxClaims = 16 << 10

// ReadClaims reads the payload of a token: an object of JSON, plain or in base64url. Numbers stay
// as they are written. The error holds nothing of the text.
func ReadClaims(text string) (claims map[string]any, err error) {
	if text = strings.TrimSpace(text); len(text) > MaxClaims {
		return nil, fmt.Errorf("%d bytes are more than %d", len(text), MaxClaims)
	}

	if !strings.HasPrefix(text, "{") {
		plain, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
		if err != nil {
			return nil, errors.New("it is neither an object of JSON nor base64url")
		}
		text = string(plain)
	}

	// The decoder would pass what stands after the object.
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err = d.Decode(&claims); err != nil || claims == nil {
		return nil, errors.New("it is not an object of JSON")
	}
	if _, err = d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("it goes on after its object")
	}
	return claims, nil
}

// claims returns those that the header has if a trusted proxy sends it in one line.
func (c *Callers) claims(r core.Request) map[string]any {
	if !c.Trusts(r.RemoteAddr()) {
		return nil
	}

	lines := r.Header(c.options.ClaimsHeader)
	if len(lines) == 0 {
		return nil
	}

	// Of two lines one may be the client's, which the proxy has only added to.
	err := errors.New("it has more than one line")
	var claims map[string]any
	if len(lines) == 1 {
		claims, err = ReadClaims(lines[0])
	}
	if err != nil && c.options.Log != nil {
		c.options.Log.Record(slog.LevelWarn, "the header of the claims cannot be read, so the requests have none",
			slog.String("peer", r.RemoteAddr()), slog.String("mistake", err.Error()))
	}
	return claims
}

// claimsKey is the key of the claims in a context.
type claimsKey struct{}

// WithClaims returns a context for a request of a caller with the claims, for core.Request.Context.
// nil is none.
func WithClaims(ctx context.Context, claims map[string]any) context.Context {
	if claims == nil {
		return ctx
	}
	return context.WithValue(ctx, claimsKey{}, claims)
}

// describedClaims returns the function for the claims of requests that are described with them, or
// else as other says, which may be nil.
func describedClaims(other func(core.Request) map[string]any) func(core.Request) map[string]any {
	return func(r core.Request) map[string]any {
		if claims, ok := r.Context().Value(claimsKey{}).(map[string]any); ok {
			return claims
		}
		if other == nil {
			return nil
		}
		return other(r)
	}
}
