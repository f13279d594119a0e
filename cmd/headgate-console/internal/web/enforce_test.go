package web

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/observe/events"
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
	w := newWorld(t)
	b := w.as("admin")
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

	if got := b.post("/policies/p/mode", enforce).
		want(http.StatusConflict); !strings.Contains(got.text, "was changed in the meantime") {
		t.Error("an old page enforces a newer version")
	}
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
	w := newWorld(t)
	b := w.as("admin")
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
	w := newWorld(t)
	b := w.as("admin")
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
	want := "It has seen no request yet. It decided otherwise until a moment ago, so counting begins with the next whole minute."
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
