package auth

import (
	"context"
	"errors"
	"strconv"
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
//
// No number of failures elsewhere locks a user out. A browser in which the user has logged
// in before has a limit of its own. Many failures of one user make every unknown address
// slower, and none is refused because of the others.
type Attempts struct {
	device  *limiter.Limiter // a known browser
	unknown *limiter.Limiter // all others
	slow    *limiter.Limiter // all others, while a user is under attack
	code    *limiter.Limiter // all others, with a code of a second factor
	notes   *limiter.Limiter
}

// NewAttempts returns an Attempts without counts. The clock returns microseconds
// since the Unix epoch; nil means the system's.
func NewAttempts(clock func() int64) (*Attempts, error) {
	store, err := memstore.New(memstore.Options{MaxKeys: attemptKeys, Clock: clock})
	if err != nil {
		return nil, err
	}

	pair := keyfuncs.Join(attemptUser, attemptAddress)
	a := &Attempts{}
	for _, l := range []struct {
		to    **limiter.Limiter
		rules []limiter.Rule
	}{
		{&a.device, []limiter.Rule{
			{
				Name: "login-device", Limit: core.Limit{Quota: 5, Period: 5 * time.Minute},
				Key: keyfuncs.Join(attemptUser, attemptDevice),
			},
		}},

		// The last rule refuses no attempt: beyond it the attempt is degraded, which Admit answers
		// with the slow limiter.
		{&a.unknown, []limiter.Rule{
			{Name: "login-pair", Limit: core.Limit{Quota: 5, Period: 5 * time.Minute}, Key: pair},
			{Name: "login-address", Limit: core.Limit{Quota: 30, Period: 15 * time.Minute}, Key: attemptAddress},
			{
				Name: "login-user", Limit: core.Limit{Quota: 100, Period: time.Hour}, Key: attemptUser,
				OnLimit: limiter.Degrade,
			},
		}},
		{&a.slow, []limiter.Rule{
			{Name: "login-slow", Limit: core.Limit{Quota: 2, Period: 10 * time.Minute}, Key: pair},
		}},
		{&a.code, []limiter.Rule{
			{Name: "login-code", Limit: core.Limit{Quota: 20, Period: time.Hour}, Key: attemptUser},
		}},
		{&a.notes, []limiter.Rule{
			{Name: "login-note", Limit: core.Limit{Quota: 60, Period: time.Hour}, Key: keyfuncs.Global},
		}},
	} {
		*l.to, err = limiter.New(limiter.Config{Store: store, Rules: l.rules, OnStoreError: limiter.FailClosed})
		if err != nil {
			return nil, err
		}
	}

	return a, nil
}

// Attempt is an attempt to log in. Attempts of another epoch are not counted with it.
type Attempt struct {
	Epoch   int64
	User    string
	Address string // "ip" or "ip:port"
	Device  string // identifies a browser in which the user has logged in before; "" for any other

	// Code means that the attempt is one with a code of RFC 6238 after the right password.
	// There are only a million codes, so many addresses together could try them all, and
	// unknown browsers share a limit. The user may still use a recovery code, or a known
	// browser.
	Code bool
}

// Try is an attempt that was admitted. The caller ends it by Failed or Succeeded,
// once.
type Try struct {
	admissions []*limiter.Admission

	// Slowed reports that the user has failed so often that unknown addresses are slowed
	// down.
	Slowed bool
}

// Admit counts an attempt. ok reports whether it is admitted. If not, retryAfter is the
// time until the next one is.
func (a *Attempts) Admit(ctx context.Context, of Attempt) (t Try, retryAfter time.Duration, ok bool) {
	r := attempt{ctx: ctx, Attempt: of}

	// A known browser that has used up its own limit goes on as an unknown one.
	if of.Device != "" && t.add(a.device.Admit(r)) == 0 {
		return t, 0, true
	}

	if retryAfter = t.add(a.unknown.Admit(r)); retryAfter > 0 {
		return Try{}, retryAfter, false
	}

	// The further limits apply in addition. Each is asked only if those before it have admitted.
	if t.Slowed = t.admissions[0].Degraded(); t.Slowed {
		retryAfter = t.add(a.slow.Admit(r))
	}
	if of.Code && retryAfter == 0 {
		retryAfter = t.add(a.code.Admit(r))
	}

	if retryAfter > 0 {
		_ = t.Succeeded(ctx) // nothing is checked, so the attempt does not count
		return Try{}, retryAfter, false
	}

	return t, 0, true
}

// add keeps an admission, or returns how long it has to wait.
func (t *Try) add(admission *limiter.Admission) time.Duration {
	if admission.Outcome() == limiter.Pass {
		t.admissions = append(t.admissions, admission)
		return 0
	}
	retryAfter := admission.Result().RetryAfter()
	admission.Done(admission.Status())
	return max(retryAfter, time.Second)
}

// Failed ends an attempt with a wrong name or password.
func (t Try) Failed() {
	for _, admission := range t.admissions {
		admission.Done(401)
	}
}

// Succeeded ends an attempt with the right password, and refunds its cost.
func (t Try) Succeeded(ctx context.Context) error {
	var errs []error
	for _, admission := range t.admissions {
		errs = append(errs, admission.Result().Refund(ctx))
		admission.Done(200)
	}
	return errors.Join(errs...)
}

// WorthNoting reports whether to write a refused attempt to the audit log. It
// admits 60 an hour, so that a flood cannot fill the database.
func (a *Attempts) WorthNoting(ctx context.Context) bool {
	r, err := a.notes.Take(ctx, "", 1)
	return err == nil && r.Allowed()
}

// attempt is the core.Request of the rules.
type attempt struct {
	ctx context.Context
	Attempt
}

func (a attempt) in(key string) string { return strconv.FormatInt(a.Epoch, 10) + " " + key }

func attemptUser(r core.Request) (string, bool) {
	a := r.(attempt)
	return a.in(a.User), true
}

func attemptDevice(r core.Request) (string, bool) { return r.(attempt).Device, true }

func attemptAddress(r core.Request) (string, bool) {
	network, ok := keyfuncs.RemoteIP(r)
	return r.(attempt).in(network), ok
}

func (a attempt) Context() context.Context { return a.ctx }
func (a attempt) Method() string           { return "POST" }
func (a attempt) Path() string             { return "" }
func (a attempt) Route() string            { return "" }
func (a attempt) RemoteAddr() string       { return a.Address }
func (a attempt) Header(string) []string   { return nil }
