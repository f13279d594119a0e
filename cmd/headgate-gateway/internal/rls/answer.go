// This file writes answers.
//
// statuses has one element for each descriptor. Its limit is that which is the most
// exhausted of those that apply. The unit and unit_multiplier of current_limit give the true
// period; Envoy before 1.37 or so ignores the multiplier. duration_until_reset is, for a
// refusal, the time after which the same request would pass, and otherwise that until all
// units are back. It is in whole seconds, rounded up, as Envoy cuts fractions off.
//
// A limit that degrades lets the request pass with OVER_LIMIT in its status, and adds the
// header Headgate-Degraded: 1 to the request. A limit in shadow mode never says
// OVER_LIMIT; its refusals are counted in the log once a minute, and by the observers of the
// policies. A refusal has a body of application/problem+json, Retry-After and, as every
// answer does, RateLimit and RateLimit-Policy.
//
// dynamic_metadata is empty unless there is something to say:
//
//	fallback: true       Redis is away, and the gateway decided in memory
//	undecided: true      nothing could decide, so the failure modes of the policies did
//	late: true           the decision took more than 50 ms
//	refused: [names]     of the limits that refuse the request
//	shadow: [names]      of the limits in shadow mode that would have refused it
//	metadata: {}         of the limits in the folder that the request is within
//
// A limit that fails open lets the request pass. One that fails closed answers OVER_LIMIT, as
// that is the only answer that turns a request away under every configuration of Envoy; the
// body says 503. With Options.ClosedAsError the call ends with UNAVAILABLE, and
// failure_mode_deny and status_on_error of Envoy decide.

package rls

