package replay

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/accesslog"
	"github.com/headgate/headgate/store/memstore"
)

// suggesterOf returns a suggester that has read a log.
func suggesterOf(t testing.TB, text string, o SuggestOptions) *Suggester {
	t.Helper()
	in, err := accesslog.New("log", strings.NewReader(text), accesslog.Options{Reorder: time.Hour})
	if err != nil {
		t.Fatal(err)
	}

	s, err := NewSuggester(o, in.Stats().Has)
	if err != nil {
		t.Fatal(err)
	}

	for {
		e, err := in.Next()
		if errors.Is(err, io.EOF) {
			return s
		}
		s.Add(e)
	}
}

// Every caller but one in a hundred sends at most 30 requests in a minute, at once.
func TestSuggestFindsTheKnownQuota(t *testing.T) {
	var log strings.Builder
	for caller := range 200 {
		n := 1 + caller%30
		if caller%100 == 99 {
			n = 500
		}
		for range n {
			log.WriteString(lineAt(0, fmt.Sprintf("10.0.0.%d", caller), "/"))
		}
	}

	s := suggesterOf(t, log.String(), SuggestOptions{Key: "ip", Period: time.Minute, Touch: 0.01})
	// Two callers are one in a hundred.
	r, err := s.Report()
	if err != nil {
		t.Fatal(err)
	}

	// All came at once, so the quota of every algorithm is the burst.
	var got []string
	for _, x := range r.Suggestions {
		got = append(got, fmt.Sprint(x.Limit, " ", x.Touched))
	}

	want := []string{"30/1m 2", "1/1m burst=30 2", "30/1m fixed-window 2", "30/1m sliding-window 2",
		"30/1m sliding-log 2"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if r.Callers != 200 || r.OneIn != 1 || r.Requests != int64(strings.Count(log.String(), "\n")) {
		t.Errorf("%+v", r)
	}
}

// A log of callers whose rates differ: each suggestion touches no more callers than it may, and one
// unit less would touch more. The stores say so.
func TestSuggestionsAreTheSmallest(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	var log strings.Builder
	type event struct {
		at     int64
		caller string
	}
	var events []event
	for caller := range 300 {
		gap := 2 + rnd.ExpFloat64()*20
		address := fmt.Sprintf("10.1.%d.%d", caller/250, caller%250)
		for at := rnd.Float64() * 60; at < 900; at += rnd.ExpFloat64() * gap {
			log.WriteString(lineAt(int(at), address, "/"))
			events = append(events, event{int64(at) * 1e6, address})
		}
	}

	start := time.Date(2026, 11, 28, 8, 0, 0, 0, time.UTC).UnixMicro()
	const touch = 0.05
	s := suggesterOf(t, log.String(), SuggestOptions{Key: "ip", Period: time.Minute, Touch: touch})
	r, err := s.Report()
	if err != nil {
		t.Fatal(err)
	}

	// One store counts all callers in the order of their times.
	slices.SortStableFunc(events, func(a, b event) int { return int(a.at - b.at) })
	touched := func(l core.Limit) int64 {
		now, over := int64(0), map[string]bool{}
		store := memstore.MustNew(memstore.Options{Clock: func() int64 { return now }})
		for _, x := range events {
			now = start + x.at
			var out [1]core.Decision
			op := []core.Op{{Rule: "r", Key: x.caller, Limit: l, Cost: 1}}
			if err := store.Apply(t.Context(), op, out[:]); err != nil {
				t.Fatal(err)
			}
			if !out[0].Allowed {
				over[x.caller] = true
			}
		}
		return int64(len(over))
	}

	if len(r.Suggestions) != 5 {
		t.Fatalf("%+v", r.Suggestions)
	}

	// One unit less would be too little.
	most := int64(touch * 300)
	for _, x := range r.Suggestions {
		l := core.MustParseLimit(x.Limit)
		if n := touched(l); n != x.Touched || n > most {
			t.Errorf("%s touches %d callers, want %d and at most %d", x.Limit, n, x.Touched, most)
		}
		if l.Burst > 0 {
			l.Burst--
		} else {
			l.Quota--
		}
		if n := touched(l); n <= most {
			t.Errorf("%s touches %d callers, so %s is not the smallest", l, n, x.Limit)
		}
	}
}

// A token bucket of its quota has no row of its own: it refuses what the fixed window does.
func TestTokenBucketOfItsQuotaIsAFixedWindow(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	window, bucket := core.MustParseLimit("4/10s fixed-window"), core.MustParseLimit("4/10s token-bucket")
	now, refused := int64(1e12), 0
	store := memstore.MustNew(memstore.Options{Clock: func() int64 { return now }})
	for i := range 20_000 {
		// Many requests come at the very end of a period, or a moment before it.
		now += []int64{0, 1, 1e6, 2_499_999, 2_500_000, 5e6, 9_999_999, 10e6}[rnd.IntN(8)] / int64(1+rnd.IntN(2))
		var allowed [2]bool
		for j, l := range []core.Limit{window, bucket} {
			var out [1]core.Decision
			op := []core.Op{{Rule: "r", Key: "k", Limit: l, Cost: 1}}
			if err := store.Apply(t.Context(), op, out[:]); err != nil {
				t.Fatal(err)
			}
			allowed[j] = out[0].Allowed
		}
		if allowed[0] != allowed[1] {
			t.Fatalf("request %d: the window admits it: %t, and the bucket: %t", i, allowed[0], allowed[1])
		}
		if !allowed[0] {
			refused++
		}
	}
	if refused < 1000 {
		t.Errorf("%d requests are refused", refused)
	}

	s := suggesterOf(t, lineAt(0, "192.0.2.1", "/"), SuggestOptions{Key: "ip", Period: time.Hour})
	r, err := s.Report()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range r.Suggestions {
		want := ""
		if x.Limit == "1/1h fixed-window" {
			want = "1/1h token-bucket"
		}
		if x.Same != want {
			t.Errorf("%s is the same as %q, want %q", x.Limit, x.Same, want)
		}
	}
}

// The log, replayed with the suggestions, refuses what the limits do by themselves.
func TestTryCountsRefusals(t *testing.T) {
	var log strings.Builder
	for i := range 20 {
		log.WriteString(lineAt(i, "192.0.2.1", "/"))
		log.WriteString(lineAt(3*i, "192.0.2.2", "/"))
	}

	o := SuggestOptions{Key: "ip", Period: time.Minute, Touch: 0.5}
	s := suggesterOf(t, log.String(), o)
	r, err := s.Report()
	if err != nil {
		t.Fatal(err)
	}

	// The log is read a second time.
	try, err := s.Try(r, accesslog.HasAddress)
	if err != nil {
		t.Fatal(err)
	}

	in, err := accesslog.New("log", strings.NewReader(log.String()), accesslog.Options{Reorder: time.Hour})
	if err != nil {
		t.Fatal(err)
	}

	for {
		e, err := in.Next()
		if err != nil {
			break
		}
		try.Add(e)
	}

	// The timeline is that of the first suggestion.
	sum := int64(0)
	refusals, shared := try.End()
	for _, n := range refusals.Counts {
		sum += n
	}

	if shared != 0 {
		t.Errorf("%d requests shared limits", shared)
	}

	// The store has room for both callers.
	for i, x := range r.Suggestions {
		if x.Refused == nil || (*x.Refused > 0) != (x.Touched > 0) {
			t.Errorf("%+v", x)
		}
		if i == 0 && *x.Refused != sum {
			t.Errorf("%d refusals over time, want %d", sum, *x.Refused)
		}
	}
}

// Many callers are sampled, and the share stays about right.
func TestSuggestIsBounded(t *testing.T) {
	s, err := NewSuggester(SuggestOptions{Key: "ip", Period: time.Minute, Touch: 0.15}, accesslog.HasAddress)
	if err != nil {
		t.Fatal(err)
	}

	// A tenth of them send ten requests.
	const callers = 3 * maxProfiles
	for i := range callers {
		e := accesslog.Entry{At: 1e12, Method: "GET", Target: "/",
			Address: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)}
		for range 1 + i%10 {
			s.Add(&e)
		}
	}

	r, err := s.Report()
	if err != nil || len(s.callers) > maxProfiles || r.OneIn != 4 && r.OneIn != 8 {
		t.Fatalf("%v, %d callers of one in %d", err, len(s.callers), r.OneIn)
	}

	if got := r.Suggestions[0].Limit; got != "9/1m" || r.Callers < callers*95/100 || r.Callers > callers*105/100 {
		t.Errorf("%s of %d callers, want 9/1m", got, r.Callers)
	}
}

