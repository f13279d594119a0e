package e2e

import (
	"context"
	"database/sql"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
)

// The policies of the console in the pictures.
const shownPolicies = `policies:
- {name: login, apps: [shop], limit: 5/1m sliding-log, key: ip, match: {methods: [POST], path: /login}, ban: {after: 20/1m, for: 10m, max: 24h}, on_store_error: local, description: Slows down the guessing of passwords.}
- {name: search, apps: [shop], limit: 30/10s, key: user, match: {path: /search}, mode: shadow, description: To be enforced when its counts are known.}
- {name: public-api, apps: [shop, partners], limit: 100/1m burst=20, key: user, match: {path: /api/}, plan_by: user, plans: {pro: 3000/1m burst=200, team: 900/1m burst=100}, overrides: {"crawler": 10/1m burst=5}}
- {name: checkout, apps: [shop], limit: 20/1m, key: user, match: {methods: [POST], path: /checkout}, on_limit: wait 2s}
- {name: recommendations, apps: [shop], limit: 60/1m, key: user, match: {path: /recommendations}, on_limit: degrade}
- {name: reports, apps: [shop], limit: 2 concurrent ttl=5m, key: user, match: {path: /reports/}}
- {name: sign-up, apps: [shop], limit: 3/1h sliding-window, key: ip, match: {methods: [POST], path: /sign-up}}
- {name: newsletter, apps: [shop], limit: 1/1d, key: ip, match: {path: /newsletter}, mode: off}
- {name: partner-quota, apps: [partners], limit: 100000/month tz=Europe/Berlin, key: api-key, match: {path: /partner/}, priority: 10}
- {name: old-search, apps: [shop], limit: 10/1s, key: ip, match: {path: /find}}
`

// display furnishes a console as a shop may have it after some days, for the pictures of the
// documentation.
func display(t *testing.T, console string) *scene {
	t.Helper()
	data := t.TempDir()
	file := filepath.Join(data, "console.db")
	h := &house{t: t, ctx: t.Context(), sessions: map[string]string{}}

	pager := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(pager.Close)

	(&database{t: t, url: "sqlite://" + file}).with(func(_ context.Context, s *service.Service, first string) {
		h.s = s
		h.exhibit(first)
	})
	h.age(file)

	server, people := redistest.Start(t), provider(t)
	w := &scene{front: openFront(t), sessions: h.sessions, parts: []part{{"shown", shown(pager.URL)}}}
	p := start(t, "console", console, []string{"HEADGATE_CONSOLE_OIDC_SECRET=" + people.ClientSecret}, "-data", data, "-redis", "redis://"+server.Addr, "-listen", "127.0.0.1:0",
		"-webhook-allow", "127.0.0.0/8", "-oidc-issuer", people.Issuer(), "-oidc-client", people.ClientID, "-public-url", w.front.url)
	w.front.leadsTo(t, p.address)
	h.visitors(server.Addr)
	return w
}

// exhibit gives the database people, policies with a history, and counts.
func (h *house) exhibit(first string) {
	h.admin = h.enter(service.FirstUser, first)
	h.must(h.s.CreateApp(h.ctx, h.admin, "shop", "The web shop, six instances behind the load balancer"))
	h.must(h.s.CreateApp(h.ctx, h.admin, "partners", "The API of our partners"))

	ada := h.person("ada", service.Owner)
	h.person("vic", service.Viewer)
	h.person("max@example.com", service.Viewer)
	h.must(h.s.Promote(h.ctx, h.admin, "max@example.com"))
	h.person("rob", service.Viewer)
	h.must(h.s.DisableUser(h.ctx, h.admin, "rob"))
	h.must(h.s.SetRole(h.ctx, h.admin, "ada", "partners", service.Viewer))

	_, err := h.s.Import(h.ctx, h.admin, service.Import{Data: []byte(shownPolicies), Format: service.YAML})
	h.must(err)
	h.must(h.s.DeletePolicy(h.ctx, h.admin.Saying("replaced by search"), "old-search", 1))

	// The steps of the history are such that the pages of a difference and of a conflict have
	// something to show.
	h.edit("login", "support says that 5 are too few on Mondays",
		func(p *policy.Policy) { p.Limit = h.limit("10/1m sliding-log") })
	h.edit("login", "", func(p *policy.Policy) { p.Ban = core.MustParseBan("20/1m for 30m max 24h") })
	p, err := h.s.Policy(h.ctx, ada, "login")
	h.must(err)
	p.Limit = h.limit("5/1m sliding-log")
	_, err = h.s.UpdatePolicy(h.ctx, ada.Saying("an address tries passwords since nine"), p)
	h.must(err)

	for _, d := range []service.TokenDraft{
		{Label: "policies in Git", Scope: service.Write, Apps: []string{"shop"}, Life: 90 * 24 * time.Hour},
		{Label: "dashboard", Scope: service.Read, Life: 9 * 24 * time.Hour},
	} {
		_, _, err := h.s.CreateToken(h.ctx, h.admin, d)
		h.must(err)
	}
	h.past()
}

