// This file checks the promises of a limiter under a fault:
//
//   - a request is counted at most once, and an answered request exactly once,
//   - a request that is settled is charged what it used, and one whose settlement is lost
//     its estimate or what it used, and neither of them twice,
//   - no more is admitted than the limit, and one limit more each time that the
//     server forgets,
//   - a request that Redis could not decide passes or gets a 503 with Retry-After,
//     as configured, and never a 429,
//   - a fault that must not affect requests leaves none undecided,
//   - Redis decides again after the fault,
//   - no goroutine is left, and no key without a time to live.
//
// Two promises are about time, and a busy machine breaks them without a fault
// of the limiter. They are measured and printed, and fail no test:
//
//   - no request is delayed for longer than the store's timeout and 20 ms,
//   - Redis decides again soon after the fault is over.

package faults

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/tally"
	"github.com/headgate/headgate/store/redisstore"
)

// verdict holds the measurements of one mode under one fault.
type verdict struct {
	mode       string
	requests   int
	undecided  int
	slowest    time.Duration
	net        time.Duration // the slowest without the time without a processor
	executions int64         // of any one request, at most
	over       int           // admitted by Redis above the limit
	allowed    int           // how much that may be
	recovery   time.Duration
	leases     int // held by requests that have ended
	unsettled  int // requests whose settlement Redis has not acknowledged
}

// ports are the parts of errors that differ each time.
var ports = regexp.MustCompile(`:\d{4,5}\b|script: [0-9a-f]{40}, on @user_script:\d+`)

// verdictOf checks the requests of a lane against the promises.
func (s *scene) verdictOf(t *testing.T, f *fault, l *lane) verdict {
	hits := l.seen()
	v := verdict{mode: l.mode.name, requests: len(hits)}

	tally.Add(t, "faults of the network and of servers, each in one of three modes", 1)
	tally.Add(t, "requests during faults", int64(len(hits)))

	// Each check stands for one promise: how long, which answers, how often counted, how many
	// admitted.
	s.measure(hits, &v)
	s.checkAnswers(t, f, hits, &v)
	s.checkCounts(t, l, hits, &v)
	s.checkAdmissions(t, l, hits, &v)

	// A script that met an error is sent again, and no other is.
	if l.proxy != nil {
		c := l.proxy.Counts() // before the calls, which may go on
		if calls := int(l.calls.Load()); c.Scripts-c.Errors > calls {
			t.Errorf("%d scripts were sent for %d calls of the store, and %d of them met an error", c.Scripts,
				calls, c.Errors)
		}
	}

	t.Logf("%d requests, %d undecided, slowest %v (%v with a processor), %d executions, %d over the limit (%d allowed), recovery %v, %d leases left, %d not settled",
		v.requests, v.undecided, v.slowest, v.net, v.executions, v.over, v.allowed, v.recovery, v.leases, v.unsettled)
	return v
}

// measure finds the slowest request. Time without a processor is subtracted.
func (s *scene) measure(hits []hit, v *verdict) {
	for i := range hits {
		h := &hits[i]
		for _, d := range [][2]time.Time{{h.from, h.answered}, {h.answered, h.to}} {
			took := d[1].Sub(d[0])
			v.slowest, v.net = max(v.slowest, took), max(v.net, took-s.waits.during(d[0], d[1]))
		}
	}
}

// failures keeps the first few failures of a kind.
type failures struct {
	texts []string
	n     int
}

func (f *failures) add(format string, args ...any) {
	if f.n++; f.n <= 3 {
		f.texts = append(f.texts, fmt.Sprintf(format, args...))
	}
}

func (f *failures) report(t *testing.T, what string) {
	t.Helper()
	if f.n > 0 {
		t.Errorf("%d %s:\n%s", f.n, what, strings.Join(f.texts, "\n"))
	}
}

