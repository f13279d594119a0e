package limiter

import "context"

type contextKey struct{}

// NewContext returns a context that carries a, for [FromContext]. Adapters call
// it once for an admission.
func NewContext(ctx context.Context, a *Admission) context.Context {
	a.outer = FromContext(ctx)
	return context.WithValue(ctx, contextKey{}, a)
}

// FromContext returns the admission of the request, or nil if nothing about it
// concerns the handler; see [Admission.NeedsContext].
func FromContext(ctx context.Context) *Admission {
	a, _ := ctx.Value(contextKey{}).(*Admission)
	return a
}

// Degraded tells whether the request of ctx passes although it is over the
// limit of a Degrade rule.
func Degraded(ctx context.Context) bool { return FromContext(ctx).Degraded() }
