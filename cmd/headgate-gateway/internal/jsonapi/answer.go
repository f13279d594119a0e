// This file decides about items.

package jsonapi

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

// seconds is a time that JSON shows in seconds.
type seconds time.Duration

// MarshalJSON implements [json.Marshaler].
func (s seconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(time.Duration(s).Microseconds())/1e6, 'f', -1, 64), nil
}

// roundedUp returns the seconds in whole, at least 1.
func (s seconds) roundedUp() int64 {
	return max(1, int64(math.Ceil(time.Duration(s).Seconds())))
}

// The outcomes of a take.
const (
	allowed      = "allowed"
	degraded     = "degraded"
	refused      = "refused"
	banned       = "banned"
	denied       = "denied"
	impossible   = "impossible"
	failedOpen   = "failed_open"
	failedClosed = "failed_closed"
)

// The outcomes of what a client does with a token.
const (
	done     = "done"
	repeated = "repeated"
	unknown  = "unknown"
)

// answer is the answer to an item. Fields that do not concern it are left out.
type answer struct {
	Allowed    *bool      `json:"allowed,omitempty"`
	Outcome    string     `json:"outcome,omitempty"`
	Degraded   *bool      `json:"degraded,omitempty"`
	Undecided  bool       `json:"undecided,omitempty"`
	RetryAfter *seconds   `json:"retry_after,omitempty"`
	Policies   []decision `json:"policies,omitzero"`
	Charged    []charge   `json:"charged,omitzero"`
	Held       *bool      `json:"held,omitempty"`
	Token      string     `json:"token,omitempty"`
	TTL        *seconds   `json:"lease_ttl,omitempty"`
	Recorded   *bool      `json:"recorded,omitempty"`
	Problem    *problem   `json:"problem,omitempty"`

	replayed bool
	raw      json.RawMessage // of a take that was answered before
}

// plain is an answer without its methods.
type plain answer

// MarshalJSON implements [json.Marshaler].
func (a answer) MarshalJSON() ([]byte, error) {
	if a.raw != nil {
		return a.raw, nil
	}
	return json.Marshal(plain(a))
}

// decision is what one policy says.
type decision struct {
	Policy     string   `json:"policy"`
	Allowed    bool     `json:"allowed"`
	OnLimit    string   `json:"on_limit"`
	Limit      int64    `json:"limit"`
	Remaining  int64    `json:"remaining"`
	Credit     int64    `json:"credit,omitempty"`
	Reset      seconds  `json:"reset"`
	RetryAfter *seconds `json:"retry_after,omitempty"`
}

// charge is what a debit has charged under one policy.
type charge struct {
	Policy    string  `json:"policy"`
	Units     int64   `json:"units"`
	Remaining int64   `json:"remaining"`
	Reset     seconds `json:"reset"`
}

// failed returns the answer to an item that could not be carried out.
func failed(status int, detail string) answer {
	p := &problem{Status: status, Detail: detail}
	if status == http.StatusConflict || status == http.StatusServiceUnavailable {
		p.retryAfter = 1
	}
	return answer{Problem: p.complete()}
}

// decisions returns what the policies say, but for those that clients do not see.
func decisions(list []limiter.RuleDecision) []decision {
	out := []decision{}
	for _, d := range list {
		if d.OnLimit == limiter.Shadow {
			continue
		}
		one := decision{
			Policy: d.Rule, Allowed: d.Decision.Allowed, OnLimit: action(d.OnLimit), Limit: d.Limit.Capacity(),
			Remaining: d.Decision.Remaining, Credit: d.Decision.Credit, Reset: seconds(d.Decision.ResetAfter),
		}
		if !d.Decision.Allowed && d.Decision.RetryAfter != core.Never {
			one.RetryAfter = (*seconds)(&d.Decision.RetryAfter)
		}
		out = append(out, one)
	}
	return out
}

// action returns the name of an action without its wait, as this face waits for nothing.
func action(a limiter.Action) string {
	if a == limiter.Degrade {
		return "degrade"
	}
	return "reject"
}

// recorded is what is kept of an item with an id.
type recorded struct {
	Same   string          `json:"same"` // the digest of what was asked
	Answer json.RawMessage `json:"answer,omitempty"`
}

// once returns do for items of which none with the same id was answered before.
func (h *handler) once(do func(context.Context, *item) answer) func(context.Context, *item) answer {
	return func(ctx context.Context, i *item) answer {
		if i.id == "" {
			return do(ctx, i)
		}
		return h.doOnce(ctx, i, do)
	}
}

