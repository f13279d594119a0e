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

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
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

// shadowed adds a policy in shadow of the application b, whose last minutes are not in Redis.
func (w *world) shadowed(name, onLimit string) policy.Policy {
	w.t.Helper()
	p, err := w.CreatePolicy(w.t.Context(), w.admin, policy.Policy{Name: name, Apps: []string{"b"},
		Limit: limit("5/1m"), Key: "ip", OnLimit: onLimit, Mode: policy.Shadow})
	w.must(err)
	return p
}

// counted records decisions of a policy in the minute of its creation.
func (w *world) counted(p policy.Policy, c stats.Counts) {
	w.t.Helper()
	w.must(w.Ledger().Record(w.t.Context(), "b",
		stats.Minute{Start: p.CreatedAt.Truncate(time.Minute), Policies: map[string]stats.Counts{p.Name: c}}))
}

// seen returns what the page says that the policy has seen, in one line.
func (a *answer) seen() string {
	if n := a.byID("seen"); n != nil {
		return strings.Join(strings.Fields(words(n)), " ")
	}
	return ""
}

// The page of a policy in shadow says what it has seen, in exact numbers, and enforces it.
func TestEnforceNow(t *testing.T) {
	w, b := asAdmin(t)
	p := w.shadowed("p", "")

	since := " Counting began " + p.CreatedAt.UTC().Format("2006-01-02 15:04:05") + "."
	if got := b.get("/policies/p").want(http.StatusOK).
		seen(); !strings.HasPrefix(got, "It has seen no request yet."+since) {
		t.Errorf("at first: %q", got)
	}
	// Each row takes the place of the one before, as all are of one minute. A request that failed
	// open was seen as well.
	for _, row := range []struct {
		counts stats.Counts
		says   string
	}{
		{stats.Counts{events.Allowed: 1}, "1 request, of which 0 (0%) would have been refused."},
		{stats.Counts{events.Allowed: 1200, events.Overruled: 4, events.ShadowRefused: 1},
			"1,205 requests, of which 1 (0.08%) would have been refused."},
		{stats.Counts{events.Allowed: 1200, events.Overruled: 4, events.ShadowRefused: 30_000, events.FailedOpen: 2},
			"31,206 requests, of which 30,000 (96.1%) would have been refused."},
	} {
		w.counted(p, row.counts)
		if got := b.get("/policies/p").seen(); got != "It has seen "+row.says+since {
			t.Errorf("%q, want %q", got, row.says+since)
		}
		if got := b.get("/policies/p/live?version=1").seen(); got != "It has seen "+row.says+since {
			t.Errorf("the live part says %q", got)
		}
	}

	// The button is renewed with the part that moves, and stays that of the version.
	if form := b.get("/policies/p/live?version=1").
		form("/policies/p/mode"); form.Get("version") != "1" || form.Get("mode") != "enforce" {
		t.Errorf("the live part sends %v", form)
	}

	enforce := b.get("/policies/p").enforceForm()
	b.post("/policies/p/mode", enforce).goes("/policies/p?done=mode")

	got, err := w.Policy(t.Context(), w.admin, "p")
	w.must(err)
	if got.Mode != policy.Enforce || got.Version != 2 {
		t.Errorf("the policy is %+v", got)
	}

	if page := b.get("/policies/p"); page.byID("watched") != nil {
		t.Error("a policy in force offers to enforce it")
	}

	// The roll-back brings a third version, which the form of the first must not enforce.
	b.agree("/policies/p/history", "/policies/p/rollback", nil).goes("/policies/p?done=rolledback")
	if page := b.get("/policies/p"); page.byID("watched") == nil {
		t.Error("the roll-back does not bring the shadow back")
	}

	b.post("/policies/p/mode", enforce).
		want(http.StatusConflict).has("was changed in the meantime")
}

// enforceForm returns the fields of the button.
func (a *answer) enforceForm() url.Values {
	n := a.byID("enforce")
	if n == nil {
		return nil
	}
	return fieldsOf(n)
}