// past records the counts of a day: of each of the last 100 minutes, and before of one in five.
// In the last nine minutes passwords are tried.
func (h *house) past() {
	random, now := rand.New(rand.NewPCG(1, 2)), time.Now().Truncate(time.Minute)
	some := func(n float64) int64 { return int64(n * (0.8 + 0.4*random.Float64())) }
	ledger := h.s.Ledger()

	for back := 24 * 60; back > 0; back-- {
		if back > 100 && back%5 != 0 {
			continue
		}

		// Two waves a day, with a ripple of some minutes.
		many := 300 * (1.3 + math.Sin(float64(back)/1440*4*math.Pi) + 0.3*math.Sin(float64(back)/17))

		// One minute stands for five, of which the other four are left out.
		if back > 100 {
			many *= 5
		}

		guesses := 0.02 * many
		if back < 10 {
			guesses = 1.1 * many
		}

		counts := map[string]stats.Counts{
			"login": {
				events.Allowed: some(0.1 * many),
				events.Refused: some(0.7 * guesses),
				events.Banned:  some(0.3 * guesses),
			},
			"search":          {events.Allowed: some(0.5 * many), events.ShadowRefused: some(0.05 * many)},
			"public-api":      {events.Allowed: some(many), events.Refused: some(0.06 * many)},
			"checkout":        {events.Allowed: some(0.08 * many), events.Waited: some(0.01 * many)},
			"recommendations": {events.Allowed: some(0.4 * many), events.Degraded: some(0.08 * many)},
			"reports":         {events.Allowed: some(0.02 * many), events.Refused: some(0.002 * many)},
			"sign-up":         {events.Allowed: some(0.01 * many), events.Refused: some(0.004 * many)},
		}

		m := stats.Minute{Start: now.Add(-time.Duration(back) * time.Minute), Policies: counts}
		for _, c := range counts {
			for verdict, n := range c {
				m.Requests[verdict] += n
			}
		}
		h.must(ledger.Record(h.ctx, "shop", m))
	}

	h.must(ledger.SetCollected(h.ctx, "shop", now))
}

// age has everything happened in the last twelve days, the latest the closest together.
func (h *house) age(file string) {
	h.t.Helper()
	db, err := sql.Open("sqlite", file)
	h.must(err)

	now, days := time.Now().UnixMicro(), (12 * 24 * time.Hour).Microseconds()

	// The database keeps its history from being changed, so the triggers go first.
	for _, q := range []string{
		"DROP TRIGGER revisions_keep", "DROP TRIGGER audit_keep",
		"CREATE TEMP TABLE ages AS SELECT policy, version, 1 - PERCENT_RANK() OVER (ORDER BY at) + 0.03 AS age FROM revisions",
		"UPDATE revisions SET at = ?1 - CAST(?2 * (SELECT age * age FROM ages a WHERE a.policy = revisions.policy AND a.version = revisions.version) AS INTEGER)",
		"UPDATE policies SET created_at = (SELECT MIN(at) FROM revisions r WHERE r.policy = name), updated_at = (SELECT MAX(at) FROM revisions r WHERE r.policy = name)",
		"UPDATE deleted_policies SET at = (SELECT MAX(at) FROM revisions r WHERE r.policy = deleted_policies.policy)",
		"CREATE TEMP TABLE entries AS SELECT id, 1 - PERCENT_RANK() OVER (ORDER BY id) + 0.01 AS age FROM audit",
		"UPDATE audit SET at = ?1 - CAST(?2 * (SELECT age * age FROM entries e WHERE e.id = audit.id) AS INTEGER)",
		"UPDATE users SET created_at = ?1 - ?2", "UPDATE tokens SET created_at = ?1 - ?2 / 2, used_at = ?1 - 90000000",
	} {
		_, err := db.ExecContext(h.ctx, q, now, days)
		h.must(err)
	}
	h.must(db.Close())
}