// doOnce answers an item with an id.
func (h *handler) doOnce(ctx context.Context, i *item, do func(context.Context, *item) answer) answer {
	// The record is claimed before the item is carried out, so that of two with one id, at two
	// gateways, only one is.
	mine := recorded{Same: hashed(i.same)}
	claim, _ := json.Marshal(mine) // of a text
	soon, cancel := context.WithTimeout(ctx, h.patience)
	there, err := h.records.claim(soon, i.id, string(claim), min(claimFor, h.ttl))
	cancel()
	if err == nil && there != "" {
		return replay(there, mine.Same)
	}

	// Where nothing can be recorded the item is carried out all the same: to count twice is better
	// than to fail.
	h.logRecordFailure(err)
	a := do(ctx, i)

	kept := err == nil
	switch {
	case !kept:
	case a.Problem != nil || a.Outcome == failedClosed: // a repetition may be decided
		h.logRecordFailure(h.records.remove(ctx, i.id))
		return a
	default:
		a.Recorded = &kept
		mine.Answer, _ = json.Marshal(a) // of this package's own type
		text, _ := json.Marshal(mine)
		err = h.records.replace(ctx, i.id, string(text), h.ttl)
		h.logRecordFailure(err)
		kept = err == nil
	}

	a.Recorded = &kept
	return a
}

// logRecordFailure logs that a record could not be kept.
func (h *handler) logRecordFailure(err error) {
	if err == nil {
		return
	}
	h.log.Record(slog.LevelWarn, "the JSON face cannot keep records, so that takes are counted again "+
		"when they are repeated, and nothing is refunded or settled", slog.String("error", err.Error()))
}

// replay returns the answer that was given before.
func replay(there, same string) answer {
	var r recorded
	if err := json.Unmarshal([]byte(there), &r); err != nil || r.Same != same {
		return failed(http.StatusUnprocessableEntity, "the id was used before, for something else")
	}
	if r.Answer == nil {
		return failed(http.StatusConflict, "an item with this id is under way")
	}

	// The time to wait is in the body already, and is read again for the header Retry-After.
	a := answer{raw: r.Answer, replayed: true}
	var first struct {
		RetryAfter *float64 `json:"retry_after"`
	}
	if err := json.Unmarshal(r.Answer, &first); err == nil && first.RetryAfter != nil {
		a.RetryAfter = new(seconds)
		*a.RetryAfter = seconds(*first.RetryAfter * float64(time.Second))
	}
	return a
}

// take counts the item.
func (h *handler) take(ctx context.Context, i *item) answer {
	l := h.limiters[i.app]
	var res *limiter.Result
	var err error
	switch {
	case i.key != nil:
		res, err = l.Take(ctx, *i.key, i.cost)
	case i.costed:
		res, err = l.TakeRequestUnits(i.describedRequest(ctx), i.cost)
	default:
		res, err = l.TakeRequest(i.describedRequest(ctx)) // which costs what each policy says
	}

	// ErrUndecided comes with a result: the failure modes of the policies have answered.
	if err != nil && !errors.Is(err, limiter.ErrUndecided) {
		return failed(http.StatusServiceUnavailable, "no policy could decide")
	}

	ok, soft := res.Allowed(), res.Degraded()
	a := answer{
		Allowed: &ok, Degraded: &soft, Undecided: res.Undecided(),
		Outcome: outcome(res), Policies: decisions(res.Decisions()),
	}

	switch after := res.RetryAfter(); {
	case ok || after == core.Never:
	case after == 0: // the store could not decide
		a.RetryAfter = new(seconds)
		*a.RetryAfter = seconds(time.Second)
	default:
		a.RetryAfter = (*seconds)(&after)
	}

	// A take that took nothing has nothing to give back, and gets no token.
	if ok && took(res) {
		h.addToken(&a, i.app, res)
	}
	return a
}

// took reports whether anything was taken that could be given back.
func took(res *limiter.Result) bool {
	for _, d := range res.Decisions() {
		if d.Decision.Allowed && d.Decision.Taken > 0 {
			return true
		}
	}
	return false
}

// addToken adds the token of what was taken, and how long leases last.
func (h *handler) addToken(a *answer, app string, res *limiter.Result) {
	data, _ := res.MarshalBinary() // never fails
	t := newToken(app, data, h.now())
	a.Token = t.seal(h.secret)

	if !res.HoldsLeases() {
		return
	}

	// Of several leases the shortest tells when to renew.
	ttl := core.MaxPeriod
	for _, d := range res.Decisions() {
		if d.Limit.Leased() && d.Decision.Allowed {
			ttl = min(ttl, d.Limit.Period)
		}
	}
	a.TTL = (*seconds)(&ttl)
}

