package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
)

func TestReadableTimeRoundsUp(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		0: 0, 1: time.Millisecond, time.Millisecond: time.Millisecond, 999*time.Millisecond + 1: time.Second,
		time.Second: time.Second, time.Second + 1: 2 * time.Second,
		time.Hour - 1: time.Hour, core.Never: core.Never,
	} {
		if got := readableTime(d); got != want {
			t.Errorf("%d ns are shown as %s, want %s", d, got, want)
		}
	}
}

var midday = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// bansWorld is asAdmin with the policies p of the application a and q of b, which ban.
func bansWorld(t *testing.T) (*world, *browser) {
	t.Helper()
	w := newWorld(t, func(o *Options) { o.Clock = func() time.Time { return midday } })
	for name, app := range map[string]string{"p": "a", "q": "b"} {
		w.add(policy.Policy{Name: name, Apps: []string{app}, Limit: limit("5/1m"), Key: "user",
			Ban: core.MustParseBan("20/1m for 10m max 24h")})
	}
	w.policy("plain", "5/1m")
	return w, w.as("admin")
}

// ban adds bans of a policy that end after midday.
func (w *world) ban(rule string, keys ...string) {
	for _, key := range keys {
		w.fleet.banned = append(w.fleet.banned,
			core.Banned{Rule: rule, Key: key, Until: midday.Add(90 * time.Second).UnixMicro()})
	}
}

func (w *world) audited(action string) []service.Entry {
	w.t.Helper()
	rows, err := w.Audit(w.t.Context(), w.admin, service.AuditQuery{Action: action, Limit: service.MaxPerPage})
	w.must(err)
	return rows
}

// Top returns what a test has put there, for the application a.
func (f *fakeFleet) Top(_ context.Context, app string) (stats.Top, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if app != "a" {
		return stats.Top{}, f.away
	}
	return f.top, f.away
}

// summary returns a summary of the five minutes before midday.
func summary(floor int64, keys ...topkeys.Key) topkeys.Summary {
	s := topkeys.Summary{From: midday.Add(-5 * time.Minute), To: midday, Floor: floor, Keys: keys}
	for i := range s.Keys {
		s.Total += s.Keys[i].Count
		s.Keys[i].Since = midday.Add(-time.Hour)
	}
	return s
}

// look returns the page of a key, under a policy and all others, or under all.
func (b *browser) look(name, key string) *answer {
	b.t.Helper()
	return b.get(keysPath(name, key)).want(http.StatusOK)
}

// cell returns a row of the page of keys, with one space between its words.
func (a *answer) cell(key string) string { return strings.Join(strings.Fields(a.rows()[key]), " ") }

func TestKeysShowsWhatIsRefused(t *testing.T) {
	w, b := bansWorld(t)
	b.get("/keys").want(http.StatusOK).has("No instance of a says which keys")

	// The error of bob's count is 10, so that the page must show a range. What is admitted is
	// not here.
	w.fleet.top = stats.Top{Instances: 2, Unread: 3, Rules: []topkeys.Rule{
		{Rule: "plain", Refused: summary(0, topkeys.Key{Key: "192.0.2.1", Count: 30}),
			Admitted: summary(0, topkeys.Key{Key: "192.0.2.9", Count: 300})},
		{Rule: "p", Refused: summary(4, topkeys.Key{Key: "eve", Count: 60},
			topkeys.Key{Key: "bob", Count: 40, Error: 10})},
	}}
	w.ban("p", "eve", "mallory")
	w.ban("q", "eve")

	got := b.get("/keys?app=a").want(http.StatusOK)
	got.legible("keys that are refused")
	for key, want := range map[string]string{
		"eve": "p | 60 refusedbanned until 2026-03-01 12:01:30 | 2026-03-01 11:00:00 | | " +
			"⋯ Look up Lift the ban… Ban for… Reset… Own limit… Never limit… Grant units… Debit units…",
		"bob": "p | 30 to 40 refused | 2026-03-01 11:00:00 | | " +
			"⋯ Look up Ban for… Reset… Own limit… Never limit… Grant units… Debit units…",
		"192.0.2.1": "plain | 30 refused | 2026-03-01 11:00:00 | | " +
			"⋯ Look up Ban for… Reset… Own limit… Never limit… Grant units… Debit units…",
		"192.0.2.9": "", "mallory": "",
	} {
		if row := strings.Replace(got.cell(key), "the policy was changed since", "", 1); row != want {
			t.Errorf("%s: %q, want %q", key, row, want)
		}
	}

	// The one that is refused most is the first.
	at := func(key string) int { return strings.Index(got.text, ">"+key+"<") }
	if at("eve") > at("bob") || at("bob") > at("192.0.2.1") {
		t.Errorf("the order is wrong: %s", got.text)
	}
	for _, want := range []string{"in 2 instances", "2 keys of a are banned now", "The lists of 3 more instances"} {
		if !strings.Contains(words(got.doc), want) {
			t.Errorf("the page lacks %q: %s", want, words(got.doc))
		}
	}
	if one := b.get("/keys?policy=plain").want(http.StatusOK).rows(); one["eve"] != "" || one["192.0.2.1"] == "" {
		t.Errorf("under plain: %v", one)
	}
}

