// Package who stands in for authentication in the examples. Alice, Bob and
// Carol sign in by "Authorization: Bearer alice-token" and so on.
package who

import (
	"context"
	"strings"
)

// Is returns the user whose token is in a line of the header Authorization.
func Is(authorization string) (user string, ok bool) {
	token, ok := strings.CutPrefix(authorization, "Bearer ")
	if !ok {
		return "", false
	}
	switch token {
	case "alice-token":
		return "alice", true
	case "bob-token":
		return "bob", true
	case "carol-token":
		return "carol", true
	}
	return "", false
}

type contextKey struct{}

// NewContext returns a context that carries the user.
func NewContext(ctx context.Context, user string) context.Context {
	return context.WithValue(ctx, contextKey{}, user)
}

// FromContext returns the user, if there is one. It fits keyfuncs.UserID.
func FromContext(ctx context.Context) (user string, ok bool) {
	user, ok = ctx.Value(contextKey{}).(string)
	return user, ok
}