func outcome(res *limiter.Result) string {
	switch {
	case res.Allowed() && res.Undecided():
		return failedOpen
	case res.Degraded():
		return degraded
	case res.Allowed():
		return allowed
	case res.Undecided():
		return failedClosed
	case res.Denied():
		return denied
	case res.Banned():
		return banned
	case res.RetryAfter() == core.Never:
		return impossible
	}
	return refused
}

// peek says what a take of one unit would be answered.
func (h *handler) peek(ctx context.Context, i *item) answer {
	l := h.limiters[i.app]
	var list []limiter.RuleDecision
	var err error
	if i.key != nil {
		list, err = l.Peek(ctx, *i.key)
	} else {
		list, err = l.PeekRequest(i.describedRequest(ctx))
	}

	if err != nil {
		return failed(http.StatusServiceUnavailable, "no policy could decide")
	}

	// A policy that degrades or only watches refuses no take. Of those that refuse, the last to
	// have room decides.
	ok := true
	var longest time.Duration
	for _, d := range list {
		if !d.Decision.Allowed && d.OnLimit != limiter.Degrade && d.OnLimit != limiter.Shadow {
			ok, longest = false, max(longest, d.Decision.RetryAfter)
		}
	}

	a := answer{Allowed: &ok, Policies: decisions(list)}
	if longest > 0 && longest != core.Never {
		a.RetryAfter = (*seconds)(&longest)
	}
	return a
}

// debit charges units that were used, if need be beyond the limits.
func (h *handler) debit(ctx context.Context, i *item) answer {
	list, err := h.limiters[i.app].Debit(ctx, *i.key, i.cost)
	switch {
	case errors.Is(err, core.ErrOp):
		return failed(http.StatusUnprocessableEntity, "no policy of the application has a debt")
	case err != nil:
		return failed(http.StatusServiceUnavailable, "the units may or may not have been charged")
	}

	a := answer{Outcome: done, Charged: []charge{}}
	for _, d := range list {
		if d.OnLimit != limiter.Shadow {
			a.Charged = append(a.Charged, charge{
				d.Rule, d.Decision.Taken, d.Decision.Remaining, seconds(d.Decision.ResetAfter),
			})
		}
	}
	return a
}

// grant gives a key units beside the limit of a policy.
func (h *handler) grant(ctx context.Context, i *item) answer {
	return h.credited(i, h.limiters[i.app].Grant(ctx, i.policy, *i.key, i.cost, i.until))
}

// revoke takes what a key was granted.
func (h *handler) revoke(ctx context.Context, i *item) answer {
	return h.credited(i, h.limiters[i.app].Revoke(ctx, i.policy, *i.key))
}

// credited returns the answer to a grant or a revoke that has ended with err.
func (h *handler) credited(i *item, err error) answer {
	switch {
	case err == nil:
		return answer{Outcome: done}
	case errors.Is(err, core.ErrOp):
		a := failed(http.StatusUnprocessableEntity, "the key cannot have these units")
		a.Problem.Errors = []fault{{i.at, err.Error()}}
		return a
	}
	return failed(http.StatusServiceUnavailable, "it may or may not have happened")
}

// restored returns what the token of an item is of.
func (h *handler) restored(i *item) (*limiter.Result, *answer) {
	res, err := h.limiters[i.app].Restore(i.token.result)
	if err != nil { // of a later version of the gateway
		a := failed(http.StatusBadRequest, "the token is not one that this version of the gateway can read")
		return nil, &a
	}
	return res, nil
}

// The states of a correction, which begin its record. What was asked for follows.
//
//	no record --claim--> begun --f has succeeded--> finished
//	                     begun --f was refused-----> no record
//	                     begun --f has failed------> begun, until the record expires
//
// A record that is begun while nothing is under way means that the correction may have happened.
const (
	begun    = "begun "
	finished = "finished "
)

// A correction that meets another of the same token, which is under way, looks for its end
// at most so often, with such a pause. It takes no longer than a store and two records.
const (
	looks     = 200
	lookPause = 10 * time.Millisecond
)

