// Requests that are settled by their answers.

package limiter_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/llmusage"
	"github.com/headgate/headgate/observe/findings"
)

// charging returns a rule that charges 40 units, and asks used about the answer.
func charging(t *testing.T, text string, used func(limiter.Seen) (int64, error)) limiter.Rule {
	t.Helper()
	r := rule(t, "tokens", text)
	r.Charge = func(core.Request) (int64, func(limiter.Seen) (int64, error), error) { return 40, used, nil }
	return r
}

// says returns a function that says so.
func says(units int64, err error) func(limiter.Seen) (int64, error) {
	return func(limiter.Seen) (int64, error) { return units, err }
}

func TestChargeIsSettledByTheAnswer(t *testing.T) {
	for _, text := range []string{"100/1h", "100/1h token-bucket", "100/1h fixed-window", "100/1h sliding-window",
		"100/month"} {
		for used, want := range map[int64]int64{0: 100, 10: 90, 40: 60, 41: 59, 100: 0, 150: 0} {
			s := newStore()
			l := newLimiter(t, s, charging(t, text, says(used, nil)))
			a := l.Admit(get())
			wantLeft(t, l, "k", 60)
			if !a.NeedsStatus() || a.NeedsUsage() {
				t.Error("the answer is needed, and its body is not")
			}
			a.See(limiter.Seen{})
			a.Answered()
			a.Done(200)

			// The take, two peeks, and the settlement if there is a difference.
			wantLeft(t, l, "k", want)
			if calls := 3 + int(min(1, max(used-40, 40-used))); s.asked() != calls {
				t.Errorf("%s: %d used in %d calls, want %d", text, used, s.asked(), calls)
			}
		}
	}
}

func TestUsedSeesTheAnswer(t *testing.T) {
	var got limiter.Seen
	r := charging(t, "100/1h", func(s limiter.Seen) (int64, error) { got = s; return s.Charged, nil })
	r.ReadsUsage = true
	l := newLimiter(t, newStore(), r)

	// What one request has left is not seen by the next one, which has the same memory.
	meter := &llmusage.Meter{}
	for i, seen := range []limiter.Seen{
		{Header: func(string) []string { return []string{"7"} }, Usage: meter, Ended: true}, {},
	} {
		a := l.Admit(get())
		if !a.NeedsUsage() {
			t.Error("the body is not read")
		}
		if i == 0 {
			a.See(seen)
			a.Answered()
		}
		a.Done(201)
		l.AwaitReleases()
		if got.Status != 201 || got.Charged != 40 || got.Usage != seen.Usage || got.Ended != seen.Ended ||
			(got.Header == nil) != (seen.Header == nil) {
			t.Errorf("request %d: %+v", i, got)
		}
	}
}

func TestChargeStays(t *testing.T) {
	for name, row := range map[string]struct {
		text string
		used func(limiter.Seen) (int64, error)
		log  string
	}{
		"no function": {"100/1h", nil, ""},
		"an error": {"100/1h", says(7, errors.New("it says nothing")),
			"what a request costs could not be read, so the estimate is charged: it says nothing\" code=HG023 rule=tokens"},
		"a negative number": {"100/1h", says(-1, nil), "-1 units cannot be used"},
		"a panic":           {"100/1h", func(limiter.Seen) (int64, error) { panic("of the program") }, "of the program"},
		"no debt": {"100/1h sliding-log", says(41, nil),
			"41 units are more than the 40 charged, and 100/1h sliding-log has no debt"},
	} {
		var log bytes.Buffer
		l := configured(t, limiter.Config{Store: newStore(), Rules: []limiter.Rule{charging(t, row.text, row.used)},
			Logger: slog.New(slog.NewTextHandler(&log, nil))})
		l.Admit(get()).Done(200)
		wantLeft(t, l, "k", 60)
		if got := log.String(); !strings.Contains(got, row.log) || row.log == "" && got != "" {
			t.Errorf("%s: logged %s", name, got)
		}
	}
}