// What a policy in shadow has counted passed, and stands after what was refused.
func TestKeysSaysThatShadowRefusesNothing(t *testing.T) {
	w, _ := bansWorld(t)
	modes := map[string]policy.Mode{"seen": policy.Shadow, "long": policy.Enforce, "fresh": policy.Shadow}
	for name, mode := range modes {
		w.add(policy.Policy{Name: name, Apps: []string{"a"}, Limit: limit("5/1m"), Key: "ip", Mode: mode})
	}

	w.add(policy.Policy{Name: "cheap", Apps: []string{"a"}, Limit: limit("5/1m"), Key: "ip", OnLimit: "degrade"})

	// The counts begin after these and before the change of one of them.
	w.pass(time.Minute)
	from := w.now()
	w.pass(time.Minute)
	fresh, err := w.Policy(t.Context(), w.admin, "fresh")
	w.must(err)
	fresh.Mode = policy.Enforce
	_, err = w.UpdatePolicy(t.Context(), w.admin, fresh)
	w.must(err)

	w.fleet.top = stats.Top{Instances: 1}
	for name, count := range map[string]int64{"seen": 95, "long": 5, "fresh": 7, "cheap": 9} {
		refused := summary(0, topkeys.Key{Key: "of " + name, Count: count})
		refused.From, refused.To = from, w.now()
		w.fleet.top.Rules = append(w.fleet.top.Rules, topkeys.Rule{Rule: name, Refused: refused})
	}

	got := w.as("admin").get("/keys?app=a").want(http.StatusOK)
	got.legible("keys that shadow counts")
	for key, want := range map[string]string{"of seen": "seen | 95 counted, and passed (in shadow) | ",
		"of long": "long | 5 refused | ", "of cheap": "cheap | 9 degraded or refused | ",
		"of fresh": "fresh | 7 refusedthe policy was changed since | "} {
		if row := got.cell(key); !strings.HasPrefix(row, want) {
			t.Errorf("%s: %q, want %q", key, row, want)
		}
	}
	if strings.Index(got.text, ">of seen<") < strings.Index(got.text, ">of long<") {
		t.Error("what passed stands before what was refused")
	}
}

// A page has times in UTC, marked for the script that shows them by the reader's clock.
func TestTimesAreMarkedForTheReader(t *testing.T) {
	w, b := bansWorld(t)
	w.ban("p", "eve")
	got := b.get("/keys?view=banned").want(http.StatusOK)
	marked := regexp.MustCompile(`banned until <time datetime="[^"]+Z" title="[^"]+ UTC" data-moment>`)
	if !marked.MatchString(got.text) {
		t.Errorf("%s", got.text)
	}
}

// A ban stays while its policy is in shadow, and refuses nothing.
func TestBansInShadowAreNotInForce(t *testing.T) {
	w, b := bansWorld(t)
	p := w.add(policy.Policy{Name: "kept", Apps: []string{"a"}, Limit: limit("5/1m"), Key: "ip", Mode: policy.Enforce})
	w.must(w.ImposeBan(t.Context(), w.admin, "kept", "192.0.2.7", time.Hour))
	const idle = "not in force: the policy refuses nothing of this key now"
	b.get("/keys?view=banned").want(http.StatusOK).has("192.0.2.7").lacks(idle)

	p.Mode = policy.Shadow
	_, err := w.UpdatePolicy(t.Context(), w.admin, p)
	w.must(err)
	b.get("/keys?view=banned").want(http.StatusOK).has("192.0.2.7").has(idle)
}

