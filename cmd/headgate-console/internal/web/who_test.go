package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/net/html"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
	"github.com/headgate/headgate/store/redisstore"
)

func (f *fakeFleet) Impose(_ context.Context, p policy.Policy, key string, span time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.banned = append(f.banned, core.Banned{Rule: p.Name, Key: key, Until: midday.Add(span).UnixMicro()})
	return f.away
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

func TestWhoShowsKeysAndLeadsToThem(t *testing.T) {
	w := bansWorld(t)
	b := w.as("admin")

	if got := b.get("/who?app=a").want(http.StatusOK); !strings.Contains(got.text, "No instance of a publishes keys") {
		t.Errorf("without keys: %s", got.text)
	}

	// The error of bob's count is 10, so that the page must show a range. The 4 is the floor of a
	// list that is full.
	w.fleet.top = stats.Top{Instances: 2, Rules: []topkeys.Rule{
		{Rule: "plain", Admitted: summary(0, topkeys.Key{Key: "192.0.2.1", Count: 3})},
		{Rule: "p", Refused: summary(4, topkeys.Key{Key: "eve", Count: 60},
			topkeys.Key{Key: "bob", Count: 40, Error: 10})},
	}}

	got := b.get("/who?app=a").want(http.StatusOK)
	rows := got.rows()
	if row := strings.Join(strings.Fields(rows["eve"]), " "); row !=
		"60 | 60% | 2026-03-01 11:00:00 | Reset… eve Ban… eve Own limit… for eve Never limit… eve" {
		t.Errorf("eve: %q", row)
	}

	if row := rows["bob"]; !strings.HasPrefix(row, "at most 40, at least 30 | 30% | 2026-03-01 11:00:00 | ") {
		t.Errorf("bob: %q", row)
	}

	// A policy without a ban offers none: the row of plain has no such button.
	if row := strings.Join(strings.Fields(rows["192.0.2.1"]), " "); row !=
		"3 | 100% | 2026-03-01 11:00:00 | Reset… 192.0.2.1 Own limit… for 192.0.2.1 Never limit… 192.0.2.1" {
		t.Errorf("192.0.2.1: %q", row)
	}

	for _, want := range []string{"of 2 instances", "Refused most: 100 requests refused", "Any other key: at most 4.",
		"from <time"} {
		if !strings.Contains(got.text, want) {
			t.Errorf("the page lacks %q: %s", want, got.text)
		}
	}

	// The store lists plain first, but p refuses more.
	if at := strings.Index(got.text, `href="/policies/plain"`); at < strings.Index(got.text, `href="/policies/p"`) {
		t.Error("the policy that refuses most is not the first")
	}

	w.fleet.used["p eve"] = 5

	// The link to a key must not put it in a URL, so it is a form.
	key := b.post("/keys", got.form("/keys")).want(http.StatusOK)
	if !strings.Contains(key.text, "<code>eve</code> under") || !strings.Contains(key.text, "0 of 5") {
		t.Errorf("the key's page is %s", key.text)
	}

	one := b.get("/who?app=a&policy=plain").want(http.StatusOK)
	if one.rows()["eve"] != "" || one.rows()["192.0.2.1"] == "" {
		t.Errorf("under plain: %v", one.rows())
	}
}

// The page says what is banned, offers each action by one button, and comes back to itself.
func TestWhoSaysThatShadowRefusesNothing(t *testing.T) {
	w := bansWorld(t)
	limit := core.MustParseLimit("5/1m")
	for _, p := range []policy.Policy{
		{Name: "seen", Apps: []string{"a"}, Limit: limit, Key: "ip", Mode: policy.Shadow},
		{Name: "long", Apps: []string{"a"}, Limit: limit, Key: "ip"},
		{Name: "fresh", Apps: []string{"a"}, Limit: limit, Key: "ip", Mode: policy.Shadow},
	} {
		_, err := w.CreatePolicy(t.Context(), w.admin, p)
		w.must(err)
	}

	// The lists begin after these and before the change of one of them.
	w.pass(time.Minute)
	from := w.now()
	w.pass(time.Minute)
	fresh, err := w.Policy(t.Context(), w.admin, "fresh")
	w.must(err)
	fresh.Mode = policy.Enforce
	_, err = w.UpdatePolicy(t.Context(), w.admin, fresh)
	w.must(err)

	w.fleet.top = stats.Top{Instances: 1}
	for _, name := range []string{"seen", "long", "fresh"} {
		refused := summary(0, topkeys.Key{Key: "eve", Count: 95})
		refused.From, refused.To = from, w.now()
		w.fleet.top.Rules = append(w.fleet.top.Rules, topkeys.Rule{Rule: name, Refused: refused})
	}

	got := w.as("admin").get("/who?app=a").want(http.StatusOK)
	got.legible("who is refused")
	const passed, changed = "these requests passed", "some may be from a time in shadow"
	for name, want := range map[string][3]bool{
		"seen": {true, true, false}, "long": {false, false, false}, "fresh": {false, false, true},
	} {
		_, part, _ := strings.Cut(got.text, `id="rule-`+name+`"`)
		part, _, _ = strings.Cut(part, "</section>")
		said := [3]bool{strings.Contains(part, "Over the limit most: 95 requests would have been refused"),
			strings.Contains(part, passed), strings.Contains(part, changed)}
		if said != want || strings.Contains(part, "95 requests refused") == want[0] {
			t.Errorf("%s: it says %v, want %v: %s", name, said, want, part)
		}
	}
}

func TestWhoActsOnKeys(t *testing.T) {
	w := bansWorld(t)

	w.fleet.top = stats.Top{Instances: 1, Rules: []topkeys.Rule{{Rule: "p",
		Refused: summary(0, topkeys.Key{Key: "eve", Count: 60}, topkeys.Key{Key: "bob", Count: 40})}}}
	w.ban("p", "eve", "mallory")
	w.ban("q", "eve")
	b := w.as("admin")

	// The ban of eve under q is not counted here, as the page shows the policy p.
	got := b.get("/who?app=a&policy=p").want(http.StatusOK)
	if got.byID("banned") == nil || !strings.HasPrefix(words(got.byID("banned")), "2 keys are banned now") {
		t.Errorf("the page says of bans: %s", got.text)
	}

	rows := got.rows()
	if !strings.Contains(rows["eve banned"], "Lift… the ban of eve") ||
		strings.Contains(rows["eve banned"], "Ban…") || !strings.Contains(rows["bob"], "Ban… bob") {
		t.Errorf("the rows are %q", rows)
	}

	sent := got.form("/keys")
	for _, action := range []string{"/keys/reset", "/keys/lift", "/keys/ban", "/keys/limit", "/keys/allow"} {
		question := b.post(action, sent).want(http.StatusOK)
		form := question.form(action)
		// The key is in base64 as it may hold any bytes, and the way back is kept.
		if form.Get("sent") != sentForm("eve") || !strings.Contains(question.text, `href="/who?app=a&amp;policy=p"`) {
			t.Errorf("%s asks %v: %s", action, form, question.text)
		}
	}

	// The first answer is the question, the second the confirmation.
	b.post("/keys/lift", b.post("/keys/lift", sent).form("/keys/lift")).goes("/who?app=a&policy=p&done=lifted")
	if list := w.fleet.banned; len(list) != 2 || list[0].Key != "mallory" {
		t.Errorf("the bans are %v", list)
	}

	// Where the browser goes is never taken from the form as it is: a forged one must not lead
	// elsewhere.
	for from, want := range map[string]string{"who": "/who?app=%2F%2Fevil&done=reset",
		"//evil": "/keys?policy=p&done=reset", "": "/keys?policy=p&done=reset"} {
		b.post("/keys/reset", url.Values{"policy": {"p"}, "sent": {sentForm("eve")}, "confirm": {"yes"},
			"from": {from}, "here": {"app=//evil&done=x"}}).goes(want)
	}
}

// The page comes to itself by its part that moves or without JavaScript, and shows viewers no
// button.
func TestWhoRefreshes(t *testing.T) {
	w := bansWorld(t)

	w.fleet.top = stats.Top{Instances: 1,
		Rules: []topkeys.Rule{{Rule: "p", Refused: summary(0, topkeys.Key{Key: "bob", Count: 40})}}}
	b := w.as("admin")

	// The part is what JavaScript replaces, so it must not be a whole page.
	part := b.get("/who/live?app=a&policy=p").want(http.StatusOK)
	if strings.Contains(part.text, "<html") || !strings.Contains(part.text, "bob") {
		t.Errorf("the part is %s", part.text)
	}

	if again := b.get("/who?app=a&refresh=5").
		want(http.StatusOK); !strings.Contains(again.text, `http-equiv="refresh" content="5"`) {
		t.Error("without JavaScript the page does not reload itself")
	}

	w.person("viewer", map[string]service.Role{"a": service.Viewer})
	if got := w.as("viewer").get("/who?app=a").want(http.StatusOK); strings.Contains(got.text, "formaction") {
		t.Error("a viewer sees buttons")
	}
}

func TestWhoIsBounded(t *testing.T) {
	w := bansWorld(t)

	// More keys and more policies than a page shows.
	var of []topkeys.Key
	for i := range 100 {
		of = append(of, topkeys.Key{Key: fmt.Sprint("k", i), Count: int64(100 - i)})
	}
	for i := range maxWhoRules + 5 {
		w.fleet.top.Rules = append(w.fleet.top.Rules,
			topkeys.Rule{Rule: fmt.Sprint("r", i), Refused: summary(0, slices.Clone(of)...)})
	}

	// The lists of three instances could not be read, which a reader of the counts has to know.
	w.fleet.top.Instances, w.fleet.top.Unread = 1, 3
	b := w.as("admin")

	got := b.get("/who?app=a").want(http.StatusOK)
	if n := strings.Count(got.text, `name="sent"`); n != maxWhoRules*maxWhoKeys || !strings.Contains(
		got.text, "and 5 more policies") || !strings.Contains(got.text, "The lists of 3 more instances") {
		t.Errorf("%d keys are shown", n)
	}

	// The page of one policy shows all keys that its list has.
	if n := strings.Count(b.get("/who?app=a&policy=r7").want(http.StatusOK).text, `name="sent"`); n != 100 {
		t.Errorf("%d keys of one policy are shown", n)
	}
}

// actsOn looks a key up by a form of the page Who, asks every question about it, and bans it.
func (w *world) actsOn(b *browser, key string, form url.Values) {
	w.t.Helper()

	found := b.post("/keys", form).want(http.StatusOK)
	found.harmless(key)
	if !strings.Contains(words(found.byID("found")), strings.TrimSpace(readable(key))) {
		w.t.Fatalf("%q is shown as %s", key, words(found.byID("found")))
	}

	if form["policy"][0] != "p" {
		return
	}

	for _, action := range []string{"/keys/reset", "/keys/ban", "/keys/allow", "/keys/limit"} {
		if action == "/keys/limit" && (key == "" || !utf8.ValidString(key)) {
			continue // no policy can hold the key, so there is no button
		}
		b.post(action, found.form(action)).want(http.StatusOK).harmless(key)
	}

	// Back from base64 and through two forms, the key is the same to the byte.
	sent := found.form("/keys/ban")
	sent["confirm"], sent["for"] = []string{"yes"}, []string{"10m"}
	b.post("/keys/ban", sent).goes("/bans?policy=p&done=banned")
	if last := w.fleet.banned[len(w.fleet.banned)-1]; last.Key != key {
		w.t.Fatalf("%q was banned instead of %q", last.Key, key)
	}
}

// A key holds whatever a client sent. It is shown as text, and the form sends just that key.
func TestWhoOfHostileKeys(t *testing.T) {
	w := bansWorld(t)
	b := w.as("admin")

	long := topkeys.Shorten(strings.Repeat("<k>", 4000))

	// Long keys are cut before they are published, so an injection has to be short to arrive whole.
	keys := []string{"", " x", `"x"`, "a\x00b", "a\r\nb", "\xff\xfe", "\u202eabc", "\u200b",
		"<script>alert(1)</script>", strings.Repeat("\x00", 80)}
	for _, text := range injections() {
		if len(text) <= 80 {
			keys = append(keys, text)
		}
	}

	var of []topkeys.Key
	for _, key := range append(keys, long) {
		of = append(of, topkeys.Key{Key: key, Count: 1})
	}

	// Three policies share the keys, as the page of one has room for a hundred.
	w.fleet.top = stats.Top{Instances: 1, Rules: []topkeys.Rule{{Rule: "p", Refused: summary(0, of[:100]...)},
		{Rule: "q", Refused: summary(0, of[100:200]...)}, {Rule: "plain", Refused: summary(0, of[200:]...)}}}

	var forms []url.Values
	for _, path := range []string{"/who?app=a", "/who?app=a&policy=p", "/who?app=a&policy=q",
		"/who?app=a&policy=plain"} {
		got := b.get(path).want(http.StatusOK)
		got.harmless(path)
		if path == "/who?app=a" {
			continue
		}

		got.each(func(n *html.Node) {
			if n.Data == "form" && attr(n, "action") == "/keys" {
				forms = append(forms, fieldsOf(n))
			}
		})
	}

	if len(forms) != len(keys) {
		t.Fatalf("%d forms for %d keys", len(forms), len(keys))
	}

	// Each form is sent: what the page shows as text must not change what it sends.
	for i, form := range forms {
		w.actsOn(b, keys[i], form)
	}

	if !strings.Contains(b.get("/who?app=a&policy=plain").text, "a longer key") {
		t.Error("a key that was cut has no remark")
	}

	// The key was cut, so a ban would be of a key that no caller has.
	b.post("/keys/ban", url.Values{"policy": {"p"}, "sent": {sentForm(long)}, "for": {"10m"}, "confirm": {"yes"}}).
		want(http.StatusUnprocessableEntity)
	b.post("/keys/ban", url.Values{"policy": {"p"}, "sent": {"="}, "for": {"10m"}, "confirm": {"yes"}}).
		want(http.StatusBadRequest)
}

func TestWhoWithoutRedis(t *testing.T) {
	w := bansWorld(t)
	w.fleet.away = errors.New("dial 10.0.0.1: refused")
	if got := w.as("admin").get("/who?app=a").want(http.StatusOK); !strings.Contains(
		got.text, "Redis does not answer") || strings.Contains(got.text, "10.0.0.1") {
		t.Errorf("the page is %s", got.text)
	}
}

func TestKeyIsBannedAfterAQuestion(t *testing.T) {
	w := bansWorld(t)
	b := w.as("admin")

	found := b.post("/keys", url.Values{"policy": {"p"}, "key": {"eve"}}).want(http.StatusOK)

	question := b.post("/keys/ban", found.form("/keys/ban")).want(http.StatusOK)
	if len(w.fleet.banned) != 0 {
		t.Fatal("the question has banned the key")
	}

	// Ten minutes are the first ban of the policy.
	form := question.form("/keys/ban")
	if form.Get("for") != "10m" {
		t.Errorf("the question proposes %q", form.Get("for"))
	}

	for text, want := range map[string]string{"soon": "it is not a time such as 10m or 24h",
		"25h": "it is not a time from 1s to 24h0m0s, which the policy bans for at most",
		"-1h": "it is not a time from 1s to 24h0m0s, which the policy bans for at most"} {
		form.Set("for", text)
		if got := b.post("/keys/ban", form).want(http.StatusUnprocessableEntity).mistake("for"); got != want {
			t.Errorf("for %s: %q", text, got)
		}
	}

	// A person may choose a longer span than the policy's first, up to its longest.
	form.Set("for", "2h")
	b.post("/keys/ban", form).goes("/bans?policy=p&done=banned")

	if len(w.fleet.banned) != 1 || w.fleet.banned[0] != (core.Banned{Rule: "p", Key: "eve",
		Until: midday.Add(2 * time.Hour).UnixMicro()}) {
		t.Errorf("%+v", w.fleet.banned)
	}

	rows := w.audited("ban.impose")
	if len(rows) != 1 || rows[0].Actor != "admin" || rows[0].After != `{"key":"eve","for":"2h0m0s"}` {
		t.Errorf("the audit log says %+v", rows)
	}

	// The policy plain has no ban, so nothing would enforce one.
	if got := b.post("/keys", url.Values{"policy": {"plain"}, "key": {"192.0.2.1"}}).
		want(http.StatusOK); got.form("/keys/ban") != nil {
		t.Error("a policy that bans no keys has a button for it")
	}
}

func TestKeyIsAllowedAfterAQuestion(t *testing.T) {
	w := bansWorld(t)
	b := w.as("admin")

	found := b.post("/keys", url.Values{"policy": {"p"}, "key": {"carol"}}).want(http.StatusOK)
	question := b.post("/keys/allow", found.form("/keys/allow")).want(http.StatusOK)

	p, err := w.Policy(t.Context(), w.admin, "p")
	if w.must(err); p.Version != 1 {
		t.Fatal("the question has changed the policy")
	}

	// The policy is changed between the question and the confirmation, so it is asked again with
	// the new version.
	p.Priority = 1
	_, err = w.UpdatePolicy(t.Context(), w.admin, p)
	w.must(err)

	form := question.form("/keys/allow")
	form.Set("comment", "a partner")
	again := b.post("/keys/allow", form).want(http.StatusUnprocessableEntity)
	if !strings.Contains(again.text, "the policy was changed since") {
		t.Errorf("%s", again.text)
	}

	b.post("/keys/allow", again.form("/keys/allow")).goes("/policies/p?done=allowed")

	// The comment came along through both questions: version 3 is that of the list, after the edit.
	p, err = w.Policy(t.Context(), w.admin, "p")
	if w.must(err); !slices.Equal(p.Access.Allow.Keys, []string{"carol"}) || p.Version != 3 {
		t.Errorf("%+v", p)
	}

	if got := b.post("/keys", url.Values{"policy": {"p"}, "key": {"carol"}}).
		want(http.StatusOK); got.form("/keys/allow") != nil {
		t.Error("a key that is not limited has a button for it")
	}
}

// refusesLimits checks that the question about a limit of a key names what is wrong with it.
func (b *browser) refusesLimits(form url.Values) {
	b.t.Helper()
	for text, want := range map[string]string{
		"":                  "it is empty, and the key has no limit of its own; write a limit such as 100/1m",
		"soon":              "it is not a limit",
		"9/1m fixed-window": "its algorithm is fixed-window",
	} {
		form.Set("limit", text)
		got := b.post("/keys/limit", form).want(http.StatusUnprocessableEntity)
		if m := got.mistake("limit"); text != "soon" && !strings.HasPrefix(m, want) || m == "" {
			b.t.Errorf("%q: %q", text, m)
		}
	}
}

func TestKeyGetsALimitOfItsOwnAfterAQuestion(t *testing.T) {
	w := bansWorld(t)
	b := w.as("admin")
	// Markup, a zero byte, a line that looks like an entry of the list, and a sign that turns text
	// round.
	const hostile = "<b>a\x00\n: \u202eb"

	look := func() *answer {
		return b.post("/keys", url.Values{"policy": {"p"}, "sent": {sentForm(hostile)}}).want(http.StatusOK)
	}

	// The first answer asks for the limit, and has no confirmation as there is nothing to confirm
	// yet.
	asked := b.post("/keys/limit", look().form("/keys/limit")).want(http.StatusOK)
	form := asked.form("/keys/limit")
	if form.Has("confirm") || form.Get("limit") != "" ||
		!strings.Contains(asked.text, "now 5/1m: 5 requests a minute.") {
		t.Errorf("%v: %s", form, asked.text)
	}

	b.refusesLimits(form)

	form.Set("limit", "9/1m")
	question := b.post("/keys/limit", form).want(http.StatusOK)
	question.harmless("/keys/limit")
	if row := question.rows()["Limit of this key"]; row != "5/1m: 5 requests a minute | 9/1m: 9 requests a minute" {
		t.Errorf("the question says %q", row)
	}

	if w.version("p") != 1 {
		t.Fatal("the question has changed the policy")
	}

	// A change in between is found out by the version, and the question is asked anew.
	p, err := w.Policy(t.Context(), w.admin, "p")
	w.must(err)
	p.Priority = 1
	_, err = w.UpdatePolicy(t.Context(), w.admin, p)
	w.must(err)

	again := b.post("/keys/limit", question.form("/keys/limit")).want(http.StatusUnprocessableEntity)
	if !strings.Contains(again.text, "the policy was changed since") {
		t.Errorf("%s", again.text)
	}

	form = again.form("/keys/limit")
	form.Set("comment", "a partner")
	b.post("/keys/limit", form).goes("/policies/p?done=ownlimit")

	// The key has the limit as it is in bytes, whatever the form did to its line ends.
	if p, err = w.Policy(t.Context(), w.admin, "p"); err != nil || p.LimitOf(hostile, time.Now()) != limit("9/1m") ||
		p.Version != 3 {
		t.Errorf("%+v %v", p, err)
	}

	got := look()
	if !strings.Contains(got.text, "has a limit of its own: 9 requests a minute") ||
		!strings.Contains(got.text, "of 9") {
		t.Errorf("the page of the key is %s", got.text)
	}
	b.get("/policies/p?done=ownlimit").want(http.StatusOK).harmless("the policy")
}

// A key with an override beside the policy gets another one there, and no version of the policy.
func TestKeyGetsAnotherOverrideAfterAQuestion(t *testing.T) {
	w := bansWorld(t)
	b := w.as("admin")
	_, err := w.SetOverride(t.Context(), w.admin, "p", service.OverrideChange{Key: "bob", Limit: "7/1m"})
	w.must(err)
	look := func() *answer {
		return b.post("/keys", url.Values{"policy": {"p"}, "sent": {sentForm("bob")}}).want(http.StatusOK)
	}
	if page := look(); !strings.Contains(page.text, "has a limit of its own: 7 requests a minute") ||
		!strings.Contains(page.text, "of 7") {
		t.Errorf("the page of the key is %s", page.text)
	}

	form := b.post("/keys/limit", look().form("/keys/limit")).want(http.StatusOK).form("/keys/limit")
	if form.Get("limit") != "7/1m" {
		t.Errorf("the form proposes %q", form.Get("limit"))
	}
	form.Set("limit", "9/1m")
	question := b.post("/keys/limit", form).want(http.StatusOK)
	if row := question.rows()["Limit of this key"]; row != "7/1m: 7 requests a minute | 9/1m: 9 requests a minute" ||
		!strings.Contains(question.text, "This changes its override beside the policy, which has no new version.") {
		t.Errorf("the question says %q: %s", row, question.text)
	}
	b.post("/keys/limit", question.form("/keys/limit")).goes("/policies/p?done=override")
	k, err := w.KeyPolicy(t.Context(), w.admin, "p", "bob")
	if w.must(err); k.Beside.String() != "9/1m" || k.Policy.Version != 1 {
		t.Errorf("%+v", k)
	}

	form = b.post("/keys/limit", look().form("/keys/limit")).want(http.StatusOK).form("/keys/limit")
	form.Set("limit", "")
	question = b.post("/keys/limit", form).want(http.StatusOK)
	b.post("/keys/limit", question.form("/keys/limit")).goes("/policies/p?done=nooverride")
	if k, err = w.KeyPolicy(t.Context(), w.admin, "p", "bob"); err != nil || k.Beside != nil {
		t.Errorf("%+v, %v", k, err)
	}
}

// The limit that a key has of its own is offered for a change, and taken away by an empty one.
func TestKeyLosesTheLimitOfItsOwn(t *testing.T) {
	w := bansWorld(t)
	b := w.as("admin")

	look := func() *answer {
		return b.post("/keys", url.Values{"policy": {"p"}, "sent": {sentForm("bob")}}).want(http.StatusOK)
	}

	nine := limit("9/1m")
	_, err := w.LimitKey(t.Context(), w.admin, "p", "bob", &policy.Override{Limit: nine}, 1)
	w.must(err)

	// An undo takes the limit away, and an undo of that gives it back: these are the versions 3 and
	// 4.
	b.post("/policies/p/undo", b.get("/policies/p?done=ownlimit").form("/policies/p/undo")).
		goes("/policies/p?done=undone")
	b.post("/policies/p/undo", b.get("/policies/p?done=undone").form("/policies/p/undo")).
		goes("/policies/p?done=undone")

	// The form proposes what holds, so that a small change is small.
	form := b.post("/keys/limit", look().form("/keys/limit")).want(http.StatusOK).form("/keys/limit")
	if form.Get("limit") != "9/1m" {
		t.Errorf("it proposes %q", form.Get("limit"))
	}

	// An empty limit means that of all keys.
	form.Set("limit", "")
	question := b.post("/keys/limit", form).want(http.StatusOK)
	if row := question.rows()["Limit of this key"]; row != "9/1m: 9 requests a minute | 5/1m: 5 requests a minute" {
		t.Errorf("the question says %q", row)
	}

	b.post("/keys/limit", question.form("/keys/limit")).goes("/policies/p?done=nolimit")
	if p, err := w.Policy(t.Context(), w.admin, "p"); err != nil || p.Overrides != nil || p.Version != 5 {
		t.Errorf("%+v %v", p, err)
	}
}

// An instance enforces the limit that a key has of its own, and the console reads, resets, bans
// and lifts the key under it.
func TestRedisFleetKnowsKeysWithLimitsOfTheirOwn(t *testing.T) {
	for _, algorithm := range []string{"", " fixed-window", " sliding-log", " sliding-window", " token-bucket"} {
		t.Run(algorithm, func(t *testing.T) {
			fleetKnowsItsLimit(t, algorithm)
		})
	}
}

func fleetKnowsItsLimit(t *testing.T, algorithm string) {
	t.Helper()
	fleet, client := openFleet(t)
	const key = "192.0.2.7"

	// The limits differ for the key and for the others, so a wrong one shows in the count.
	own := limit("7/1h" + algorithm)
	p, err := service.WithKeyLimit(policy.Policy{Name: "p", Apps: []string{"a"}, Limit: limit("2/1h" + algorithm),
		Key: "ip",
		Ban: core.MustParseBan("20/1m for 10m max 24h")}, key, &policy.Override{Limit: own})
	if err != nil {
		t.Fatal(err)
	}

	compiled, err := policy.Compile("a", []policy.Policy{p}, policy.Bindings{})
	if err != nil {
		t.Fatal(err)
	}

	// The instance and the console share nothing but Redis, as in production.
	l := limiter.MustNew(limiter.Config{Store: redisstore.MustNew(client,
		redisstore.Options{Timeout: 10 * time.Second}), Rules: compiled.Rules()})
	defer l.Close()
	passes := func(remote string, n int) int { return passing(t, l, remote, n) }

	if own, other := passes(key, 5), passes("192.0.2.8", 5); own != 5 || other != 2 {
		t.Fatalf("%d requests of the key passed, and %d of another", own, other)
	}

	// Five of seven are used, and the console reads the key's own limit: with that of the others it
	// would be over.
	if d, err := fleet.Peek(t.Context(), p, key); err != nil || !d.Allowed || d.Remaining != 2 {
		t.Errorf("the console finds %+v, %v", d, err)
	}

	if own := passes(key, 5); own != 2 {
		t.Errorf("%d further requests passed", own)
	}

	// The reset clears the count that belongs to the limit of the key's own.
	if err := fleet.Reset(t.Context(), p, key); err != nil {
		t.Fatal(err)
	}
	if own := passes(key, 9); own != 7 {
		t.Errorf("after the reset %d requests passed", own)
	}

	fleetBansAndLifts(t, fleet, p, key)
}

// fleetBansAndLifts bans a key that has used up its limit, and lifts the ban.
func fleetBansAndLifts(t *testing.T, fleet Fleet, p policy.Policy, key string) {
	t.Helper()

	if err := fleet.Impose(t.Context(), p, key, time.Hour); err != nil {
		t.Fatal(err)
	}

	// A ban does not depend on what is left, and its end does not give anything back.
	if d, err := fleet.Peek(t.Context(), p, key); err != nil || !d.Banned {
		t.Errorf("after the ban the console finds %+v, %v", d, err)
	}

	if err := fleet.Lift(t.Context(), p, key); err != nil {
		t.Fatal(err)
	}
	if d, err := fleet.Peek(t.Context(), p, key); err != nil || d.Banned || d.Remaining != 0 {
		t.Errorf("after the lift the console finds %+v, %v", d, err)
	}
}

// passing returns how many of n requests of an address the limiter lets pass.
func passing(t *testing.T, l *limiter.Limiter, remote string, n int) (passed int) {
	t.Helper()
	for range n {
		r := l.Admit(&sample{ctx: t.Context(), method: "GET", path: "/", remote: remote + ":1"})
		if r.Result().Allowed() {
			passed++
		}
		r.Done(200)
	}
	return passed
}

func TestViewersSeeNoButtons(t *testing.T) {
	w := bansWorld(t)
	w.person("viewer", map[string]service.Role{"a": service.Viewer})
	b := w.as("viewer")
	got := b.post("/keys", url.Values{"policy": {"p"}, "key": {"eve"}}).want(http.StatusOK)
	for _, action := range []string{"/keys/reset", "/keys/ban", "/keys/lift", "/keys/allow", "/keys/limit"} {
		if got.form(action) != nil {
			t.Errorf("a viewer sees the button of %s", action)
		}
		b.post(action, url.Values{"policy": {"p"}, "sent": {"eA"}, "for": {"10m"}}).want(http.StatusForbidden)
	}
}

// A key is looked up under every policy that counts its kind.
func TestKeyIsFoundUnderEachPolicy(t *testing.T) {
	w := bansWorld(t)
	w.policy("also", "9/1m")

	// This policy counts networks, so the address is found under its network.
	_, err := w.CreatePolicy(t.Context(), w.admin,
		policy.Policy{Name: "nets", Apps: []string{"a"}, Limit: limit("7/1m"), Key: "ip/56"})
	w.must(err)
	w.fleet.used["also 2001:db8::"] = 3

	b := w.as("admin")

	got := b.post("/keys", url.Values{"policy": {"plain"}, "key": {"192.0.2.1"}}).want(http.StatusOK)
	if rows := got.rows(); rows["also"] != "192.0.2.1 | 9 of 9 | is within the limit" || rows["nets"] == "" ||
		rows["p"] != "" || rows["plain"] != "" {
		t.Errorf("%v", rows)
	}

	w.fleet.used["p eve"] = 5

	// For a name that is no address, policies by user are meant; the fullest one is first, as it
	// explains a refusal.
	got = b.post("/keys", url.Values{"policy": {""}, "key": {"eve"}}).want(http.StatusOK)
	if rows := got.rows(); rows["p"] != "eve | 0 of 5 | is over the limit" ||
		rows["q"] != "eve | 5 of 5 | is within the limit" || rows["plain"] != "" {
		t.Errorf("%v", rows)
	}

	if at := strings.Index(got.text, ">q</button>"); at < strings.Index(got.text, ">p</button>") {
		t.Error("the policy of which most is used is not the first")
	}

	// The newest entry is first. A question that names a policy has an entry of its own for that
	// one.
	if list := w.audited("key.look-up"); len(list) != 3 || list[0].Object != "policies" ||
		list[0].After != `{"key":"eve","policies":["p","q"]}` ||
		list[1].After != `{"key":"192.0.2.1","policies":["also","nets"]}` || list[2].Object != "policy:plain" {
		t.Errorf("the audit log has %+v", list)
	}

	b.post("/keys", url.Values{"key": {strings.Repeat("x", service.MaxKey+1)}}).want(http.StatusUnprocessableEntity)
	b.post("/keys", url.Values{"key": {" "}}).want(http.StatusUnprocessableEntity)
}

func TestKeyIsFoundUnderPoliciesOfOwnApplicationsOnly(t *testing.T) {
	w := bansWorld(t)
	w.person("owner", map[string]service.Role{"b": service.Owner})
	got := w.as("owner").post("/keys", url.Values{"key": {"eve"}}).want(http.StatusOK)
	if rows := got.rows(); rows["p"] != "" || rows["q"] == "" {
		t.Errorf("an owner of b sees %v", rows)
	}
}

// listedBans returns the bans of p, which the store lists in the background.
func listedBans(t *testing.T, fleet Fleet) (list []core.Banned, err error) {
	for err == nil && len(list) == 0 {
		list, err = fleet.Bans(t.Context(), []string{"p"})
	}
	return list, err
}

// The console bans a key for just so long, and instances obey.
func TestRedisFleetImposesBans(t *testing.T) {
	fleet, _ := openFleet(t)
	p := policy.Policy{Name: "p", Apps: []string{"a"}, Limit: limit("5/1h fixed-window"), Key: "ip",
		Ban: core.MustParseBan("20/1m for 10m max 24h")}

	// The second ban is shorter than the first and replaces it: the administrator's word counts,
	// not the longer one.
	for _, span := range []time.Duration{10 * time.Hour, 3 * time.Hour, 3 * time.Hour} {
		if err := fleet.Impose(t.Context(), p, "k\x00", span); err != nil {
			t.Fatal(err)
		}

		d, err := fleet.Peek(t.Context(), p, "k\x00")
		if err != nil || !d.Banned || d.RetryAfter > span || d.RetryAfter < span-time.Minute {
			t.Errorf("banned for %s, it is %+v, %v", span, d, err)
		}
	}

	list, err := listedBans(t, fleet)
	if err != nil || len(list) != 1 || list[0].Key != "k\x00" {
		t.Errorf("%v, %v", list, err)
	}

	// A lift leaves the count alone, so all five units are there.
	if err := fleet.Lift(t.Context(), p, "k\x00"); err != nil {
		t.Fatal(err)
	}
	if d, err := fleet.Peek(t.Context(), p, "k\x00"); err != nil || d.Banned || d.Remaining != 5 {
		t.Errorf("after the lift it is %+v, %v", d, err)
	}

	// Without a ban in the policy no instance would look for one.
	p.Ban = core.Ban{}
	if err := fleet.Impose(t.Context(), p, "k", time.Hour); err == nil {
		t.Error("a policy without a ban has banned a key")
	}
}