// The button of a page never enforces a version that the page does not show, however long the
// live part has renewed it.
func TestEnforceNowIsOfTheVersionShown(t *testing.T) {
	w, b := asAdmin(t)
	p := w.shadowed("p", "")

	p.Limit.Quota = 1
	_, err := w.UpdatePolicy(t.Context(), w.admin, p)
	w.must(err)

	// The address of the part names the version that the page shows. Without it, nothing is
	// certain.
	for path, stale := range map[string]bool{
		"/policies/p": false, "/policies/p/live?version=2": false, "/policies/p/live?version=1": true,
		"/policies/p/live": true,
		"/policies/p/live?version=" + url.QueryEscape(`"><script>`): true,
	} {
		got := b.get(path).want(http.StatusOK)
		if got.enforceForm() == nil != stale || got.byID("stale") == nil == stale {
			t.Errorf("%s: the button is %v", path, got.enforceForm())
		}
	}
}

func TestEnforceNowSaysWhatTheActionIs(t *testing.T) {
	w, b := asAdmin(t)
	for name, row := range map[string][2]string{
		"r": {"", "would have been refused."}, "w": {"wait 2s", "would have waited, or been refused."},
		"d": {"degrade", "would have got a cheaper answer."},
	} {
		w.counted(w.shadowed(name, row[0]), stats.Counts{events.Allowed: 6, events.ShadowRefused: 2})
		if got := b.get("/policies/" + name).
			seen(); !strings.HasPrefix(got, "It has seen 8 requests, of which 2 (25.0%) "+row[1]) {
			t.Errorf("%s: %q", row[0], got)
		}
	}
}

// After a change of the limit the numbers of the former one are not shown.
func TestEnforceNowForgetsAnotherLimit(t *testing.T) {
	var now time.Time // stands still

	w := newWorld(t, func(o *Options) { o.Clock = func() time.Time { return now } })
	now = time.Now()
	b := w.as("admin")

	// These eight were seen under five a minute, and say nothing of one a minute.
	p := w.shadowed("p", "")
	w.counted(p, stats.Counts{events.Allowed: 6, events.ShadowRefused: 2})
	p.Limit.Quota = 1
	p, err := w.UpdatePolicy(t.Context(), w.admin, p)
	w.must(err)

	now = p.UpdatedAt

	// Counts are kept by whole minutes, so that of the change is of both limits.
	want := "It has seen no request yet. It decided otherwise until a moment ago, so counting begins with the " +
		"next whole minute."
	if got := b.get("/policies/p").seen(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A viewer sees the numbers and no button.
func TestEnforceNowIsForOwners(t *testing.T) {
	w := newWorld(t)
	w.counted(w.shadowed("p", ""), stats.Counts{events.Allowed: 6, events.ShadowRefused: 2})
	w.person("viewer", map[string]service.Role{"b": service.Viewer})
	page := w.as("viewer").get("/policies/p").want(http.StatusOK)
	if !strings.Contains(page.seen(), "8 requests") || page.enforceForm() != nil || page.byID("stale") != nil {
		t.Errorf("a viewer sees %q and %v", page.seen(), page.enforceForm())
	}
}

func TestEnforceNowWithoutRedis(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Fleet = nil })
	w.shadowed("p", "")
	page := w.as("admin").get("/policies/p").want(http.StatusOK)
	if page.seen() != "The console was started without Redis, so it does not learn what the policy would do." ||
		page.enforceForm() == nil {
		t.Errorf("the page says %q and has %v", page.seen(), page.enforceForm())
	}
}

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
	w.fleet.keys = func(ctx context.Context, app, policy string, from time.Time, n int) ([]topkeys.Summary, error) {
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
	w.fleet.keys = func(_ context.Context, _, _ string, _ time.Time, n int) ([]topkeys.Summary, error) {
		return make([]topkeys.Summary, n), nil
	}

	// The policies are two hours old. That which is off has counted nothing.
	end := time.Now().UTC().Truncate(time.Minute)
	w.pass(end.Add(-2 * time.Hour).Sub(w.now()))
	for name, mode := range map[string]policy.Mode{"p": policy.Shadow, "q": policy.Shadow, "calm": policy.Shadow,
		"r": policy.Off} {
		w.add(policy.Policy{Name: name, Apps: []string{"b"},
			Limit: limit("100/1m"), Key: "ip", Mode: mode})
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