// Callers that never rest have large profiles, and the sample is such that all fit.
func TestProfilesAreBounded(t *testing.T) {
	s, err := NewSuggester(SuggestOptions{Key: "ip", Period: time.Minute, Touch: 0.15}, accesslog.HasAddress)
	if err != nil {
		t.Fatal(err)
	}

	// Two hundred callers ask every tenth of a second for a minute.
	s.maxBytes = 512 << 10
	most := 0
	for i := range 600 {
		for caller := range 200 {
			e := accesslog.Entry{At: 1e12 + int64(i)*1e5, Method: "GET", Target: "/",
				Address: fmt.Sprintf("10.0.0.%d", caller)}
			s.Add(&e)
		}
		most = max(most, s.bytes)
	}

	// What is counted is what the profiles have.
	sum := 0
	for _, p := range s.callers {
		sum += p.size()
	}
	r, err := s.Report()
	if err != nil || most > s.maxBytes || s.bytes != sum || sum < s.maxBytes/8 {
		t.Errorf("%v: %d bytes at most, %d counted, %d are there", err, most, s.bytes, sum)
	}

	// The suggestion is that of all callers, which do the same.
	if !r.MemoryFull || r.OneIn < 4 || r.Suggestions[0].Limit != "305/1m" {
		t.Errorf("one in %d, %t, %+v", r.OneIn, r.MemoryFull, r.Suggestions[0])
	}
}

