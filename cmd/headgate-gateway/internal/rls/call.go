// This file reads calls.
//
// A call names a domain. If the folder of Options.Config has the domain, its files say the
// limits; see package limitfile. Otherwise the domain is an application, whose policies
// are the limits. A domain that is neither is answered with the status NOT_FOUND.
//
// Its fields are read so:
//
//	hits_addend of the request      the cost for each descriptor; 0 means 1
//	hits_addend of a descriptor     the cost for it; 0 checks without counting, and is
//	                                refused only where more is in use than the limit has
//	is_negative_hits                gives back so many units
//	limit                           replaces the quota and the period of the limits that
//	                                apply. In a domain of the folder it is a limit of its
//	                                own, as in envoyproxy/ratelimit, whose counts are by
//	                                the entries. 0 requests refuse. It may be higher: the
//	                                configuration of Envoy sets it
//
// Envoy sends a call with apply_on_stream_done when the answer has ended, and nothing in it
// distinguishes it from any other call. As the units are used, it has to be charged beyond the
// limit too: the next request pays. There are two ways to say so. A descriptor with the entry
// headgate=debit, from a generic_key action with that descriptor_key, is charged
// whatever the count; the entry is not used otherwise. And in the domains of Options.Debit
// so is every descriptor with a hits_addend of its own that is above 0. A debit goes up to
// the debt of the limit, once its capacity unless the policy says otherwise.
//
// Concurrency limits are left out, because Envoy does not say when a request ends. A limit with
// on_limit wait refuses what is over it, because Envoy's time-out is shorter.

package rls

import (
	"context"
	"slices"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/rls/limitfile"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/limiter"
)

// budget is how long a decision may take, with the wait for its turn, before its answer says
// that it came late.
const budget = 50 * time.Millisecond

// maxCost is the highest number of units that counts can hold. A higher one fits no limit
// either.
const maxCost = 1<<53 - 1

// call is one call. Its memory is used again for later ones.
type call struct {
	requests  []described
	parts     []limiter.Part
	rates     []core.Limit
	entries   []limitfile.Entry
	decisions []limiter.RuleDecision
	replaced  []string
	late      bool // the decision took longer than its budget
	debits    bool // the domain charges beyond limits
}

// ShouldRateLimit implements the service.
func (s *Server) ShouldRateLimit(ctx context.Context, r *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	if err := check(r); err != nil {
		return nil, err
	}

	l, files := s.limitsOf(r.GetDomain())
	if l == nil {
		s.logUnknown(r.GetDomain())
		return nil, status.Errorf(codes.NotFound, "the domain %q is not configured", textform.Clip(r.GetDomain()))
	}

	c := s.calls.Get().(*call)
	defer s.recycle(c)

	c.debits = slices.Contains(s.options.Debit, r.GetDomain())
	if err := c.read(ctx, r); err != nil {
		return nil, err
	}

	if files != nil {
		c.findLimits(files.limits.Load())
	}

	// The wait for a slot counts as a part of the decision: for Envoy both are late.
	from := time.Now()
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	a := l.AdmitParts(ctx, c.parts)
	s.leave()
	defer a.Done(0)

	c.late = time.Since(from) > budget

	// An answer is not made once the caller has left.
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}

	if a.Outcome() == limiter.Failed && s.options.ClosedAsError {
		return nil, status.Error(codes.Unavailable, "the store cannot decide, and a limit fails closed")
	}
	return c.answer(ctx, a), nil
}

