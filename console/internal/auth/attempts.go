package auth

import (
	"context"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/memstore"
)

// attemptKeys is how many users, addresses and pairs of them are remembered.
const attemptKeys = 1 << 16

// Attempts limits how often users and addresses may fail to log in. No managed
// policy changes these limits, so that no policy can lock all users out of the
// console. It is safe for concurrent use.
type Attempts struct {
	limiter *limiter.Limiter
	notes   *limiter.Limiter
}

// NewAttempts returns an Attempts without counts. The clock returns microseconds
// since the Unix epoch; nil means the system's.
func NewAttempts(clock func() int64) (*Attempts, error) {
	store, err := memstore.New(memstore.Options{MaxKeys: attemptKeys, Clock: clock})
	if err != nil {
		return nil, err
	}
	a := &Attempts{}
	if a.limiter, err = newLimiter(store, attemptRules()...); err != nil {
		return nil, err
	}
	note := limiter.Rule{Name: "login-note", Limit: core.Limit{Quota: 60, Period: time.Hour}, Key: keyfuncs.Global}
	if a.notes, err = newLimiter(store, note); err != nil {
		return nil, err
	}
	return a, nil
}

// attemptRules returns the rules. They are strictest on one user from one address,
// so that an attacker does not soon lock the user out at other addresses.
func attemptRules() []limiter.Rule {
	user := func(r core.Request) (string, bool) { return r.(attempt).user, true }
	return []limiter.Rule{
		{Name: "login-pair", Limit: core.Limit{Quota: 5, Period: 5 * time.Minute}, Key: keyfuncs.Join(user, keyfuncs.RemoteIP)},
		{Name: "login-address", Limit: core.Limit{Quota: 30, Period: 15 * time.Minute}, Key: keyfuncs.RemoteIP},
		{Name: "login-user", Limit: core.Limit{Quota: 100, Period: time.Hour}, Key: user},
	}
}

func newLimiter(store core.Store, rules ...limiter.Rule) (*limiter.Limiter, error) {
	return limiter.New(limiter.Config{Store: store, Rules: rules, OnStoreError: limiter.FailClosed})
}

// Try is an attempt that was admitted. The caller ends it by Failed or Succeeded,
// once.
type Try struct{ admission *limiter.Admission }

// Begin counts an attempt of a user from an address, "ip" or "ip:port". ok reports
// whether it is admitted. If not, retryAfter is the time until the next one is.
func (a *Attempts) Begin(ctx context.Context, user, address string) (t Try, retryAfter time.Duration, ok bool) {
	admission := a.limiter.Admit(attempt{ctx: ctx, user: user, address: address})
	if admission.Outcome() != limiter.Pass {
		retryAfter = admission.Result().RetryAfter()
		admission.Done(admission.Status())
		return Try{}, retryAfter, false
	}
	return Try{admission}, 0, true
}

// Failed ends an attempt with a wrong name or password.
func (t Try) Failed() { t.admission.Done(401) }

// Succeeded ends an attempt with the right password, and refunds its cost.
func (t Try) Succeeded(ctx context.Context) error {
	err := t.admission.Result().Refund(ctx)
	t.admission.Done(200)
	return err
}

// WorthNoting reports whether to write a refused attempt to the audit log. It
// admits 60 an hour, so that a flood cannot fill the database.
func (a *Attempts) WorthNoting(ctx context.Context) bool {
	r, err := a.notes.Take(ctx, "", 1)
	return err == nil && r.Allowed()
}

// attempt is the core.Request of the rules.
type attempt struct {
	ctx           context.Context
	user, address string
}

func (a attempt) Context() context.Context { return a.ctx }
func (a attempt) Method() string           { return "POST" }
func (a attempt) Path() string             { return "" }
func (a attempt) Route() string            { return "" }
func (a attempt) RemoteAddr() string       { return a.address }
func (a attempt) Header(string) []string   { return nil }
