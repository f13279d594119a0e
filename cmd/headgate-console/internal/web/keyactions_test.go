package web

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
)

func TestKeyIsBannedAfterAQuestion(t *testing.T) {
	w, b := bansWorld(t)

	found := b.look("p", "eve")

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
	b.post("/keys/ban", form).goes("/keys?key=eve&policy=p&view=one&done=banned")

	if len(w.fleet.banned) != 1 || w.fleet.banned[0] != (core.Banned{Rule: "p", Key: "eve",
		Until: midday.Add(2 * time.Hour).UnixMicro()}) {
		t.Errorf("%+v", w.fleet.banned)
	}

	rows := w.audited("ban.impose")
	if len(rows) != 1 || rows[0].Actor != "admin" || rows[0].After != `{"key":"eve","for":"2h0m0s"}` {
		t.Errorf("the audit log says %+v", rows)
	}

}

// The policy plain bans no keys by itself, so the ban is beside it, with a comment.
func TestKeyIsBannedBesideItsPolicy(t *testing.T) {
	w, b := bansWorld(t)

	question := b.post("/keys/ban", b.look("plain", "192.0.2.1").form("/keys/ban")).want(http.StatusOK)
	form := question.form("/keys/ban")
	if form.Get("for") != "10m" {
		t.Errorf("the question proposes %q", form.Get("for"))
	}
	form.Set("comment", "a scraper")
	b.post("/keys/ban", form).goes("/keys?key=192.0.2.1&policy=plain&view=one&done=banned")
	rows := w.audited("ban.impose")
	if len(w.fleet.banned) != 0 || len(rows) != 1 || rows[0].Note != "a scraper" {
		t.Errorf("%+v, and the audit log says %+v", w.fleet.banned, rows)
	}

	// It is in the list, with who imposed it, until it is lifted.
	got := b.get("/keys?view=banned&policy=plain").want(http.StatusOK).cell("192.0.2.1")
	want := regexp.MustCompile(`^plain \| banned until [-\d]+ [:\d]+ by admin, [-\d]+ [:\d]+: a scraper \| `)
	if !want.MatchString(got) {
		t.Errorf("%q", got)
	}
	if got := b.get("/policies/plain").beside(); !strings.Contains(got, ": a scraper") {
		t.Errorf("on the page of the policy: %q", got)
	}
	listed := b.get("/keys?view=banned&policy=plain").form("/keys/lift")
	question = b.post("/keys/lift", listed).want(http.StatusOK)
	b.post("/keys/lift", question.form("/keys/lift"))
	b.get("/keys?view=banned&policy=plain").has("No key of a is banned under plain.")
}

