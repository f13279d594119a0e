package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
)

// line returns the text of the element with an id with single spaces, or "".
func (a *answer) line(id string) string {
	n := a.byID(id)
	if n == nil {
		return ""
	}
	return strings.Join(strings.Fields(words(n)), " ")
}

// consequences returns what the menu says of each mode.
func (a *answer) consequences() map[string]string {
	says := map[string]string{}
	for _, mode := range []string{"enforce", "shadow", "off"} {
		says[mode] = a.line("what-" + mode)
	}
	return says
}

// Each mode says what it does, and in numbers where the counts tell: an hour of a policy in force,
// and what one in shadow would have refused.
func TestModeMenuSaysConsequences(t *testing.T) {
	w, b := asAdmin(t)
	const into, shadow, off = "Requests over the limit are refused, wait or get a cheaper answer.",
		"Requests are counted and reported, and none is refused.", "Requests are neither counted nor refused."
	check := func(name, what string, want map[string]string) {
		t.Helper()
		if got := b.get("/policies/" + name).want(http.StatusOK).consequences(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: the menu says %q, want %q", what, got, want)
		}
	}

	// The policy is two hours old, and 65 minutes of it are counted.
	end := time.Now().UTC().Truncate(time.Minute)
	w.pass(end.Add(-2 * time.Hour).Sub(w.now()))
	w.shadowed("p", "")
	w.pass(2*time.Hour + 45*time.Second)
	check("p", "without counts", map[string]string{"enforce": into, "shadow": shadow, "off": off})

	w.fleet.keys = func(_ context.Context, _, _ string, _ time.Time, n int) ([]topkeys.Summary, error) {
		return make([]topkeys.Summary, n), nil
	}
	for m := range 65 {
		w.must(w.Ledger().Record(t.Context(), "b", stats.Minute{Start: end.Add(-time.Duration(m+1) * time.Minute),
			Policies: map[string]stats.Counts{"p": {events.Allowed: 1500, events.ShadowRefused: 20}}}))
	}
	check("p", "in shadow", map[string]string{"shadow": shadow, "off": off,
		"enforce": into + " It would have refused 1,200 of 91,200 requests of the last hour."})

	// Redis has the last minutes of the other one.
	w.policy("one", "5/1m")
	const last = " In the last hour it refused 16 of 66 requests."
	check("one", "in force", map[string]string{"enforce": into, "shadow": shadow + last, "off": off + last})
}

// One form changes the mode, with a comment, and for some hours.
func TestModeMenuIsOneForm(t *testing.T) {
	w, b := asAdmin(t)
	w.policy("p", "5/1m")

	form := b.get("/policies/p").want(http.StatusOK).form("/policies/p/mode")
	if form.Get("mode") != "enforce" || form.Get("version") != "1" || form["for"] == nil || form["comment"] == nil {
		t.Fatalf("the menu sends %v", form)
	}

	// To send it as it is changes nothing.
	b.post("/policies/p/mode", form).goes("/policies/p?done=mode")
	form.Set("mode", "shadow")
	form.Set("comment", "for <b> the fair")
	b.post("/policies/p/mode", form).goes("/policies/p?done=mode")
	p, err := w.Policy(t.Context(), w.admin, "p")
	if err != nil || p.Version != 2 || p.Mode != policy.Shadow {
		t.Errorf("%+v %v", p, err)
	}

	// Mistakes leave the menu open, with what was typed.
	form = b.get("/policies/p").form("/policies/p/mode")
	form.Set("mode", "off")
	form.Set("for", "many")
	got := b.post("/policies/p/mode", form).want(http.StatusUnprocessableEntity)
	again := got.form("/policies/p/mode")
	if again.Get("mode") != "off" || again.Get("for") != "many" ||
		!strings.Contains(got.mistake("for"), "from 1 to 720") ||
		!strings.Contains(got.text, `<details class="menu modes" open>`) {
		t.Errorf("the menu keeps %v, and says %q", again, got.mistake("for"))
	}
}

// A viewer sees facts and no action, and each action is refused.
func TestPolicyPageOfAViewer(t *testing.T) {
	w := newWorld(t)
	w.policy("p", "5/1m")
	w.fleet.top = stats.Top{Instances: 1, Rules: []topkeys.Rule{
		{Rule: "p", Refused: summary(0, topkeys.Key{Key: "192.0.2.1", Count: 40})}}}
	w.person("viewer", map[string]service.Role{"a": service.Viewer})
	b := w.as("viewer")

	page := b.get("/policies/p").want(http.StatusOK)
	page.each(func(n *html.Node) {
		action, link := attr(n, "action"), attr(n, "href")
		if strings.HasPrefix(action, "/policies/") && attr(n, "role") != "search" ||
			strings.HasPrefix(action, "/keys/") || strings.HasSuffix(link, "/edit") ||
			strings.HasSuffix(link, "/delete") || strings.HasPrefix(link, "/new") {
			t.Errorf("a viewer is offered %s%s", action, link)
		}
	})
	if got := page.line("refused"); !strings.Contains(got, "192.0.2.1 40") {
		t.Errorf("the keys are %q", got)
	}
	if got := page.byClass("title"); !slices.Equal(got, []string{"pin force"}) {
		t.Errorf("the title is %q", got)
	}

	for path, form := range map[string]url.Values{
		"mode": {"version": {"1"}, "mode": {"shadow"}}, "pause": nil, "delete": {"version": {"1"}, "confirm": {"yes"}},
		"rollback": {"version": {"1"}, "to": {"1"}, "confirm": {"yes"}}, "overrides": {"key": {"k"}, "limit": {"1/1m"}},
	} {
		b.post("/policies/p/"+path, form).want(http.StatusForbidden)
	}
	// A mistake tells no more than the refusal.
	b.post("/policies/p/mode", url.Values{"mode": {"x"}}).want(http.StatusForbidden)
	if w.version("p") != 1 {
		t.Errorf("it has version %d", w.version("p"))
	}
}

