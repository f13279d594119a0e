package callers

import (
	"context"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// userKey is the key of the user in a context.
type userKey struct{}

// WithUser returns a context for a request of the user, for core.Request.Context. "" is no
// user.
func WithUser(ctx context.Context, user string) context.Context {
	if user == "" {
		return ctx
	}
	return context.WithValue(ctx, userKey{}, user)
}

// Described returns the bindings of a face whose clients describe requests to the gateway
// and are believed: the user is that of [WithUser] and the claims are those of [WithClaims], or
// else as b says, and the plan is that of [WithPlan].
func Described(b policy.Bindings) policy.Bindings {
	other := b.User // of a request that is described without a user
	b.User = func(r core.Request) (string, bool) {
		if user, ok := r.Context().Value(userKey{}).(string); ok {
			return user, true
		}
		if other == nil {
			return "", true
		}
		return other(r)
	}

	b.Claims = describedClaims(b.Claims)

	// The map of b may be in use by other faces, so it is copied and not added to.
	plans := map[string]policy.PlanFunc{PlanBy: planOf}
	for name, f := range b.Plans {
		plans[name] = f
	}
	b.Plans = plans
	return b
}