func TestKeysShowsAndLiftsBans(t *testing.T) {
	w, b := bansWorld(t)
	b.get("/keys?view=banned").want(http.StatusOK).has("No key of a is banned.")

	// Alice is banned under the policies of two applications, and one of the bans is lifted.
	w.ban("p", "alice", "bob")
	w.ban("q", "alice")
	w.fleet.top = stats.Top{Instances: 1, Rules: []topkeys.Rule{{Rule: "p",
		Refused: summary(0, topkeys.Key{Key: "bob", Count: 40})}}}

	got := b.get("/keys?view=banned&policy=p").want(http.StatusOK)
	got.legible("keys that are banned")
	if row := got.cell("bob"); !strings.HasPrefix(row,
		"p | banned until 2026-03-01 12:01:3040 refused | 2026-03-01 11:00:00 | ") {
		t.Errorf("the row is %q", row)
	}

	// The first answer is a question, after which all three are still banned.
	question := b.post("/keys/lift", got.form("/keys/lift")).want(http.StatusOK)
	if len(w.fleet.banned) != 3 {
		t.Error("the question has lifted the ban")
	}
	b.post("/keys/lift", question.form("/keys/lift")).goes("/keys?policy=p&view=banned&done=lifted")
	if left := w.fleet.banned; len(left) != 2 || left[0].Key != "bob" || left[1].Rule != "q" {
		t.Errorf("the bans are %v", left)
	}
	rows := w.audited("ban.lift")
	if len(rows) != 1 || rows[0].Actor != "admin" || rows[0].Object != "policy:p" ||
		rows[0].Outcome != service.Done || rows[0].After != `{"key":"alice"}` {
		t.Errorf("the audit log says %+v", rows)
	}

	got = b.get("/keys?view=banned&policy=plain").want(http.StatusOK)
	got.has("No key of a is banned under plain.")
	if got := b.get("/keys?view=banned&app=b").want(http.StatusOK); got.rows()["alice"] == "" {
		t.Errorf("of the other application: %s", got.text)
	}
}

// A view is what its address says, and no other is there.
func TestKeysHasItsViewInTheAddress(t *testing.T) {
	w, b := bansWorld(t)
	w.ban("q", "alice")
	for path, want := range map[string]string{
		"/keys": "Refused now", "/keys?view=refused": "Refused now", "/keys?view=made-up": "Refused now",
		"/keys?view=banned": "Banned", "/keys?view=one": "One key", "/keys?key=x": "One key",
		"/keys?view=banned&key=x": "One key",
	} {
		shown := ""
		b.get(path).want(http.StatusOK).each(func(n *html.Node) {
			if n.Data == "a" && attr(n, "aria-current") == "page" && strings.HasPrefix(attr(n, "href"), "/keys?") {
				shown = words(n)
			}
		})
		if shown != want {
			t.Errorf("%s shows %q, want %q", path, shown, want)
		}
	}

	// A policy brings its application along, so that a link needs no more than its name.
	if got := b.get("/keys?view=banned&policy=q").want(http.StatusOK); got.rows()["alice"] == "" {
		t.Errorf("under q: %s", got.text)
	}
	for _, path := range []string{"/who", "/who/live", "/bans", "/bans/live", "/tester", "/keys?app=none",
		"/keys/live?key=x"} {
		b.get(path).want(http.StatusNotFound)
	}
}