// checkAnswers checks the answers and finds when Redis decided again.
func (s *scene) checkAnswers(t *testing.T, f *fault, hits []hit, v *verdict) {
	t.Helper()
	var wrong, undecided failures

	why, excused := map[string]int{}, s.surprised || slices.ContainsFunc(hits, down)
	for i := range hits {
		h := &hits[i]
		at := h.from.Sub(s.begun)

		// An answer that the mode does not allow is wrong, whether it was decided or not.
		if h.wrong != "" {
			wrong.add("at %v: %s", at, h.wrong)
		}

		if h.decided {
			continue
		}

		// Undecided requests are sorted by their reason, without ports, which differ each time.
		v.undecided++
		if h.err != nil {
			why[ports.ReplaceAllString(h.err.Error(), ":…")]++
		}

		// The fault's recovery lasts until the end of the last request that it kept undecided.
		if h.to.After(s.lifted) {
			v.recovery = max(v.recovery, h.to.Sub(s.lifted))
		}

		if f.sees == nothing && !slices.Contains(f.unless, h.rule) && !excused {
			undecided.add("rule %s at %v: not decided after %v: %v", h.rule, at, h.to.Sub(h.from), h.err)
		}
	}

	for text, n := range why {
		t.Logf("%5d × %s", n, text)
	}
	wrong.report(t, "wrong answers")
	undecided.report(t, "requests that Redis should have decided")

	// A fault that is not noticed would make all promises true.
	if f.sees == something && v.undecided == 0 {
		t.Error("every request was decided, so the fault had no effect")
	}
}

// down reports whether a server of a Cluster has refused a request because another
// one was silent for too long: it had no processor.
func down(h hit) bool { return h.err != nil && strings.Contains(h.err.Error(), "The cluster is down") }

// checkCounts reads how often each request with its own key was counted.
func (s *scene) checkCounts(t *testing.T, l *lane, hits []hit, v *verdict) {
	t.Helper()

	// The settlements first: what is read here was settled for certain when the counts are read.
	settled := make([]time.Time, len(hits)) // by now; it may go on
	for i := range hits {
		settled[i] = hits[i].trace.settledAt()
	}

	used := s.used(t, l, hits)
	var missing failures
	for i := range hits {
		h := &hits[i]
		n := used[i]

		// The shared key is counted by all, and checked with the admissions. A lease is given back
		// as it ends, or expires.
		switch h.rule {
		case "shared":
			continue
		case "lease":
			v.leases += int(n)
			continue
		case "settled":
			s.checkSettled(t, l, h, settled[i], n, v)
			continue
		}

		// Every other request has a key of its own, so its count is how often it was executed.
		v.executions = max(v.executions, n)
		if n > 1 {
			t.Errorf("rule %s, key %s: counted %d times", h.rule, h.key, n)
		}

		mayBeLost := !s.lossFrom.IsZero() && h.to.After(s.lossFrom) && h.from.Before(s.lossTo)

		// Acknowledged and not counted is a loss, unless the server forgot in between.
		if h.acknowledged() && n == 0 && !mayBeLost {
			missing.add("rule %s, key %s at %v", h.rule, h.key, h.from.Sub(s.begun))
		}
	}

	missing.report(t, "requests were admitted and not counted")
}

// checkSettled checks the units that a request is charged in Redis after its estimate was
// settled, if at is not zero, or after it may have been.
func (s *scene) checkSettled(t *testing.T, l *lane, h *hit, at time.Time, n int64, v *verdict) {
	t.Helper()

	actual := usedBy(h.key)
	more := max(0, actual-estimate)

	// Data that was lost between the estimate and the settlement leaves a part of them, or none.
	forgotten := !s.lossFrom.IsZero() && h.from.Before(s.lossTo) && (at.IsZero() || at.After(s.lossFrom))
	var may []int64
	switch {
	case forgotten: // before the settlement or after it
		may = []int64{0, estimate, actual, more}
		if l.mode.over != nil { // and memory pays up to the limit
			may = append(may, min(actual, settledQuota), min(more, settledQuota))
		}
	case !h.acknowledged() && h.admitted && l.mode.over != nil:
		// Memory has the estimate. What it charged is paid to Redis, up to the limit, when Redis
		// answers about the key again.
		may = []int64{0, estimate, more, estimate + more, actual, min(estimate+more, settledQuota)}

	// The answer is missing: Redis may have counted the estimate, or not.
	case !h.acknowledged():
		may = []int64{0, estimate}

	// Admitted, and the settlement is not confirmed.
	case at.IsZero():
		may = []int64{estimate, actual}
		v.unsettled++
	default:
		may = []int64{actual}
	}

	if !slices.Contains(may, n) {
		t.Errorf("key %s, admitted %t, decided %t, settled %t: %d units of %d are charged, want one of %d",
			h.key, h.admitted, h.decided, !at.IsZero(), n, actual, may)
	}
}