// The keys that a policy refuses most are those of all applications that the actor sees, five of
// them, with their bans and what can be done about each.
func TestPolicyPageHasTheKeysRefusedMost(t *testing.T) {
	w, b := bansWorld(t)
	list := []topkeys.Key{{Key: "eve", Count: 1204}, {Key: "bob", Count: 40, Error: 10}}
	for i := range 6 {
		list = append(list, topkeys.Key{Key: fmt.Sprint("k", i), Count: int64(9 - i)})
	}
	w.fleet.top = stats.Top{Instances: 2, Rules: []topkeys.Rule{{Rule: "p", Refused: summary(0, list...)},
		{Rule: "plain", Refused: summary(0, topkeys.Key{Key: "192.0.2.9", Count: 7})}}}
	w.ban("p", "eve")

	const acts = "⋯ Look up Lift the ban… Ban for… Reset… Own limit… Never limit…"
	for _, path := range []string{"/policies/p", "/policies/p/live"} {
		page := b.get(path).want(http.StatusOK)
		got := page.line("refused")
		for _, want := range []string{"Refused most", "All on Keys",
			"eve 1,204 banned until 2026-03-01 12:01:30 " + acts,
			"bob 30 to 40 ⋯ Look up Ban for…", "k2 7 ⋯"} {
			if !strings.Contains(got, want) {
				t.Errorf("%s lacks %q: %s", path, want, got)
			}
		}
		if strings.Contains(got, "k3") || strings.Contains(got, "192.0.2.9") {
			t.Errorf("%s has too much: %s", path, got)
		}
		if form := page.form("/keys/ban"); form.Get("policy") != "p" || form.Get("key") != "eve" {
			t.Errorf("%s: the menu sends %v", path, form)
		}
	}

	// A policy that bans no keys by itself has bans beside it.
	w.must(w.ImposeBan(t.Context(), w.admin, "plain", "192.0.2.9", time.Minute))
	banned := regexp.MustCompile(`192\.0\.2\.9 7 banned until [-\d]+ [:\d]+ by admin`)
	for _, path := range []string{"/policies/plain", "/policies/plain/live"} {
		if got := b.get(path).line("refused"); !banned.MatchString(got) {
			t.Errorf("%s: %s", path, got)
		}
	}

	// From the menu a key is banned, after the question.
	b.post("/keys/reset", b.get("/policies/p").form("/keys/reset")).want(http.StatusOK)

	w.fleet.top = stats.Top{Instances: 1}
	if got := b.get("/policies/p").line("refused"); got != "Refused mostAll on Keys No key in the last minutes." {
		t.Errorf("without keys: %q", got)
	}
	w.fleet.away = http.ErrServerClosed
	if got := b.get("/policies/p").line("refused"); !strings.Contains(got, "Redis does not answer") {
		t.Errorf("without Redis: %q", got)
	}
}

// Only what is set is shown, and the newest versions roll back from the page.
func TestPolicyPageIsShort(t *testing.T) {
	w := newWorld(t)
	p := w.policy("p", "5/1m")
	for i := range recentSteps + 1 {
		p = w.describe(p, fmt.Sprint("as of ", i))
	}
	b := w.as("admin")
	page := b.get("/policies/p").want(http.StatusOK)

	var fields []string
	page.each(func(n *html.Node) {
		if n.Data == "dt" {
			fields = append(fields, words(n))
		}
	})
	if !slices.Equal(fields, []string{"Applications", "Limit", "For"}) {
		t.Errorf("the definition has %q", fields)
	}

	versions := page.byClass("versions")
	for _, v := range []string{"v6 admin, ", "v5 admin, ", "v3 admin, "} {
		if len(versions) != 1 || !strings.Contains(versions[0], v) || strings.Contains(versions[0], "v2 ") {
			t.Errorf("the history is %q", versions)
		}
	}
	form := page.form("/policies/p/rollback")
	if form.Get("to") != "5" || form.Get("version") != "6" {
		t.Errorf("the first roll-back sends %v", form)
	}
	b.agree("/policies/p", "/policies/p/rollback", nil).goes("/policies/p?done=rolledback")
	if got, err := w.Policy(t.Context(), w.admin, "p"); err != nil || got.Description != "as of 3" {
		t.Errorf("%+v %v", got, err)
	}
}