// The part that the script reloads is small, and is sent again only if it has changed.
func TestKeysRefreshes(t *testing.T) {
	w, b := bansWorld(t)
	for i := range 2 * maxRows {
		w.fleet.top.Instances = 1
		w.fleet.top.Rules = append(w.fleet.top.Rules, topkeys.Rule{Rule: "p",
			Refused: summary(0, topkeys.Key{Key: fmt.Sprintf("198.51.%d.%d", i, i*i%251), Count: int64(100 + i)})})
		w.ban("p", fmt.Sprintf("203.0.%d.%d", i, i*i%251))
	}
	for _, view := range []string{"refused", "banned"} {
		part := b.get("/keys/live?app=a&view=" + view).want(http.StatusOK)
		if n := len(part.rows()); strings.Contains(part.text, "<html") || n != maxRows+1 ||
			!strings.Contains(part.text, "and 50 more") {
			t.Errorf("%d rows: %s", n, part.text)
		}
		sentLittle(t, part)
		b.header = http.Header{"If-None-Match": {part.header.Get("ETag")}}
		b.get("/keys/live?app=a&view=" + view).want(http.StatusNotModified)
		b.header = nil
	}
	again := b.get("/keys?refresh=5").want(http.StatusOK)
	again.has(`http-equiv="refresh" content="5"`)

	// A look-up is in the audit log, so the page of one key does not repeat it.
	if b.look("p", "eve").byID("live") != nil {
		t.Error("the page of a key reloads itself")
	}
	b.get("/keys?key=eve&policy=p&refresh=5").want(http.StatusOK).lacks(`http-equiv="refresh"`)
}

// A viewer sees all views and no menu, and what is of other applications is not there.
func TestKeysOfAViewer(t *testing.T) {
	w, _ := bansWorld(t)
	w.person("viewer", map[string]service.Role{"a": service.Viewer})
	w.ban("p", "alice")
	w.ban("q", "bob")
	w.fleet.used["p alice"] = 4
	w.fleet.top = stats.Top{Instances: 1, Rules: []topkeys.Rule{{Rule: "p",
		Refused: summary(0, topkeys.Key{Key: "alice", Count: 40})}}}

	b := w.as("viewer")
	for _, got := range []*answer{b.get("/keys"), b.get("/keys?view=banned"), b.look("p", "alice")} {
		got.want(http.StatusOK)
		if !strings.Contains(got.text, "<code>alice</code>") || strings.Contains(got.text, "bob") ||
			got.form("/keys/reset") != nil || strings.Contains(got.text, "popover") {
			t.Errorf("a viewer of a sees %s", got.text)
		}
	}
	if row := b.look("p", "alice").cell("p"); !strings.HasPrefix(row, "alice | 4 of 5, 1 left") {
		t.Errorf("the row is %q", row)
	}
	for _, path := range []string{"/keys?app=b", "/keys/live?app=b"} {
		b.get(path).want(http.StatusNotFound)
	}
	b.get(keysPath("q", "bob")).want(http.StatusUnprocessableEntity)

	// Neither can the viewer act by a form that is made up.
	for _, action := range []string{"reset", "ban", "lift", "allow", "limit", "grant", "revoke", "debit"} {
		form := url.Values{"policy": {"p"}, "key": {"alice"}, "for": {"10m"}, "confirm": {"yes"}}
		b.post("/keys/"+action, form).want(http.StatusForbidden)
		form.Set("policy", "q")
		b.post("/keys/"+action, form).want(http.StatusUnprocessableEntity)
	}
	if len(w.fleet.banned) != 2 || w.fleet.used["p alice"] != 4 {
		t.Errorf("the bans are %v", w.fleet.banned)
	}

	// An administrator may, but not by a form of another site.
	admin := w.as("admin")
	admin.header = http.Header{"Sec-Fetch-Site": {"cross-site"}}
	admin.post("/keys/lift", url.Values{"policy": {"p"}, "key": {"alice"}, "confirm": {"yes"}}).
		want(http.StatusForbidden)
	if len(w.fleet.banned) != 2 {
		t.Errorf("another site has lifted one of %v", w.fleet.banned)
	}
}

// hostileKeys are keys as clients may have sent them. Spaces and line ends make keys that look
// alike.
func hostileKeys() []string {
	return append(injections(), "", " x", "x", `"x"`, `"`, "a\x00b", "a\r\nb", "a\nb", "\xff\xfe",
		"\u202eabc", "\u200b",
		"a\tb", "100%", "%00", "a+b&c=d#e", "../..", strings.Repeat("k", 1000), strings.Repeat("\x00", 1000))
}