// enter waits until fewer than MaxDecisions are under way, or ctx ends.
func (s *Server) enter(ctx context.Context) error {
	select {
	case s.slots <- struct{}{}:
		return nil
	default:
	}

	select {
	case s.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// leave ends a decision.
func (s *Server) leave() { <-s.slots }

// recycle keeps the memory of c, without any data of the call. Only what refers to a call is
// cleared: rates are overwritten before they are read again.
func (s *Server) recycle(c *call) {
	clear(c.requests)
	clear(c.parts)
	clear(c.entries[:cap(c.entries)])
	c.requests, c.parts, c.rates, c.replaced = c.requests[:0], c.parts[:0], c.rates[:0], c.replaced[:0]
	s.calls.Put(c)
}

// check returns the status of a call that says nothing, or too much.
func check(r *pb.RateLimitRequest) error {
	n := len(r.GetDescriptors())
	switch {
	case r.GetDomain() == "":
		return status.Error(codes.InvalidArgument, "the domain is empty")
	case n == 0:
		return status.Error(codes.InvalidArgument, "there are no descriptors")
	case n > MaxDescriptors:
		return status.Errorf(codes.InvalidArgument, "%d descriptors are more than %d", n, MaxDescriptors)
	}

	for i, d := range r.GetDescriptors() {
		switch n := len(d.GetEntries()); {
		case n == 0:
			return status.Errorf(codes.InvalidArgument, "descriptor %d has no entries", i)
		case n > MaxEntries:
			return status.Errorf(codes.InvalidArgument, "descriptor %d has %d entries, more than %d", i, n, MaxEntries)
		}
		for _, e := range d.GetEntries() {
			if e.GetKey() == "" {
				return status.Errorf(codes.InvalidArgument, "an entry of descriptor %d has no key", i)
			}
		}
	}
	return nil
}

// read makes a part of each descriptor.
func (c *call) read(ctx context.Context, r *pb.RateLimitRequest) error {
	// The slices get their length first: parts point into them.
	n := len(r.GetDescriptors())
	c.requests, c.rates = slices.Grow(c.requests, n)[:n], slices.Grow(c.rates, n)[:n]

	for i, d := range r.GetDescriptors() {
		entries, debit := withoutDebitEntry(d.GetEntries())
		c.requests[i] = described{ctx: ctx, entries: entries}
		c.requests[i].withPlan()

		p := limiter.Part{Request: &c.requests[i]}
		p.Verb, p.Cost = c.charge(r, d, debit)

		// Envoy's own limit replaces the quota and the period of those that apply.
		if d.GetLimit() != nil {
			rate, err := rateOf(d.GetLimit())
			if err != "" {
				return status.Errorf(codes.InvalidArgument, "the limit of descriptor %d %s", i, err)
			}
			c.rates[i], c.requests[i].override = rate, true
			p.Rate = &c.rates[i]
		}

		c.parts = append(c.parts, p)
	}
	return nil
}

// withoutDebitEntry returns the entries without the one that makes a debit of the descriptor, and
// reports whether it was there.
func withoutDebitEntry(
	entries []*ratelimit.RateLimitDescriptor_Entry,
) (others []*ratelimit.RateLimitDescriptor_Entry, debit bool) {
	isDebit := func(e *ratelimit.RateLimitDescriptor_Entry) bool {
		return e.GetKey() == debitKey && e.GetValue() == debitValue
	}
	if !slices.ContainsFunc(entries, isDebit) {
		return entries, false
	}

	return slices.DeleteFunc(slices.Clone(entries), isDebit), true
}

// charge returns what a descriptor does with how many units.
func (c *call) charge(r *pb.RateLimitRequest, d *ratelimit.RateLimitDescriptor, debit bool) (core.Verb, int64) {
	hits, own := uint64(max(1, r.GetHitsAddend())), d.GetHitsAddend() != nil
	if own {
		hits = d.GetHitsAddend().GetValue()
	}

	cost := int64(min(hits, maxCost))

	switch {
	case d.GetIsNegativeHits():
		return core.Refund, cost
	case cost == 0:
		return core.Peek, 0
	case debit, own && c.debits:
		return core.Debit, cost
	}
	return core.Take, cost
}

// rateOf returns the quota and period of a limit that came with a descriptor, or what is
// wrong with it.
func rateOf(o *ratelimit.RateLimitDescriptor_RateLimitOverride) (rate core.Limit, fault string) {
	span := limitfile.Unit(o.GetUnit()).Span()
	if span == 0 {
		return rate, "has no known unit"
	}

	n := int64(multiplierOf(o))
	if n == 0 || n > int64(core.MaxPeriod/span) {
		return rate, "has a unit_multiplier that is 0 or makes the period longer than 400 days"
	}
	rate.Quota, rate.Period = int64(o.GetRequestsPerUnit()), span*time.Duration(n)
	return rate, ""
}

func multiplierOf(o *ratelimit.RateLimitDescriptor_RateLimitOverride) uint32 {
	if o.GetUnitMultiplier() == nil {
		return 1
	}
	return o.GetUnitMultiplier().GetValue()
}

// findLimits looks up the limit of each descriptor in a domain of the folder.
func (c *call) findLimits(domain *limitfile.Domain) {
	// A limit may replace that of any other descriptor of the call, so all are looked up first.
	for i := range c.requests {
		d := &c.requests[i]
		c.entries = d.find(domain, c.entries[:0])
		if d.limit != nil {
			c.replaced = append(c.replaced, d.limit.Replaces...)
		}
	}

	for i := range c.requests {
		d := &c.requests[i]
		if d.limit == nil || d.limit.Unlimited {
			continue
		}
		if d.limit.Name != "" && slices.Contains(c.replaced, d.limit.Name) {
			d.limit = nil
			continue
		}

		// A rule has no quota of 0. A limit of no requests is refused by a rate without a quota,
		// which the call brings. In quota mode it refuses only together with the others in that
		// mode, so no rule is asked, and the answer counts it as exceeded.
		if d.limit.Requests == 0 {
			d.empty = d.limit.QuotaMode && !d.limit.Shadow
			c.parts[i].Rate = &core.Limit{Period: d.limit.Limit.Period}
		}
	}
}