// claimCorrection claims the record of a correction. Where another is under way that asks for
// the same, it waits for that.
func (h *handler) claimCorrection(ctx context.Context, record, what string) (there string, err error) {
	for range looks {
		there, err = h.records.claim(ctx, record, begun+what, 2*h.ttl)
		if err != nil || there != begun+what {
			return there, err
		}

		select {
		case <-ctx.Done():
			return there, nil
		case <-time.After(lookPause):
		}
	}
	return there, nil
}

// correct carries out a refund or a settlement once for the take of the token. what is
// equal for calls that ask for the same.
func (h *handler) correct(ctx context.Context, i *item, what string, f func(*limiter.Result) error) answer {
	res, a := h.restored(i)
	if a != nil {
		return *a
	}

	record := "corrected:" + i.token.name()
	there, err := h.claimCorrection(ctx, record, what)
	switch {
	case err != nil:
		h.logRecordFailure(err)
		return failed(http.StatusServiceUnavailable,
			"it cannot be recorded that this happens once, so it has not happened")
	case there == finished+what:
		return answer{Outcome: repeated}
	case there == begun+what:
		return answer{Outcome: unknown}
	case there != "":
		return failed(http.StatusUnprocessableEntity, "the token was refunded or settled before, otherwise")
	}

	// As in release, that the leases end is recorded before they do.
	h.logRecordFailure(h.recordRelease(ctx, i, res))

	if err := f(res); err != nil {
		if errors.Is(err, core.ErrOp) { // nothing has happened, so another may be asked for
			h.logRecordFailure(h.records.remove(ctx, releasedRecord(i)))
			h.logRecordFailure(h.records.remove(ctx, record))

			a := failed(http.StatusBadRequest, "what was used is not what a take of the token can have used")
			a.Problem.Errors = []fault{{i.at + "/used", err.Error()}}
			return a
		}

		// Whether it has happened is not known. The record stays, so that a repetition learns as
		// much.
		return answer{Outcome: unknown}
	}

	h.logRecordFailure(h.records.replace(ctx, record, finished+what, 2*h.ttl))
	return answer{Outcome: done}
}

func (h *handler) refund(ctx context.Context, i *item) answer {
	return h.correct(ctx, i, "refund", func(res *limiter.Result) error { return res.Refund(ctx) })
}

func (h *handler) settle(ctx context.Context, i *item) answer {
	used, _ := json.Marshal(i.used) // in the order of the names
	what := "settle " + hashed(string(used))
	return h.correct(ctx, i, what, func(res *limiter.Result) error { return res.Settle(ctx, i.used) })
}

// releasedRecord is the name of the record that the leases of a take were released.
func releasedRecord(i *item) string { return "released:" + i.token.name() }

// recordRelease records that the leases of the take are released, if it has any, so that no
// renewal takes them anew.
func (h *handler) recordRelease(ctx context.Context, i *item, res *limiter.Result) error {
	for _, d := range res.Decisions() {
		if d.Limit.Leased() {
			return h.records.replace(ctx, releasedRecord(i), finished, 2*h.ttl)
		}
	}
	return nil
}

// release ends the leases of the take. It may be repeated.
func (h *handler) release(ctx context.Context, i *item) answer {
	res, a := h.restored(i)
	if a != nil {
		return *a
	}

	// First the record, and then the release: a renewal that comes between them sees the
	// record afterwards, and releases what it has taken.
	h.logRecordFailure(h.recordRelease(ctx, i, res))
	if err := res.Release(ctx); err != nil {
		return failed(http.StatusServiceUnavailable, "the leases may be held until they expire")
	}
	return answer{Outcome: done}
}

// renew holds the leases of the take for another ttl from now on.
func (h *handler) renew(ctx context.Context, i *item) answer {
	res, a := h.restored(i)
	if a != nil {
		return *a
	}

	held := false
	if there, err := h.records.get(ctx, releasedRecord(i)); err == nil && there != "" {
		return answer{Held: &held}
	}

	held, err := res.Renew(ctx)
	if err != nil {
		return failed(http.StatusServiceUnavailable, "the leases were not renewed; they last until their ttl")
	}

	// A release may have come between: then the leases that were just taken anew are released
	// again.
	if there, err := h.records.get(ctx, releasedRecord(i)); err == nil && there != "" {
		held = false
		if err := res.Release(ctx); err != nil {
			return failed(http.StatusServiceUnavailable, "the leases were released, and may be held until they expire")
		}
		return answer{Held: &held}
	}

	// The new token is of the same take, and lasts for the ttl from now on.
	t := i.token
	t.issued = h.now()
	return answer{Held: &held, Token: t.seal(h.secret)}
}