import (
	"context"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/rls/limitfile"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

// DegradedHeader is the header of a request that passes although it is over a limit which
// degrades.
const DegradedHeader = "Headgate-Degraded"

const (
	ok   = pb.RateLimitResponse_OK
	over = pb.RateLimitResponse_OVER_LIMIT
)

// state is what has to be known of all descriptors before the answer.
type state struct {
	answer   *pb.RateLimitResponse
	failed   bool               // the store could not decide, and a limit fails closed
	degraded bool               // a limit that degrades is exceeded
	late     bool               // the decision took longer than its budget
	fallback bool               // Redis was away, and memory has decided
	within   []*limitfile.Limit // with metadata
	shadow   []string           // limits in shadow mode that would have refused
	refused  []string           // limits that refuse

	quotas, exceeded int           // limits in quota mode
	retry            time.Duration // until the first of those has room
}

// element has the parts of the status of one descriptor, in one allocation for all.
type element struct {
	status pb.RateLimitResponse_DescriptorStatus
	limit  pb.RateLimitResponse_RateLimit
	reset  durationpb.Duration
}

// answer makes the answer to the call.
func (c *call) answer(ctx context.Context, a *limiter.Admission) *pb.RateLimitResponse {
	n := len(c.parts)
	s := &state{answer: &pb.RateLimitResponse{
		OverallCode: ok, Statuses: make([]*pb.RateLimitResponse_DescriptorStatus, n),
	}}
	s.failed, s.late = a.Outcome() == limiter.Failed, c.late

	elements := make([]element, n)
	for i := range elements {
		e := &elements[i]
		c.describe(a, i, e, s)
		s.answer.Statuses[i] = &e.status
	}

	if a.Outcome() != limiter.Pass {
		s.answer.OverallCode = over
		s.refused = append(s.refused, a.Violated()...)
		s.answer.RawBody = a.Problem()
	}

	// Limits in quota mode refuse only together, which is known once all descriptors are. The other
	// limits have let the request pass and counted it by then.
	s.headers(a)
	if s.quotas > 0 && s.exceeded == s.quotas && s.answer.OverallCode == ok {
		_ = a.Result().Refund(ctx) // what is not given back comes back with time
		s.refuseByQuota()
	}

	if s.degraded && s.answer.OverallCode == ok {
		s.answer.RequestHeadersToAdd = []*corepb.HeaderValue{{Key: strings.ToLower(DegradedHeader), Value: "1"}}
	}
	s.answer.DynamicMetadata = s.metadata(a)
	return s.answer
}

// describe fills the status of descriptor i.
func (c *call) describe(a *limiter.Admission, i int, e *element, s *state) {
	e.status.Code = ok
	d := &c.requests[i]

	// What no count has decided about comes first.
	switch {
	case s.failed:
		e.status.Code = over
		return
	case d.limit != nil && d.limit.Unlimited:
		e.status.LimitRemaining = math.MaxUint32
		s.addWithin(d.limit)
		return
	case d.limit != nil && d.limit.Requests == 0:
		d.describeBlocked(e, s)
		return
	case a.DeniedPart() == i:
		c.describeDenied(a, i, e)
		return
	}

	// Of all limits of the descriptor that is shown which is the most exhausted.
	c.decisions = a.PartDecisions(i, c.decisions[:0])
	shown := -1
	for j := range c.decisions {
		c.addDecision(i, &c.decisions[j], e, s)
		if shown < 0 || scarcer(&c.decisions[j], &c.decisions[shown]) {
			shown = j
		}
	}

	if shown >= 0 {
		c.show(d, &c.decisions[shown], e)
	}

	// The metadata is that of the limits which the request is within.
	if e.status.Code == ok && d.limit != nil && shown >= 0 {
		s.addWithin(d.limit)
	}
}

// describeDenied fills the status of descriptor i, which no count has refused.
func (c *call) describeDenied(a *limiter.Admission, i int, e *element) {
	e.status.Code = over
	switch res := a.Result(); {
	case res.Banned():
		e.setReset(res.RetryAfter())
	case c.requests[i].override:
		e.setLimit(&c.rates[i], "")
		e.setReset(c.rates[i].Period)
	}
}

// describeBlocked fills the status of a descriptor under a limit of no requests at all.
func (d *described) describeBlocked(e *element, s *state) {
	e.setFileLimit(d.limit)
	e.setReset(d.limit.Limit.Period)

	switch {
	case d.limit.Shadow:
		s.shadow = append(s.shadow, d.limit.Rule)
		return
	case d.empty:
		s.addExceeded(d.limit.Rule, d.limit.Limit.Period)
		s.quotas++
	}

	e.status.Code = over
}

// addExceeded adds a limit in quota mode that is exceeded for some time.
func (s *state) addExceeded(rule string, retry time.Duration) {
	if s.exceeded++; s.exceeded == 1 || retry < s.retry {
		s.retry = retry
	}
	s.refused = append(s.refused, rule)
}

// addDecision adds what one limit says about descriptor i.
func (c *call) addDecision(i int, r *limiter.RuleDecision, e *element, s *state) {
	s.fallback = s.fallback || r.Decision.Fallback

	// A limit in quota mode is one that degrades: alone it refuses nothing.
	l := c.requests[i].limit
	inQuotaMode := l != nil && l.QuotaMode && r.OnLimit == limiter.Degrade
	if inQuotaMode {
		s.quotas++
	}

	if r.Decision.Allowed {
		return
	}

	switch {
	case r.OnLimit == limiter.Shadow:
		s.shadow = append(s.shadow, r.Rule)
		return
	case inQuotaMode:
		s.addExceeded(r.Rule, r.Decision.RetryAfter)
	case r.OnLimit == limiter.Degrade:
		s.degraded = true
	}
	e.status.Code = over
}

// addWithin adds a limit that the request is within.
func (s *state) addWithin(l *limitfile.Limit) {
	if l.Metadata != nil {
		s.within = append(s.within, l)
	}
}

// scarcer reports whether r is to be shown rather than t: a limit that refuses, then one that is
// not in shadow mode, then the one with the smaller share left.
func scarcer(r, t *limiter.RuleDecision) bool {
	a, b := r.OnLimit != limiter.Shadow, t.OnLimit != limiter.Shadow
	if a != b {
		return a
	}
	if r.Decision.Allowed != t.Decision.Allowed {
		return !r.Decision.Allowed
	}

	// The shares are compared as fractions, without division. 128 bits hold every product.
	hi1, lo1 := bits.Mul64(uint64(r.Decision.Remaining), uint64(t.Limit.Capacity()))
	hi2, lo2 := bits.Mul64(uint64(t.Decision.Remaining), uint64(r.Limit.Capacity()))
	return hi1 < hi2 || hi1 == hi2 && lo1 < lo2
}

// show puts a limit and what is left of it into a status.
func (c *call) show(d *described, r *limiter.RuleDecision, e *element) {
	switch {
	case d.limit != nil && !d.override:
		e.setFileLimit(d.limit)
	case d.domain != nil:
		e.setLimit(&r.Limit, "")
	default:
		e.setLimit(&r.Limit, r.Rule)
	}

	e.status.LimitRemaining = uint32(min(r.Decision.Remaining, math.MaxUint32))

	// For Envoy a reset is the end of a refusal as well.
	switch {
	case r.Decision.Allowed:
		e.setReset(r.Decision.ResetAfter)
	case r.Decision.RetryAfter == core.Never: // to wait does not help
		e.setReset(max(r.Decision.ResetAfter, r.Limit.Period))
	default:
		e.setReset(r.Decision.RetryAfter)
	}
}

// setReset sets the time until the reset, in seconds rounded up.
func (e *element) setReset(d time.Duration) {
	e.reset.Seconds = int64((d + time.Second - 1) / time.Second)
	e.status.DurationUntilReset = &e.reset
}

// setFileLimit sets the limit as the file has it.
func (e *element) setFileLimit(l *limitfile.Limit) {
	e.limit.Name, e.limit.RequestsPerUnit = l.Name, l.Requests
	e.setUnit(l.Unit, l.Multiplier)
}

func (e *element) setUnit(u limitfile.Unit, multiplier uint32) {
	e.limit.Unit = pb.RateLimitResponse_RateLimit_Unit(u)
	if multiplier != 1 {
		e.limit.UnitMultiplier = wrapperspb.UInt32(multiplier)
	}
	e.status.CurrentLimit = &e.limit
}

// setLimit sets a limit with its true period, as exactly as the message can.
func (e *element) setLimit(l *core.Limit, name string) {
	quota, unit, multiplier := express(l)
	e.limit.Name, e.limit.RequestsPerUnit = name, quota
	e.setUnit(unit, multiplier)
}

// calendarUnits are the units of calendar windows.
var calendarUnits = map[string]limitfile.Unit{
	"day": limitfile.Day, "week": limitfile.Week, "month": limitfile.Month, "year": limitfile.Year,
}

// express returns a limit as requests per so many units. 7, 30 and 365 days are a week, a
// month and a year, as they are for Envoy. A period that is not in whole seconds becomes the
// shortest multiple of it that is, if the numbers allow, and otherwise is rounded up.
func express(l *core.Limit) (quota uint32, unit limitfile.Unit, multiplier uint32) {
	// A calendar window has no period of one length.
	if l.NeedsWindows() {
		name, _, _ := strings.Cut(l.Calendar, " ")
		return clamp(l.Quota), calendarUnits[name], 1
	}

	q, period := l.Quota, l.Period
	if period%time.Second != 0 {
		n := int64(time.Second) / gcd(int64(period), int64(time.Second))
		if q <= math.MaxUint32/n && int64(period) <= int64(core.MaxPeriod)/n {
			q, period = q*n, period*time.Duration(n)
		} else {
			period = (period + time.Second - 1).Truncate(time.Second)
		}
	}

	// The unit of so many days has precedence over days.
	for _, u := range []limitfile.Unit{limitfile.Week, limitfile.Month, limitfile.Year} {
		if period == u.Span() {
			return clamp(q), u, 1
		}
	}

	for _, u := range []limitfile.Unit{limitfile.Day, limitfile.Hour, limitfile.Minute} {
		if period%u.Span() == 0 {
			return clamp(q), u, uint32(period / u.Span())
		}
	}

	return clamp(q), limitfile.Second, uint32(period / time.Second)
}

func clamp(q int64) uint32 { return uint32(min(q, math.MaxUint32)) }

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// lowerNames are the headers of answers as HTTP/2 has them.
var lowerNames = map[string]string{
	"Ratelimit": "ratelimit", "Ratelimit-Policy": "ratelimit-policy",
	"Retry-After": "retry-after", "Cache-Control": "cache-control",
	"X-Ratelimit-Limit": "x-ratelimit-limit", "X-Ratelimit-Remaining": "x-ratelimit-remaining",
	"X-Ratelimit-Reset": "x-ratelimit-reset",
}

// headers puts the headers of the limiter into the answer, and the type of the body.
func (s *state) headers(a *limiter.Admission) {
	// Two slices for all headers are two allocations; there is room for the type of the body.
	list := a.Headers()
	values := make([]corepb.HeaderValue, len(list), len(list)+1)
	s.answer.ResponseHeadersToAdd = make([]*corepb.HeaderValue, 0, len(list)+1)

	for i, h := range list {
		v := &values[i]
		if v.Key = lowerNames[h.Name]; v.Key == "" {
			v.Key = strings.ToLower(h.Name)
		}
		v.Value = h.Value
		s.answer.ResponseHeadersToAdd = append(s.answer.ResponseHeadersToAdd, v)
	}

	if s.answer.RawBody != nil {
		s.add("content-type", limiter.ProblemType)
	}
}

func (s *state) add(name, value string) {
	s.answer.ResponseHeadersToAdd = append(s.answer.ResponseHeadersToAdd, &corepb.HeaderValue{Key: name, Value: value})
}

// refuseByQuota makes a refusal of the answer, because all limits in quota mode are exceeded.
func (s *state) refuseByQuota() {
	s.answer.OverallCode = over
	seconds := max(1, int64((s.retry+time.Second-1)/time.Second))

	// The problem type is that of draft-ietf-httpapi-ratelimit-headers, as the limiter's own
	// refusals are.
	b := []byte(`{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
		`"title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":[`)
	for i, name := range s.refused {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendQuote(b, name) // which has letters, digits and marks only
	}
	s.answer.RawBody = append(b, "]}"...)

	s.add("retry-after", strconv.FormatInt(seconds, 10))
	s.add("cache-control", "no-store")
	s.add("content-type", limiter.ProblemType)
}

// metadata returns what there is to say for logs and other filters, or nil.
func (s *state) metadata(a *limiter.Admission) *structpb.Struct {
	// A decision of the fallback is a decision. Without one, the failure modes have answered.
	undecided := a.Result().Undecided() && !s.fallback
	refused := s.answer.OverallCode == over && len(s.refused) > 0
	if !s.fallback && !undecided && !s.late && !refused && s.shadow == nil && s.within == nil {
		return nil
	}

	f := map[string]*structpb.Value{}
	if s.fallback {
		f["fallback"] = structpb.NewBoolValue(true)
	}
	if s.late {
		f["late"] = structpb.NewBoolValue(true)
	}
	if undecided {
		f["undecided"] = structpb.NewBoolValue(true)
	}
	if refused {
		f["refused"] = texts(s.refused)
	}
	if s.shadow != nil {
		f["shadow"] = texts(s.shadow)
	}
	if s.within != nil {
		f["metadata"] = structpb.NewStructValue(merged(s.within))
	}
	return &structpb.Struct{Fields: f}
}

func texts(list []string) *structpb.Value {
	values := make([]*structpb.Value, len(list))
	for i, s := range list {
		values[i] = structpb.NewStringValue(s)
	}
	return structpb.NewListValue(&structpb.ListValue{Values: values})
}

// merged returns the metadata of the limits. Where two have a field that is not a mapping,
// the first has precedence.
func merged(limits []*limitfile.Limit) *structpb.Struct {
	all := map[string]any{}
	for _, l := range limits {
		merge(all, l.Metadata)
	}
	s, err := structpb.NewStruct(all)
	if err != nil { // text that is not UTF-8, which no file has
		return &structpb.Struct{}
	}
	return s
}

func merge(into, from map[string]any) {
	for name, v := range from {
		have, exists := into[name]
		inner, nested := v.(map[string]any)

		// The metadata of a limit is shared by all calls, so a mapping is copied before another is
		// merged into it.
		switch haveInner, both := have.(map[string]any); {
		case exists && both && nested:
			merge(haveInner, inner)
		case exists:
		case nested:
			copied := map[string]any{}
			merge(copied, inner)
			into[name] = copied
		default:
			into[name] = v
		}
	}
}
