package web

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
)

// servedHour returns what an instance knows of each of its last minutes, in which it served a
// client 300 times and another one twice.
func servedHour(t *testing.T) (list [][]topkeys.Rule) {
	synctest.Test(t, func(t *testing.T) {
		l, err := limiter.New(limiter.Config{Top: 20, Rules: []limiter.Rule{{Name: "p",
			Limit: core.MustParseLimit("100/1m"), Key: keyfuncs.RemoteIP}}})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()

		// No request comes at the very beginning of a minute, which belongs to either.
		time.Sleep(time.Minute / 600)
		for range 70 {
			for i := range 300 {
				l.Admit(&test.Request{Peer: "192.0.2.1:1"}).Done(200)
				if i < 2 {
					l.Admit(&test.Request{Peer: "192.0.2.2:1"}).Done(200)
				}
				if i == 5 { // the minute before has ended
					list = append(list, l.TopKeys())
				}
				time.Sleep(time.Minute / 300)
			}
		}
	})
	return list
}

// recordHour writes what an instance knows of minutes, of which the last ends at an instant.
func recordHour(t *testing.T, client redis.UniversalClient, prefix string, minutes [][]topkeys.Rule, end time.Time) {
	t.Helper()
	for i, rules := range minutes {
		// The clock of the instance is as far behind as the limiter's was.
		until := end.Add(-time.Duration(len(minutes)-1-i) * time.Minute)
		behind := until.Sub(rules[0].Minute.To)
		r, err := stats.New(client, stats.Options{App: "b", Prefix: prefix, Every: time.Minute, Timeout: time.Minute,
			Clock: func() time.Time { return time.Now().Add(-behind) }, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}

		// It learns with its first write how many others there are.
		r.PublishTop(func() []topkeys.Rule { return rules })
		r.CountRequest(t.Context(), events.Plain{})
		for range 2 {
			if err := r.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// What instances have recorded of an hour says what a tighter limit would have refused: in the
// preview of the form, as it is typed and without scripts, and on the page that asks before it is
// saved.
func TestFormSaysWhatWouldBeRefused(t *testing.T) {
	client, prefix := redis.NewClient(&redis.Options{Addr: redistest.Addr(t)}), redistest.Prefix(t)
	defer client.Close()
	w := newWorld(t)
	w.keys = func(ctx context.Context, app, policy string, from time.Time, n int) ([]topkeys.Summary, error) {
		return test.Patiently(func() ([]topkeys.Summary, error) {
			return stats.ReadMinuteKeys(context.WithoutCancel(ctx), client, prefix, app, policy, from, n)
		})
	}

	// The policy is two hours old.
	end := time.Now().UTC().Truncate(time.Minute)
	w.pass(end.Add(-2 * time.Hour).Sub(w.now()))
	p, err := w.CreatePolicy(t.Context(), w.admin, policy.Policy{Name: "p", Apps: []string{"b"},
		Limit: limit("100/1m"), Key: "ip"})
	w.must(err)
	w.pass(2*time.Hour + 45*time.Second)

	minutes := servedHour(t)
	recordHour(t, client, prefix, minutes[len(minutes)-65:], end)
	for m := range 65 {
		w.must(w.Ledger().Record(t.Context(), "b", stats.Minute{Start: end.Add(-time.Duration(m+1) * time.Minute),
			Policies: map[string]stats.Counts{"p": {events.Allowed: 102, events.Refused: 200}}}))
	}

	const says = "It would have refused 15,000 of 18,120 requests of the last hour, at least 1 caller. " +
		"So far it has refused 12,000."
	b, form := w.as("admin"), url.Values(draftFrom(p))
	if got := b.get("/validate?" + form.Encode()).want(http.StatusOK); got.byID("would") != nil {
		t.Errorf("without a change it says %s", got.text)
	}
	form["quota"], form["algorithm"], form["aligned"] = []string{"50"}, []string{"fixed-window"}, []string{"yes"}
	if got := words(b.get("/validate?" + form.Encode()).want(http.StatusOK).byID("would")); got != says {
		t.Errorf("as it is typed: %q", got)
	}
	form.Set("do", "preview")
	if got := words(b.post("/policies/p/edit", form).want(http.StatusOK).byID("would")); got != says {
		t.Errorf("the preview: %q", got)
	}

	// The change is made once it is confirmed.
	form.Set("do", "save")
	if got := b.post("/policies/p/edit", form).want(http.StatusOK).text; !strings.Contains(got, says) {
		t.Errorf("the confirmation: %s", got)
	}
	if now, err := w.Policy(t.Context(), w.admin, "p"); err != nil || now.Version != p.Version {
		t.Errorf("it was saved as version %d: %v", now.Version, err)
	}
	form.Set("confirm", "yes")
	b.post("/policies/p/edit", form).want(http.StatusSeeOther)
	if now, err := w.Policy(t.Context(), w.admin, "p"); err != nil || now.Version != p.Version+1 {
		t.Errorf("it is version %d: %v", now.Version, err)
	}
}

// Before policies are enforced together, a page says what each would have refused, and all of them.
func TestBulkSaysWhatWouldBeRefused(t *testing.T) {
	w := newWorld(t)
	w.keys = func(_ context.Context, _, _ string, _ time.Time, n int) ([]topkeys.Summary, error) {
		return make([]topkeys.Summary, n), nil
	}

	// The policies are two hours old. That which is off has counted nothing.
	end := time.Now().UTC().Truncate(time.Minute)
	w.pass(end.Add(-2 * time.Hour).Sub(w.now()))
	for name, mode := range map[string]policy.Mode{"p": policy.Shadow, "q": policy.Shadow, "calm": policy.Shadow,
		"r": policy.Off} {
		_, err := w.CreatePolicy(t.Context(), w.admin, policy.Policy{Name: name, Apps: []string{"b"},
			Limit: limit("100/1m"), Key: "ip", Mode: mode})
		w.must(err)
	}
	w.pass(2*time.Hour + 45*time.Second)
	for m := range 65 {
		w.must(w.Ledger().Record(t.Context(), "b", stats.Minute{Start: end.Add(-time.Duration(m+1) * time.Minute),
			Policies: map[string]stats.Counts{"p": {events.Allowed: 100, events.ShadowRefused: 2},
				"q": {events.Allowed: 10, events.ShadowRefused: 1}, "calm": {events.Allowed: 5}}}))
	}

	b := w.as("admin")
	send := func(ticked ...string) *answer {
		return b.submit("/policies", "/policies/bulk", url.Values{"policy": ticked, "do": {"enforce"},
			"comment": {"they look right"}})
	}
	asked := send("1:p", "1:q", "1:r", "1:calm").want(http.StatusOK)
	asked.legible("the confirmation")
	for _, says := range []string{
		"Put 4 policies in force?",
		"p: It would have refused 120 of 6,120 requests of the last hour.",
		"q: It would have refused 60 of 660 requests of the last hour.",
		"calm: It would have refused none of 300 requests of the last hour.",
		"Together: 180 of 7,080 decisions.",
		"What 1 policy would have refused is not known.",
	} {
		if !strings.Contains(asked.text, says) {
			t.Errorf("the page does not say %q: %s", says, asked.text)
		}
	}
	b.post("/policies/bulk", asked.form("/policies/bulk")).goesTo("/policies?done=bulk&at=")
	for _, name := range []string{"p", "q", "r", "calm"} {
		got, err := w.Policy(t.Context(), w.admin, name)
		if list, err2 := w.History(t.Context(), w.admin, name, 0, 1); err != nil || err2 != nil ||
			got.Mode != policy.Enforce || list[0].Comment != "they look right" {
			t.Errorf("%+v %+v %v %v", got, list, err, err2)
		}
	}

	// One policy needs no sum, and those of which nothing more is known to be refused no question.
	w.policy("fresh", "1/1s")
	send("2:p", "1:fresh").goes("/policies?done=unchanged")
	back := func(list ...string) {
		b.post("/policies/bulk", url.Values{"policy": list, "do": {"off"}, "confirm": {"yes"}}).
			want(http.StatusSeeOther)
	}
	back("2:calm", "2:r")
	send("3:calm", "3:r").goesTo("/policies?done=bulk&at=")
}
