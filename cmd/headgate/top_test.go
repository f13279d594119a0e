package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy/stats"
)

// instance reports as an instance of an application does, whenever the test says so.
type instance struct {
	t        *testing.T
	recorder *stats.Recorder
}

func (s *system) instance(app string) *instance {
	s.t.Helper()
	r, err := stats.New(s.client, stats.Options{App: app, Prefix: s.prefix, Every: time.Minute, Timeout: time.Minute,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { r.Close() })
	return &instance{s.t, r}
}

// counts reports requests that one policy decides.
func (i *instance) counts(n int, policy string, v events.Verdict) {
	i.t.Helper()
	for range n {
		i.recorder.Observe(context.Background(), &events.Request{Verdict: v,
			Rules: []events.Rule{{Name: policy, Verdict: v}}})
	}
	if err := i.recorder.Flush(i.t.Context()); err != nil {
		i.t.Fatal(err)
	}
}

// publishes has the instance publish keys that a policy has refused.
func (i *instance) publishes(policy string, keys ...topkeys.Key) {
	i.t.Helper()
	now := time.Now()
	i.recorder.PublishTop(func() []topkeys.Rule {
		s := topkeys.Summary{From: now.Add(-time.Minute), To: now, Keys: keys}
		for _, k := range keys {
			s.Total += k.Count
		}
		return []topkeys.Rule{{Rule: policy, Refused: s}}
	})
	i.counts(0, policy, events.Allowed) // the second write knows how many instances there are
}

// tables reads what top prints as JSON.
func (s *system) tables(args ...string) shownTable {
	s.t.Helper()
	var got shownTable
	out := s.call(append([]string{"top", "-json"}, args...)...).want(s.t, fine).out
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	return got
}

const evilKey = "evil\x1b[2J\n\u202e"

func TestTopShowsWhatInstancesReport(t *testing.T) {
	s := newSystem(t, "")
	s.publish(systemPolicies)
	i := s.instance("shop")
	i.counts(90, "api", events.Allowed)
	i.counts(10, "api", events.Refused)
	i.counts(1, "login", events.Banned)
	i.counts(2, "login", events.Overruled)

	// A key of a client may hold anything.
	i.publishes("api", topkeys.Key{Key: "alice", Count: 7, Since: time.Now()},
		topkeys.Key{Key: evilKey, Count: 9, Error: 1, Since: time.Now()})

	got := s.tables("-app", "shop")
	if len(got.Apps) != 1 || got.Apps[0].Requests != 103 || got.Apps[0].Refused != 11 || got.Apps[0].Reported == nil {
		t.Fatalf("%+v", got)
	}
	shop := got.Apps[0]
	if shop.Seconds < 60 || shop.Seconds > 120 {
		t.Errorf("the counts are of %v s", shop.Seconds)
	}

	// The policy that refuses most comes first, and so does the key.
	if p := shop.Policies; !slices.Equal(p, []policyCounts{{"api", 100, 10}, {"login", 3, 1}}) {
		t.Errorf("%+v", p)
	}
	if shop.Instances != 1 || len(shop.Keys) != 1 || len(shop.Keys[0].Refused.Keys) != 2 ||
		shop.Keys[0].Refused.Keys[0].Key != evilKey {
		t.Errorf("%+v", shop.Keys)
	}
}

// All applications that policies name are shown, and one policy alone.
func TestTopShowsWhatIsAskedFor(t *testing.T) {
	s := newSystem(t, "")
	s.publish(systemPolicies)
	i := s.instance("shop")
	i.counts(1, "login", events.Banned)
	i.counts(2, "api", events.Refused)
	i.publishes("api", topkeys.Key{Key: "alice", Count: 7, Since: time.Now()})

	if got := s.tables(); len(got.Apps) != 2 || got.Apps[1].App != "web" || got.Apps[1].Reported != nil {
		t.Errorf("%+v", got)
	}
	only := s.tables("-app", "shop", "-policy", "login").Apps[0]
	if len(only.Policies) != 1 || only.Policies[0].Policy != "login" || len(only.Keys) != 0 {
		t.Errorf("%+v", only)
	}
}

// The text escapes keys, says how old reports are, and is short.
func TestTopPrintsATable(t *testing.T) {
	s := newSystem(t, "")
	s.publish(systemPolicies)
	i := s.instance("shop")
	i.counts(1, "api", events.Allowed)
	i.counts(2, "api", events.Refused)
	i.publishes("api", topkeys.Key{Key: "alice", Count: 7, Since: time.Now()},
		topkeys.Key{Key: evilKey, Count: 9, Error: 1, Since: time.Now()})

	// The span is longer by a minute where the counts and the look are of two minutes.
	got := s.call("top").want(t, fine, "refused/s (66.67%), over ", ", this minute and the one before\n",
		"instances report once a second; the last report came ", "the keys refused most, in 1m up to ",
		"by the lists of 1 instance", "web: no instance has reported a request in this minute and the one before")
	if strings.ContainsAny(got.out, "\x1b\u202e") {
		t.Errorf("%q", got.out)
	}

	// The row with the most certain refusals comes first.
	rows := regexp.MustCompile(`(?m)^  api +(\d+\+?)  \d\d:\d\d:\d\d +(.*)$`).FindAllStringSubmatch(got.out, -1)
	if len(rows) != 2 || rows[0][1] != "8+" || rows[0][2] != `evil\x1b[2J\n\u202e` || rows[1][2] != "alice" {
		t.Errorf("%q in\n%s", rows, got.out)
	}
	if got := s.call("top", "-app", "shop", "-rows", "1").want(t, fine); strings.Contains(got.out, "alice") {
		t.Errorf("%s", got.out)
	}
}

func TestTopRefusesWhatCannotBe(t *testing.T) {
	s := newSystem(t, "")
	s.call("top").want(t, usage, "no policies are published in Redis under the prefix")
	s.publish(systemPolicies)
	s.call("top", "-app", "shpo").want(t, usage, `no policy names the application "shpo"`,
		"the applications are: shop, web")
	s.call("top", "-policy", "apy").want(t, usage, `there is no policy "apy"; the policies are: all, api, idle, jobs,`)
	s.call("top", "-rows", "0").want(t, usage, "-rows: 0 is not within 1 to 1000")
	s.call("top", "shop").want(t, usage, `"shop" is no flag`)

	// An application with policies of a file reports all the same, and so do its policies.
	s.instance("files").counts(1, "own", events.Allowed)
	s.call("top", "-app", "files", "-policy", "own").want(t, fine, "files: ", "own")
	s.call("top", "-app", "files").want(t, fine, "no instance publishes keys")
}

// A Redis that answers no more ends nothing, and an interrupt leaves the last table on the screen.
func TestTopIsDrawnAnew(t *testing.T) {
	server := redistest.Start(t)
	s := newSystem(t, "redis://"+server.Addr)
	s.publish(systemPolicies)
	i := s.instance("shop")
	i.counts(1000, "api", events.Refused)

	ctx, cancel := context.WithCancel(t.Context())
	f := &topFlags{redisFlags: redisFlags{url: s.url, prefix: s.prefix}, app: "shop", rows: 5, every: time.Millisecond}
	frames, killed := 0, false
	out := writer(func(p []byte) {
		if !bytes.HasPrefix(p, []byte(home)) {
			return
		}
		if frames++; frames == 3 {
			server.Kill()
		}
		if bytes.Contains(p, []byte("Redis: it cannot be reached")) {
			killed = true
			cancel()
		}
	})

	var all bytes.Buffer
	e := &env{out: tee{&all, out}, err: &all, screen: true, ctx: ctx}
	if code := showTop(e, nil, f); code != fine || !killed || frames < 4 {
		t.Errorf("exit code %d after %d frames, killed %t", code, frames, killed)
	}

	// The cursor is back before the last table, which has no sequence in it.
	text := all.String()
	if !strings.HasPrefix(text, openScreen+home) {
		t.Errorf("%q", text[:20])
	}
	_, left, ok := strings.Cut(text, closeScreen)
	if !ok || strings.Contains(left, "\x1b") || !strings.Contains(left, "  api  ") {
		t.Errorf("%q", left)
	}
}

// writer is a function that sees what is written.
type writer func([]byte)

func (w writer) Write(p []byte) (int, error) { w(p); return len(p), nil }

// tee writes to both.
type tee struct {
	all *bytes.Buffer
	to  writer
}

func (t tee) Write(p []byte) (int, error) { t.all.Write(p); return t.to.Write(p) }

// Rates are of what came between two looks, over at most some seconds, also where a minute begins
// and where the counts of a server are lost.
func TestCountsBetweenTwoLooks(t *testing.T) {
	start := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	minute := func(n int, refused int64) stats.Minute {
		c := stats.Counts{events.Refused: refused}
		return stats.Minute{Start: start.Add(time.Duration(n) * time.Minute), Changed: start, Requests: c,
			Policies: map[string]stats.Counts{"api": c}}
	}
	at := func(second int) time.Time { return start.Add(time.Duration(second) * time.Second) }

	for name, row := range map[string]struct {
		first, last mark
		refused     int64
		seconds     float64
	}{
		"one minute": {mark{at(65), []stats.Minute{minute(0, 5), minute(1, 100)}},
			mark{at(75), []stats.Minute{minute(0, 5), minute(1, 130)}}, 30, 10},
		"a minute begins": {mark{at(55), []stats.Minute{minute(-1, 5), minute(0, 100)}},
			mark{at(65), []stats.Minute{minute(0, 120), minute(1, 3)}}, 23, 10},
		"counts are lost": {mark{at(65), []stats.Minute{minute(0, 5), minute(1, 100)}},
			mark{at(70), []stats.Minute{minute(0, 0), minute(1, 30)}}, 0, 5},
		"too close": {mark{at(70), []stats.Minute{minute(0, 5), minute(1, 100)}},
			mark{at(72), []stats.Minute{minute(0, 5), minute(1, 130)}}, 135, 72},
	} {
		c := &course{app: "shop", now: row.last.at, marks: []mark{row.first, row.last}}
		a := c.counts("")
		if a.Refused != row.refused || a.Seconds != row.seconds || a.Policies[0].Refused != row.refused {
			t.Errorf("%s: %+v, want %d in %v s", name, a, row.refused, row.seconds)
		}
	}

	for text, got := range map[string]string{
		"0.00": rate(0, time.Minute), "<0.01": rate(1, time.Hour), "1.50": rate(15, 10*time.Second),
		"1,234": rate(12344, 10*time.Second),
	} {
		if got != text {
			t.Errorf("%q, want %q", got, text)
		}
	}
}