// A key holds whatever a client sent. Each has a row of its own, and its link and its menu are
// about it to the byte.
func TestKeysOfHostileTexts(t *testing.T) {
	w, b := bansWorld(t)
	for _, key := range hostileKeys() {
		w.fleet.banned = nil
		w.ban("p", key)
		w.fleet.top = stats.Top{Instances: 1, Rules: []topkeys.Rule{{Rule: "p",
			Refused: summary(0, topkeys.Key{Key: topkeys.Shorten(key), Count: 1})}}}
		b.get("/keys").want(http.StatusOK).harmless(key)

		got := b.get("/keys?view=banned").want(http.StatusOK)
		got.harmless(key)
		link := ""
		got.each(func(n *html.Node) {
			if n.Data == "a" && strings.HasPrefix(attr(n, "href"), "/keys?key=") {
				link = attr(n, "href")
			}
		})
		found := b.get(link).want(http.StatusOK)
		found.harmless(key)
		if !strings.HasPrefix(found.rows()["p"], strings.TrimSpace(readable(key))+" | ") {
			t.Errorf("%q is not found by %q: %v", key, link, found.rows())
		}
		question := b.post("/keys/lift", got.form("/keys/lift")).want(http.StatusOK)
		question.harmless(key)
		b.post("/keys/lift", question.form("/keys/lift")).goes("/keys?view=banned&done=lifted")
		if len(w.fleet.banned) != 0 {
			t.Errorf("%q is still banned", key)
		}
	}

	// A key that was cut is not the one that callers have, so nothing can be done to it.
	long := topkeys.Shorten(strings.Repeat("<k>", 4000))
	w.fleet.top.Rules[0].Refused = summary(0, topkeys.Key{Key: long, Count: 1})
	b.get("/keys").has("a longer key").lacks("popover")
	b.post("/keys/ban", url.Values{"policy": {"p"}, "key": {long}, "for": {"10m"}, "confirm": {"yes"}}).
		want(http.StatusUnprocessableEntity)
	b.get("/keys?key=" + strings.Repeat("x", service.MaxKey+1)).want(http.StatusUnprocessableEntity)
}

func TestKeysWithoutRedis(t *testing.T) {
	w, b := bansWorld(t)
	w.ban("p", "alice")
	form := b.get("/keys?view=banned").form("/keys/lift")
	form.Set("confirm", "yes")

	// An address in the error is not for everyone's eyes.
	w.fleet.away = errors.New("dial 10.0.0.1: refused")
	for _, path := range []string{"/keys", "/keys?view=banned"} {
		b.get(path).want(http.StatusOK).has("Redis does not answer").lacks("10.0.0.1")
	}
	b.get(keysPath("p", "alice")).want(http.StatusServiceUnavailable)

	// The attempt is audited before it is made: what failed is in the log with its failure.
	b.post("/keys/lift", form).want(http.StatusServiceUnavailable)
	if rows := w.audited("ban.lift"); len(rows) != 2 || rows[0].Outcome != service.Refused ||
		rows[1].Outcome != service.Done {
		t.Errorf("the audit log says %+v", rows)
	}

	// A console without Redis has no keys, and says why.
	none := newWorld(t, func(o *Options) { o.Fleet = nil })
	b = none.as("admin")
	for _, path := range []string{"/keys", "/keys?view=banned", "/keys?key=x"} {
		b.get(path).want(http.StatusOK).has("started without Redis")
	}
	b.post("/keys/lift", url.Values{"policy": {"p"}, "key": {"x"}, "confirm": {"yes"}}).
		want(http.StatusUnprocessableEntity)
}

func TestKeyResetNeedsConfirmation(t *testing.T) {
	w := newWorld(t)
	w.policy("p", "5/1m")
	w.fleet.used["p 192.0.2.7"] = 4

	// The key is written as people paste it, and means the address that instances count.
	b := w.as("admin")
	got := b.look("p", " ::ffff:192.0.2.7 ")
	if row := got.cell("p"); !strings.HasPrefix(row, "192.0.2.7 | 4 of 5, 1 left | nowfresh in 1m0s | ") {
		t.Errorf("the row is %q", row)
	}

	question := b.post("/keys/reset", got.form("/keys/reset")).want(http.StatusOK)
	if w.fleet.used["p 192.0.2.7"] != 4 {
		t.Error("the question has reset the key")
	}
	b.post("/keys/reset", question.form("/keys/reset")).goesTo("/keys?key=")
	if w.fleet.used["p 192.0.2.7"] != 0 {
		t.Error("the key was not reset")
	}

	rows := w.audited("key.reset")
	if len(rows) != 1 || rows[0].Actor != "admin" || rows[0].Object != "policy:p" ||
		rows[0].Outcome != service.Done || rows[0].After != `{"key":"192.0.2.7"}` {
		t.Errorf("the audit log says %+v", rows)
	}
}