func TestKeyIsAllowedAfterAQuestion(t *testing.T) {
	w, b := bansWorld(t)

	found := b.look("p", "carol")
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
	again.has("the policy was changed since")

	b.post("/keys/allow", again.form("/keys/allow")).goes("/keys?key=carol&policy=p&view=one&done=allowed&of=p")

	// The comment came along through both questions: version 3 is that of the list, after the edit.
	p, err = w.Policy(t.Context(), w.admin, "p")
	if w.must(err); !slices.Equal(p.Access.Allow.Keys, []string{"carol"}) || p.Version != 3 {
		t.Errorf("%+v", p)
	}

	if got := b.look("p", "carol"); got.form("/keys/allow") != nil {
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
	w, b := bansWorld(t)
	// Markup, a zero byte, a line that looks like an entry of the list, and a sign that turns text
	// round.
	const hostile = "<b>a\x00\n: \u202eb"

	look := func() *answer {
		return b.look("p", hostile)
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
	again.has("the policy was changed since")

	form = again.form("/keys/limit")
	form.Set("comment", "a partner")
	b.post("/keys/limit", form).goesTo("/keys?key=")

	// The key has the limit as it is in bytes, whatever the form did to its line ends.
	if p, err = w.Policy(t.Context(), w.admin, "p"); err != nil || p.LimitOf(hostile, time.Now()) != limit("9/1m") ||
		p.Version != 3 {
		t.Errorf("%+v %v", p, err)
	}

	got := look()
	got.has("a limit of its own: 9 requests a minute", "of 9")
	b.get("/policies/p?done=ownlimit").want(http.StatusOK).harmless("the policy")
}

// A key with an override beside the policy gets another one there, and no version of the policy.
func TestKeyGetsAnotherOverrideAfterAQuestion(t *testing.T) {
	w, b := bansWorld(t)
	_, err := w.SetOverride(t.Context(), w.admin, "p", service.OverrideChange{Key: "bob", Limit: "7/1m"})
	w.must(err)
	look := func() *answer {
		return b.look("p", "bob")
	}
	look().has("a limit of its own: 7 requests a minute", "of 7")

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
	b.post("/keys/limit", question.form("/keys/limit")).goes("/keys?key=bob&policy=p&view=one&done=override")
	k, err := w.KeyPolicy(t.Context(), w.admin, "p", "bob")
	if w.must(err); k.Beside.String() != "9/1m" || k.Policy.Version != 1 {
		t.Errorf("%+v", k)
	}

	form = b.post("/keys/limit", look().form("/keys/limit")).want(http.StatusOK).form("/keys/limit")
	form.Set("limit", "")
	question = b.post("/keys/limit", form).want(http.StatusOK)
	b.post("/keys/limit", question.form("/keys/limit")).goes("/keys?key=bob&policy=p&view=one&done=nooverride")
	if k, err = w.KeyPolicy(t.Context(), w.admin, "p", "bob"); err != nil || k.Beside != nil {
		t.Errorf("%+v, %v", k, err)
	}
}

// The limit that a key has of its own is offered for a change, and taken away by an empty one.
func TestKeyLosesTheLimitOfItsOwn(t *testing.T) {
	w, b := bansWorld(t)

	look := func() *answer {
		return b.look("p", "bob")
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

	b.post("/keys/limit", question.form("/keys/limit")).goes("/keys?key=bob&policy=p&view=one&done=nolimit&of=p")
	if p, err := w.Policy(t.Context(), w.admin, "p"); err != nil || p.Overrides != nil || p.Version != 5 {
		t.Errorf("%+v %v", p, err)
	}
}

// An instance enforces the limit that a key has of its own, and the console reads, resets, bans
// and lifts the key under it.
func TestKeysWithLimitsOfTheirOwnAreKnown(t *testing.T) {
	for _, algorithm := range []string{"", " fixed-window", " sliding-log", " sliding-window", " token-bucket"} {
		t.Run(algorithm, func(t *testing.T) {
			fleetKnowsItsLimit(t, algorithm)
		})
	}
}

func fleetKnowsItsLimit(t *testing.T, algorithm string) {
	t.Helper()
	const key = "192.0.2.7"

	// The limits differ for the key and for the others, so a wrong one shows in the count.
	p, err := service.WithKeyLimit(policy.Policy{Name: "p", Apps: []string{"a"}, Limit: limit("2/1h" + algorithm),
		Key: "ip", Ban: core.MustParseBan("20/1m for 10m max 24h")}, key,
		&policy.Override{Limit: limit("7/1h" + algorithm)})
	if err != nil {
		t.Fatal(err)
	}

	// The instance and the console share nothing but Redis, as in production.
	s := newLimited(t, p)
	passes := func(remote string, n int) int { return passing(t, s.limiter, remote, n) }
	if own, other := passes(key, 5), passes("192.0.2.8", 5); own != 5 || other != 2 {
		t.Fatalf("%d requests of the key passed, and %d of another", own, other)
	}

	// Five of seven are used, and the console reads the key's own limit: with that of the others it
	// would be over.
	if d := s.peek("p", key); !d.Allowed || d.Remaining != 2 {
		t.Errorf("the console finds %+v", d)
	}
	if own := passes(key, 5); own != 2 {
		t.Errorf("%d further requests passed", own)
	}

	// The reset clears the count that belongs to the limit of the key's own.
	s.must(s.ResetKey(t.Context(), s.admin, "p", key))
	if own := passes(key, 9); own != 7 {
		t.Errorf("after the reset %d requests passed", own)
	}

	// A ban does not depend on what is left, and its end does not give anything back.
	s.must(s.ImposeBan(t.Context(), s.admin, "p", key, time.Hour))
	if d := s.peek("p", key); !d.Banned {
		t.Errorf("after the ban the console finds %+v", d)
	}
	s.must(s.LiftBan(t.Context(), s.admin, "p", key))
	if d := s.peek("p", key); d.Banned || d.Remaining != 0 {
		t.Errorf("after the lift the console finds %+v", d)
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

// A key is looked up under every policy that counts its kind.
func TestKeyIsFoundUnderEachPolicy(t *testing.T) {
	w, b := bansWorld(t)
	w.policy("also", "9/1m")

	// This policy counts networks, so the address is found under its network.
	w.add(policy.Policy{Name: "nets", Apps: []string{"a"}, Limit: limit("7/1m"), Key: "ip/56"})
	w.fleet.used["also 2001:db8::"] = 3

	got := b.look("plain", "192.0.2.1")
	if !strings.HasPrefix(got.cell("also"), "192.0.2.1 | 0 of 9, 9 left | now") || got.cell("nets") == "" ||
		got.cell("p") != "" || got.cell("plain") == "" {
		t.Errorf("%v", got.rows())
	}

	w.fleet.used["p eve"] = 5

	// For a name that is no address, policies by user are meant; the fullest one is first, as it
	// explains a refusal.
	got = b.look("", "eve")
	if !strings.HasPrefix(got.cell("p"), "eve | 5 of 5, 0 left | in 0s") ||
		!strings.HasPrefix(got.cell("q"), "eve | 0 of 5, 5 left | now") || got.cell("plain") != "" {
		t.Errorf("%v", got.rows())
	}

	if at := strings.Index(got.text, ">q</a></th>"); at < strings.Index(got.text, ">p</a></th>") {
		t.Error("the policy of which most is used is not the first")
	}

	// The newest entry is first. A question that names a policy has an entry of its own for that
	// one.
	if list := w.audited("key.look-up"); len(list) != 3 || list[0].Object != "policies" ||
		list[0].After != `{"key":"eve","policies":["p","q"]}` ||
		list[1].After != `{"key":"192.0.2.1","policies":["also","nets"]}` || list[2].Object != "policy:plain" {
		t.Errorf("the audit log has %+v", list)
	}

}

func TestKeyIsFoundUnderPoliciesOfOwnApplicationsOnly(t *testing.T) {
	w, _ := bansWorld(t)
	w.person("owner", map[string]service.Role{"b": service.Owner})
	got := w.as("owner").look("", "eve")
	if rows := got.rows(); rows["p"] != "" || rows["q"] == "" {
		t.Errorf("an owner of b sees %v", rows)
	}
}

// listedBans returns the bans of p, which the store lists in the background.
func (s *limited) listedBans() (list []core.Banned) {
	s.t.Helper()
	for len(list) == 0 {
		var err error
		list, err = s.fleet.Bans(s.t.Context(), []string{"p"})
		s.must(err)
	}
	return list
}

// The console bans a key for just so long, and instances obey.
func TestBansAreImposedInRedis(t *testing.T) {
	for _, l := range []string{"5/1h fixed-window", "5/month"} {
		t.Run(l, func(t *testing.T) { bansInRedis(t, l) })
	}
}

func bansInRedis(t *testing.T, l string) {
	t.Helper()
	s := newLimited(t, policy.Policy{Name: "p", Apps: []string{"a"}, Limit: limit(l), Key: "user",
		Ban: core.MustParseBan("20/1m for 10m max 24h")})

	// The second ban is shorter than the first and replaces it: the administrator's word counts,
	// not the longer one.
	for _, span := range []time.Duration{10 * time.Hour, 3 * time.Hour, 3 * time.Hour} {
		s.must(s.ImposeBan(t.Context(), s.admin, "p", "k\x00", span))
		if d := s.peek("p", "k\x00"); !d.Banned || d.RetryAfter > span || d.RetryAfter < span-time.Minute {
			t.Errorf("banned for %s, it is %+v", span, d)
		}
	}
	if list := s.listedBans(); len(list) != 1 || list[0].Key != "k\x00" {
		t.Errorf("%v", list)
	}

	// A lift leaves the count alone, so all five units are there.
	s.must(s.LiftBan(t.Context(), s.admin, "p", "k\x00"))
	if d := s.peek("p", "k\x00"); d.Banned || d.Remaining != 5 {
		t.Errorf("after the lift it is %+v", d)
	}
}
