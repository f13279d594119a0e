package limiter_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

func TestNewReportsEveryMistakeAtOnceByName(t *testing.T) {
	good := limit(t, "10/1s")
	// Each field and each rule is wrong in a way of its own, but for the last rule.
	_, err := limiter.New(limiter.Config{
		Headers:          limiter.XRateLimit | limiter.XRateLimitDelta,
		OnStoreError:     4,
		MaxWaiters:       -1,
		MaxWaitersPerKey: -2,
		QueueFullStatus:  500,
		Rules: []limiter.Rule{
			{Name: "Upper", Limit: good},
			{Name: "ok", Key: everyone},
			{Name: "ok", Limit: good, Key: everyone, OnLimit: limiter.Wait(0)},
			{Name: "late", Limit: good, Key: everyone, OnLimit: limiter.Wait(time.Hour + 1)},
			{Name: strings.Repeat("a", 65), Limit: good, Key: everyone},
			{Name: "fine", Limit: good, Key: everyone, OnLimit: limiter.Wait(time.Hour)},
		},
	})

	want := []string{
		"Headers: XRateLimit and XRateLimitDelta give one header two meanings",
		"OnStoreError: 4 is not known",
		"MaxWaiters: -1 is negative",
		"MaxWaitersPerKey: -2 is negative",
		"QueueFullStatus: 500 is neither 429 nor 503",
		`rule 0 "Upper": the name is not 1 to 64 of a-z, 0-9, _, . and -, a letter first`,
		`rule 1 "ok": quota 0 is not positive; period 0s is below 1ms`,
		`rule 2 "ok": OnLimit: the longest wait must be above 0 and at most 1h`,
		`rule 2 "ok": rule 1 has the same name`,
		`rule 3 "late": OnLimit: the longest wait must be above 0 and at most 1h`,
		`rule 4 "` + strings.Repeat("a", 65) + `": the name is not 1 to 64 of a-z, 0-9, _, . and -, a letter first`,
	}

	if got := strings.Split(err.Error(), "\n"); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	// errors.As finds the first of the rules' mistakes.
	var e *limiter.RuleError
	if !errors.As(err, &e) || e.Rule != "Upper" || e.Index != 0 {
		t.Errorf("first rule error is %+v", e)
	}
}