// A form leads back to the view that it was sent from, and to no other site.
func TestKeysReturnsToItsView(t *testing.T) {
	_, b := bansWorld(t)
	for here, want := range map[string]string{
		"app=a&view=banned":      "/keys?app=a&view=banned&done=reset",
		"app=//evil&done=x&of=y": "/keys?app=%2F%2Fevil&done=reset",
		"//evil":                 "/keys?%2F%2Fevil=&done=reset", "": "/keys?key=eve&policy=p&view=one&done=reset",
	} {
		form := url.Values{"policy": {"p"}, "key": {"eve"}, "confirm": {"yes"}, "here": {here}}
		b.post("/keys/reset", form).goes(want)
		delete(form, "confirm")
		got := b.post("/keys/reset", form).want(http.StatusOK)
		if !got.links(strings.TrimSuffix(want, "&done=reset")) {
			t.Errorf("%q: the question leads back elsewhere: %s", here, got.text)
		}
	}
}

func TestReadableKeys(t *testing.T) {
	for key, want := range map[string]string{
		"192.0.2.7": "192.0.2.7", "dave smith": "dave smith", "Zoë": "Zoë", "<b>": "<b>",
		"": `""`, " x": `" x"`, `"x"`: strconv.Quote(`"x"`), "\u202eabc": `"\u202eabc"`, "\xff": `"\xff"`,
		"a\x00": `"a\x00"`,
	} {
		if got := readable(key); got != want {
			t.Errorf("%q is shown as %s, want %s", key, got, want)
		}
		if got := keyOf(readable(key)); got != key {
			t.Errorf("%q is read back as %q", key, got)
		}
	}
}

func TestKeysOfInstancesAreFound(t *testing.T) {
	p := policy.Policy{Name: "p", Apps: []string{"a"}, Limit: limit("5/1h sliding-log"), Key: "ip"}
	s := newLimited(t, p)

	// The console has no part in the count: what it finds is what an instance has written.
	for range 3 {
		s.limiter.Admit(&sample{ctx: t.Context(), method: "GET", path: "/", remote: "192.0.2.7:1"}).Done(200)
	}

	// To look twice takes nothing.
	key := counted(t.Context(), p, "192.0.2.7")
	for range 2 {
		if d := s.peek("p", key); d.Remaining != 2 {
			t.Fatalf("it finds %+v", d)
		}
	}

	s.must(s.ResetKey(t.Context(), s.admin, "p", key))
	if d := s.peek("p", key); d.Remaining != 5 {
		t.Errorf("after the reset it finds %+v", d)
	}
}

// The console lists the bans of instances, and lifts them.
func TestBansOfInstancesAreFound(t *testing.T) {
	s := newLimited(t, policy.Policy{Name: "p", Apps: []string{"a"}, Limit: limit("1/1h fixed-window"), Key: "api-key",
		Ban: core.MustParseBan("2/1m for 2h max 24h")})

	// The first request is within the limit, and the two refusals after it make the ban.
	for range 3 {
		s.limiter.Admit(&sample{ctx: t.Context(), method: "GET", path: "/",
			header: http.Header{"X-Api-Key": {"s3cret"}}}).Done(200)
	}

	// A credential is counted by its digest, so the console never sees it.
	digest := keyfuncs.Digest("s3cret")
	list := s.listedBans()
	if len(list) != 1 || list[0].Rule != "p" || list[0].Key != digest {
		t.Errorf("the bans are %+v", list)
	}

	d := s.peek("p", digest)
	if !d.Banned || d.At+d.RetryAfter.Microseconds() != list[0].Until {
		t.Errorf("the key is %+v", d)
	}

	// The ban is gone from the list as well, and the used limit stays used.
	s.must(s.LiftBan(t.Context(), s.admin, "p", digest))
	if d := s.peek("p", digest); d.Banned || d.Remaining != 0 {
		t.Errorf("after the lift the key is %+v", d)
	}
	if list, err := s.fleet.Bans(t.Context(), []string{"p"}); err != nil || len(list) != 0 {
		t.Errorf("after the lift the bans are %v, %v", list, err)
	}
}