func TestCostUnreadIsFoundOnce(t *testing.T) {
	var log bytes.Buffer
	r := rule(t, "tokens", "100/1h")
	r.Charge = func(core.Request) (int64, func(limiter.Seen) (int64, error), error) {
		return 3, says(0, errors.New("nor its answer")), errors.New("the request does not say it")
	}
	l := configured(t, limiter.Config{Store: newStore(), Rules: []limiter.Rule{r},
		Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for range 3 {
		l.Admit(get()).Done(200)
	}
	wantLeft(t, l, "k", 91)

	found := l.Status().Findings
	if len(found) != 1 || found[0].Code != findings.CostUnread || found[0].Rule != "tokens" ||
		!strings.HasSuffix(found[0].Text, ": the request does not say it") || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("%+v\n%s", found, &log)
	}
}

// A refund by the status comes before the answer, and what a handler settles before both.
func TestWhatSettlesFirst(t *testing.T) {
	r := charging(t, "100/1h", says(10, nil))
	r.RefundIf = func(status int) bool { return status >= 500 }
	s := newStore()
	l := configured(t, limiter.Config{Store: s, KeepResult: true, Rules: []limiter.Rule{r}})

	end := func(status int, settled ...int64) {
		a := l.Admit(get())
		for _, n := range settled {
			settle(t, a.Result(), tokens(n))
		}
		a.Done(status)
	}
	end(500)
	wantLeft(t, l, "k", 100)
	end(200)
	wantLeft(t, l, "k", 90)
	end(500, 20)
	wantLeft(t, l, "k", 70)
}

func TestChargeIsOneStepWithTheLeases(t *testing.T) {
	s := newStore()
	l := newLimiter(t, s, rule(t, "requests", "9/1h"), charging(t, "100/1h", says(70, nil)),
		rule(t, "jobs", "3 concurrent ttl=1m"))
	a := l.Admit(get())
	wantLeft(t, l, "k", 8, 60, 2)
	calls := s.asked()
	a.Done(200)
	l.AwaitReleases()
	if s.asked() != calls+1 {
		t.Errorf("%d calls", s.asked()-calls)
	}
	wantLeft(t, l, "k", 8, 30, 3)
}

// What was not charged is not settled.
func TestChargeIsOfAdmittedRequests(t *testing.T) {
	asked := 0
	r := charging(t, "60/1h", func(s limiter.Seen) (int64, error) { asked++; return s.Charged, nil })
	r.OnLimit = limiter.Shadow
	l := newLimiter(t, newStore(), r)
	for range 2 {
		l.Admit(get()).Done(200)
	}
	l.AwaitReleases()
	if asked != 1 {
		t.Errorf("asked about %d answers", asked)
	}

	// Methods that are given a cost do not ask.
	res, err := l.TakeRequestUnits(get(), 5)
	if err != nil || !res.Allowed() {
		t.Error(res, err)
	}
	wantLeft(t, l, "k", 15)
}

func TestChargeOfARuleIsChecked(t *testing.T) {
	r := rule(t, "tokens", "3 concurrent ttl=1m")
	r.Charge = func(core.Request) (int64, func(limiter.Seen) (int64, error), error) { return 1, nil, nil }
	r.Cost = func(core.Request) int64 { return 1 }
	unread := limiter.Rule{Name: "b", Limit: limit(t, "1/1m"), ReadsUsage: true}
	_, err := limiter.New(limiter.Config{Rules: []limiter.Rule{r, unread}})
	for _, want := range []string{
		`rule 0 "tokens": a Charge and a Cost cannot both say what a request costs`,
		`rule 0 "tokens": a Charge has nothing to settle under a limit whose leases are released`,
		`rule 1 "b": ReadsUsage: there is no Charge that could read it`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %s", err, want)
		}
	}
}