func TestRuleNamesAreTokens(t *testing.T) {
	rows := map[string]bool{
		"a": true, "a_b.c-9": true, strings.Repeat("z", 64): true,
		"": true, "9a": false, "-a": false, "aB": false, "a b": false, "a\"": false, "é": false, "a\n": false,
	}
	for name, want := range rows {
		r := rule(t, name, "1/1s")
		_, err := limiter.New(limiter.Config{Store: newStore(), Rules: []limiter.Rule{r}})
		if (err == nil) != want {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestHeaderStylesCombineWhereTheyMakeSense(t *testing.T) {
	rows := map[limiter.HeaderStyle]bool{
		0: true, limiter.XRateLimit: true, limiter.XRateLimitDelta | limiter.Draft8: true, limiter.NoHeaders: true,
		limiter.NoHeaders | limiter.Draft8: false, limiter.XRateLimit | limiter.XRateLimitDelta: false, 16: false,
	}
	for style, want := range rows {
		_, err := limiter.New(limiter.Config{Store: newStore(), Headers: style})
		if (err == nil) != want {
			t.Errorf("%d: %v", style, err)
		}
	}
}

func TestMustNewPanicsWithTheError(t *testing.T) {
	defer func() {
		if err, ok := recover().(error); !ok || err.Error() != "MaxWaiters: -1 is negative" {
			t.Errorf("panic %v", err)
		}
	}()
	limiter.MustNew(limiter.Config{MaxWaiters: -1})
}

func TestActionString(t *testing.T) {
	rows := map[limiter.Action]string{
		limiter.Reject: "reject", limiter.Degrade: "degrade", limiter.Shadow: "shadow",
		limiter.Wait(90 * time.Second): "wait 1m30s", limiter.Wait(-1): "wait -1ns",
	}
	for a, want := range rows {
		if a.String() != want {
			t.Errorf("%#v is %q, want %q", a, a, want)
		}
	}
	if got := limiter.Wait(time.Second).MaxWait(); got != time.Second {
		t.Errorf("MaxWait %s", got)
	}
	if got := limiter.Shadow.MaxWait(); got != 0 {
		t.Errorf("MaxWait of Shadow %s", got)
	}
}

func TestSetRulesKeepsCountsAndRefusesMistakes(t *testing.T) {
	l := newLimiter(t, newStore(), rule(t, "day", "10/1d fixed-window"))
	for range 4 {
		admit(l)
	}
	wantLeft(t, l, "k", 6)

	// A set with one mistake changes nothing, not even for the rule that is right.
	if err := l.SetRules([]limiter.Rule{rule(t, "day", "3/1d fixed-window"), {Name: "bad"}}); err == nil {
		t.Fatal("a bad set was taken")
	}
	wantLeft(t, l, "k", 6)

	// The count of four is kept under the larger limit.
	if err := l.SetRules([]limiter.Rule{rule(t, "day", "20/1d fixed-window"), rule(t, "new", "5/1s")}); err != nil {
		t.Fatal(err)
	}
	wantLeft(t, l, "k", 16, 5)

	// No rules admit everything.
	if err := l.SetRules(nil); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if got := admit(l); got != limiter.Pass {
			t.Fatalf("%s without rules", got)
		}
	}
}

// Under another name or algorithm a key starts fresh, and its old count stays until time
// ends it. So a change there and back admits nothing more.
func TestSetRulesAdmitsTheLimitAgainUnderAnotherName(t *testing.T) {
	l := newLimiter(t, newStore(), rule(t, "day", "10/1d fixed-window"))
	// The rows follow one another. Each sends 20 requests, and what was admitted before counts on.
	for i, row := range []struct {
		name, limit string
		admitted    int
	}{
		{"day", "10/1d fixed-window", 10},
		{"daily", "10/1d fixed-window", 10},
		{"day", "10/1d fixed-window", 0},
		{"day", "10/1d sliding-window", 10},
		{"daily", "10/1d fixed-window", 0},
		// The old count of ten goes on under a limit of twelve.
		{"day", "12/1d fixed-window", 2},
	} {
		if err := l.SetRules([]limiter.Rule{rule(t, row.name, row.limit)}); err != nil {
			t.Fatal(err)
		}

		admitted := 0
		for range 20 {
			if admit(l) == limiter.Pass {
				admitted++
			}
		}

		if admitted != row.admitted {
			t.Errorf("row %d, %s %s: %d admitted, want %d", i, row.name, row.limit, admitted, row.admitted)
		}
	}
}

func TestTakeIsAllOrNothing(t *testing.T) {
	// By its Key the rule would apply to no request. Take counts a key under every rule.
	never := func(core.Request) (string, bool) { return "", false }
	small := rule(t, "small", "3/1m fixed-window")
	small.Key = never
	l := newLimiter(t, newStore(), small, rule(t, "large", "10/1h fixed-window"))
	ctx := context.Background()

	res, err := l.Take(ctx, "job", 2)
	if err != nil || !res.Allowed() {
		t.Fatalf("allowed %t, %v", res.Allowed(), err)
	}
	wantLeft(t, l, "job", 1, 8)

	// The small rule refuses, and the large one is not charged either.
	res, err = l.Take(ctx, "job", 2)
	if err != nil || res.Allowed() {
		t.Fatalf("allowed %t, %v", res.Allowed(), err)
	}
	if v := res.Violated(); len(v) != 1 || v[0] != "small" || res.RetryAfter() != time.Minute {
		t.Errorf("violated %v, retry after %s", v, res.RetryAfter())
	}
	wantLeft(t, l, "job", 1, 8)

	// Four never fit into three.
	res, _ = l.Take(ctx, "job", 4)
	if res.Allowed() || res.RetryAfter() != core.Never {
		t.Errorf("a cost above the capacity: allowed %t, retry after %s", res.Allowed(), res.RetryAfter())
	}
	if _, err = l.Take(ctx, "job", -1); !errors.Is(err, core.ErrOp) {
		t.Errorf("a negative cost: %v", err)
	}

	if err := l.Reset(ctx, "job"); err != nil {
		t.Fatal(err)
	}
	wantLeft(t, l, "job", 3, 10)
}

func TestRefundGivesBackOnce(t *testing.T) {
	l := newLimiter(t, newStore(), rule(t, "a", "10/1h fixed-window"), rule(t, "b", "10/1h"))
	res, _ := l.Take(context.Background(), "k", 4)
	h, _ := l.Take(context.Background(), "k", 1)
	wantLeft(t, l, "k", 5, 5)

	// The second refund does nothing, or the other take's unit would come back too.
	for range 2 {
		if err := res.Refund(context.Background()); err != nil {
			t.Fatal(err)
		}
		wantLeft(t, l, "k", 9, 9)
	}

	if err := h.Refund(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantLeft(t, l, "k", 10, 10)
}

func TestRefundDoesNotRepeatTheRefundByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), rule(t, "a", "5/10s fixed-window"))
		old, _ := l.Take(t.Context(), "k", 2)
		// The window in which two units were taken is over. In the new one three are taken, and
		// none of them is given back.
		time.Sleep(10 * time.Second)
		if res, _ := l.Take(t.Context(), "k", 3); !res.Allowed() {
			t.Fatal("refused")
		}

		if err := old.Refund(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantLeft(t, l, "k", 2)
	})
}

func TestRefundAfterARefusalDoesNothing(t *testing.T) {
	l := newLimiter(t, newStore(), rule(t, "a", "1/1h fixed-window"), rule(t, "b", "9/1h fixed-window"))
	admit(l)
	res, _ := l.Take(context.Background(), "k", 1)
	if err := res.Refund(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantLeft(t, l, "k", 0, 8)
}