func TestSuggestWithMistakes(t *testing.T) {
	good := SuggestOptions{Key: "ip", Period: time.Minute, Touch: 0.1}
	// Each has one mistake.
	for name, spoil := range map[string]func(*SuggestOptions){
		"key": func(o *SuggestOptions) { o.Key = "nobody" }, "user": func(o *SuggestOptions) { o.Key = "user" },
		"path": func(o *SuggestOptions) { o.Match.Path = "x" }, "period": func(o *SuggestOptions) { o.Period = 0 },
		"touch": func(o *SuggestOptions) { o.Touch = 2 }, "proxies": func(o *SuggestOptions) { o.Proxies = []string{"x"} },
	} {
		o := good
		spoil(&o)
		if _, err := NewSuggester(o, accesslog.HasAddress); err == nil {
			t.Errorf("a mistake in the %s is none", name)
		}
	}

	s, err := NewSuggester(good, accesslog.HasAddress)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := s.Report(); !errors.Is(err, errNoCallers) {
		t.Errorf("%v, want %v", err, errNoCallers)
	}
}

func TestKneeIsWhereTheCurveBends(t *testing.T) {
	// The last ones have no bend.
	for _, row := range []struct {
		bursts []int64
		want   int
	}{
		{[]int64{300, 100, 40, 35, 33, 31}, 2},
		{[]int64{60, 50, 40, 30, 20, 10}, 5}, // a straight line has none
		{[]int64{30, 30, 30, 30, 30, 30}, 0},
		{[]int64{7}, 0},
	} {
		var curve []Point
		for i, burst := range row.bursts {
			curve = append(curve, Point{Quota: int64(i + 1), Burst: burst})
		}
		if got := knee(curve); got != row.want {
			t.Errorf("%v bends at %d, want %d", row.bursts, got, row.want)
		}
	}
}