// used asks Redis how many units of its key each request has used.
func (s *scene) used(t testing.TB, l *lane, hits []hit) []int64 {
	t.Helper()

	// The reader waits as long as it takes, past all proxies.
	store := redisstore.MustNew(s.reach(), redisstore.Options{Prefix: l.prefix, Timeout: patience})
	n := make([]int64, len(hits))

	for at := range hits {
		h := &hits[at]
		if h.rule == "shared" {
			continue
		}

		// Peek charges nothing, so that the check does not change what it checks.
		op := [1]core.Op{{Verb: core.Peek, Rule: h.rule, Key: h.key,
			Limit: core.MustParseLimit(l.limitOf(h.rule)), Cost: 1}}
		if h.rule == "settled" {
			op[0].Limit.Quota *= 10 // a debt is seen under a larger limit
		}

		var out [1]core.Decision
		if err := store.Apply(context.Background(), op[:], out[:]); err != nil {
			t.Fatalf("rule %s, key %s: %v", h.rule, h.key, err)
		}

		n[at] = op[0].Limit.Capacity() - out[0].Remaining
	}
	return n
}

// checkAdmissions counts the requests that were admitted under the rule that all share,
// by Redis and by memory.
func (s *scene) checkAdmissions(t *testing.T, l *lane, hits []hit, v *verdict) {
	t.Helper()
	admitted := 0
	for i := range hits {
		h := &hits[i]
		if h.rule == "shared" && h.admitted && (h.decided || l.mode.over != nil) {
			admitted++
		}
	}
	v.over, v.allowed = max(0, admitted-quota), s.losses*quota+l.mode.spare
	if v.over > v.allowed {
		t.Errorf("%d requests admitted under a limit of %d, want at most %d", admitted, quota, quota+v.allowed)
	}
}

// wantNoImmortalKeys fails on keys without a time to live.
func (s *scene) wantNoImmortalKeys(t testing.TB) {
	t.Helper()

	// In a Cluster a scan sees one master only.
	check := func(ctx context.Context, c *redis.Client) error {
		for _, l := range s.lanes {
			it := c.Scan(ctx, 0, l.prefix+"*", 1000).Iterator()
			for it.Next(ctx) {
				if ttl := c.PTTL(ctx, it.Val()).Val(); ttl == -1 {
					t.Errorf("%s has no time to live", it.Val())
				}
			}
			if err := it.Err(); err != nil {
				return err
			}
		}
		return nil
	}

	var err error
	switch c := s.reach().(type) {
	case *redis.Client:
		err = check(context.Background(), c)
	case *redis.ClusterClient:
		err = c.ForEachMaster(context.Background(), check)
	}

	if err != nil {
		t.Error(err)
	}
}

// wantNoGoroutines fails if a goroutine that was started under the fault still runs.
func wantNoGoroutines(t testing.TB, name string) {
	t.Helper()
	var left []string
	tick := time.NewTicker(50 * time.Millisecond) // each listing stops all goroutines
	defer tick.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		if left = goroutines(name); len(left) == 0 {
			return
		}
	}
	t.Errorf("still running:\n%s", strings.Join(left, "\n\n"))
}

// goroutines lists the goroutines with the label of the fault, except its own.
func goroutines(name string) []string {
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
		return []string{err.Error()}
	}
	var list []string
	for text := range strings.SplitSeq(b.String(), "\n\n") {
		if strings.Contains(text, `"fault":"`+name+`"`) && !strings.Contains(text, "faults.goroutines") {
			list = append(list, text)
		}
	}
	return list
}