// visitors send requests to two instances, by which keys are banned.
func (h *house) visitors(addr string) {
	one, _ := h.instance(addr, "shop-1")
	two, _ := h.instance(addr, "shop-2")
	for i := range 90 {
		shop := []http.Handler{one, two}[i%2]
		h.send(shop, http.MethodPost, "/login", "203.0.113.9", "")
		if i%3 == 0 {
			h.send(shop, http.MethodPost, "/login",
				[]string{"198.51.100.23", "198.51.100.77", "2001:db8::17"}[i%9/3], "")
		}
		h.send(shop, http.MethodGet, "/search", "192.0.2.4", []string{"maria", "crawler", "crawler"}[i%3])
		h.send(shop, http.MethodGet, "/api/items", "192.0.2.5", []string{"crawler", "ines", "ole"}[i%3])
	}
	h.published(addr)
}

// shown are the pages in the pictures, in their order.
func shown(pager string) []state {
	wrong := form("do", "save", "version", "2", "name", "login", "apps", "shop", "quota", "8", "period", "1",
		"unit", "m", "algorithm", "sliding-log", "key", "ip", "methods", "POST", "path", "/login",
		"ban_after", "20", "ban_within", "1m", "ban_for", "10m", "ban_max", "24h",
		"on_store_error", "local", "mode", "enforce", "priority", "0",
		"description", "Slows down the guessing of passwords, and bans those who go on.")
	plan := "policies:\n- {name: login, apps: [shop], limit: 8/1m sliding-log, key: ip, match: {methods: [POST], path: /login}}\n- {name: uploads, apps: [shop], limit: 20/1h, key: user, match: {path: /uploads/}}\n"
	hook := form("name", "on call", "url", pager+"/services/on-call", "all", "yes", "repeat_after", "4h",
		"conditions", "refused", "conditions.refused.over", "20", "conditions.refused.count", "100",
		"conditions.refused.minutes", "5", "conditions", "bypassed", "conditions.bypassed.minutes", "1")
	const begun = `(async () => { while (!(await (await fetch("/alerts")).text()).includes("mode wrong")) await new Promise((done) => setTimeout(done, 100)); return true; })()`

	list := []state{
		{name: "a webhook is added", user: "admin", path: "/alerts", send: hook},
		{picture: "traffic", user: "admin", path: "/"},
		{picture: "who", user: "admin", path: "/keys?app=shop",
			on: until(`document.querySelectorAll("tbody tr").length > 4`)},
		{picture: "list", user: "admin", path: "/policies"},
		{picture: "templates", user: "admin", path: "/new?template=login&app=shop"},
		{picture: "form", user: "admin", path: "/policies/public-api/edit"},
		{picture: "policy", user: "admin", path: "/policies/login",
			on: `innerWidth < 1280 || document.body.getBoundingClientRect().height <= 1600`}, // it is short
		{picture: "shadow", user: "admin", path: "/policies/search"},
		{picture: "question", user: "admin", path: "/policies/login/mode", send: form("mode", "off", "version", "4")},
		{picture: "history", user: "admin", path: "/policies/login/history"},
		{picture: "diff", user: "admin", path: "/policies/login/diff?from=1&to=4"},
		{picture: "conflict", user: "admin", path: "/policies/login/edit", send: wrong, status: http.StatusConflict},
		{picture: "deleted", user: "admin", path: "/deleted"},
		{picture: "tester", user: "admin", path: "/keys/try", send: form("app", "shop", "method", "POST",
			"path", "/login", "address", "203.0.113.9")},
		{picture: "key", user: "admin", path: "/keys?policy=login&key=198.51.100.23"},
		{picture: "bans", user: "admin", path: "/keys?view=banned"},
		{name: "the alert begins", user: "admin", path: "/alerts", on: begun},
		{picture: "alerts", user: "admin", path: "/alerts"},
		{picture: "alert", user: "admin", path: "/alerts", then: atHook("", nil)},
		{picture: "alert-form", user: "admin", path: "/alerts?webhook=new"},
		{picture: "import", user: "admin", path: "/import", files: true, send: form("data", plan, "format", "yaml")},
		{picture: "apps", user: "admin", path: "/apps"},
		{picture: "users", user: "admin", path: "/users"},
		{picture: "user", user: "admin", path: "/users/ada"},
		{picture: "audit", user: "admin", path: "/audit"},
		{picture: "settings", user: "admin", path: "/settings"},
		{picture: "account", user: "admin", path: "/account"},
		{picture: "second-factor", user: "vic", path: "/account/second-factor", send: form("password", password)},
		{picture: "log-in", path: "/login"},
		{picture: "failure", user: "vic", path: "/audit", status: http.StatusForbidden},
	}

	for i, s := range list {
		if s.name == "" {
			list[i].name = "the picture " + s.picture
		}
	}
	return list
}