// A ban ends when it ends, even where the limit refuses the key for longer.
func TestBanOfAUsedUpKeyHasItsOwnEnd(t *testing.T) {
	own := policy.Policy{Name: "p", Apps: []string{"a"}, Limit: limit("1/24h fixed-window"), Key: "api-key",
		Mode: policy.Enforce, Ban: core.MustParseBan("20/1m for 2h max 24h")}
	beside := own
	beside.Name, beside.Ban = "q", core.Ban{}
	s := newLimited(t, own, beside)
	key := keyfuncs.Digest("s3cret")
	s.limiter.Admit(&sample{ctx: t.Context(), method: "GET", path: "/",
		header: http.Header{"X-Api-Key": {"s3cret"}}}).Done(200)

	for _, name := range []string{"p", "q"} {
		s.must(s.ImposeBan(t.Context(), s.admin.Saying("a scraper"), name, key, time.Hour))
	}
	until := map[string]time.Time{"p": time.UnixMicro(s.listedBans()[0].Until)}
	list, err := s.BansBeside(t.Context(), s.admin, []string{"q"})
	s.must(err)
	until["q"] = list[0].Until

	for name, want := range until {
		u, err := s.LookUp(t.Context(), s.admin, name, key)
		if err != nil || !u.Banned || !u.BannedUntil.Equal(want) || u.RetryAfter < 2*time.Hour {
			t.Errorf("under %s it is banned until %s, want %s: %+v %v", name, u.BannedUntil, want, u.Decision, err)
		}
	}

	// So the page of the key says who banned it, and why.
	for _, name := range []string{"p", "q"} {
		s.b.look(name, key).has("by admin").has("a scraper")
	}
}

// The page names the application that it shows, and no link of it chooses one that was not chosen.
func TestKeysNamesItsApplication(t *testing.T) {
	_, b := bansWorld(t)
	for path, want := range map[string]string{"/keys": "No key of a is banned now.",
		"/keys?view=banned": "No key of a is banned.", "/keys?view=one": "Try a request to a"} {
		got := b.get(path).want(http.StatusOK)
		if !strings.Contains(got.text, want) {
			t.Errorf("%s does not say %q", path, want)
		}
		if path != "/keys?view=one" && !strings.Contains(got.text, "<h1>Keys of a</h1>") {
			t.Errorf("the heading of %s does not name a", path)
		}
		got.each(func(n *html.Node) {
			link := attr(n, "href") + attr(n, "data-refresh")
			page := strings.HasPrefix(link, "/keys?view=") || strings.HasPrefix(link, "/keys/live?")
			if page && strings.Contains(link, "app=") || attr(n, "name") == "app" && attr(n, "value") != "" {
				t.Errorf("%s chooses an application: %s %q", path, n.Data, link)
			}
		})
	}
}

// A policy of another application brings its own, and the head says so. One that is not there is a
// mistake in each view.
func TestKeysMindsThePolicyOfTheAddress(t *testing.T) {
	w, b := bansWorld(t)
	w.ban("q", "alice")
	b.keep("a")
	for _, path := range []string{"/keys?view=banned&policy=q", "/keys?view=banned&policy=q&app=a"} {
		got := b.get(path).want(http.StatusOK)
		if got.rows()["alice"] == "" || !strings.Contains(got.text, "<h1>Keys of b</h1>") {
			t.Errorf("%s: %s", path, got.text)
		}
		if name := b.chosen(path); name != "b" {
			t.Errorf("the head of %s says %q", path, name)
		}
	}
	if name := b.chosen("/policies"); name != "a" {
		t.Errorf("a policy has chosen %q", name)
	}
	for _, view := range []string{"refused", "banned", "one"} {
		got := b.get("/keys?policy=none&view=" + view).want(http.StatusUnprocessableEntity)
		if got.mistake("policy") != errNoPolicy || strings.Contains(got.text, "under none") {
			t.Errorf("%s: %q", view, got.mistake("policy"))
		}
	}
}
