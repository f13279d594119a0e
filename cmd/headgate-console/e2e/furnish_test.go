package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oauth2-proxy/mockoidc"
	"github.com/pquerna/otp/totp"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/managed"
	"github.com/headgate/headgate/policy/policyyaml"
	"github.com/headgate/headgate/policy/redissource"
	"github.com/headgate/headgate/policy/stats"
	"github.com/headgate/headgate/store/redisstore"
)

// hostile is a text of a user that a page must not take for its own, and that is wider than a
// phone, and longApp the longest name of an application.
const hostile = `<b onclick="x()">'"&amp;</b> {{.}} ` + "שלום averyveryveryveryveryveryveryverylongword"

var longApp = strings.Repeat("long-app", 8)

// house prepares the database of a scene.
type house struct {
	t        *testing.T
	ctx      context.Context
	s        *service.Service
	admin    service.Actor
	sessions map[string]string
	fay      device
}

func (h *house) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// enter signs a user in with a one-time password, and keeps the session.
func (h *house) enter(name, oneTime string) service.Actor {
	h.t.Helper()
	session, err := h.s.Login(h.ctx, name, oneTime, service.Meta{})
	h.must(err)
	a, err := h.s.Authenticate(h.ctx, session.Token, service.Meta{})
	h.must(err)
	session, err = h.s.ChangePassword(h.ctx, a, oneTime, password)
	h.must(err)
	h.sessions[name] = session.Token
	a, err = h.s.Authenticate(h.ctx, session.Token, service.Meta{})
	h.must(err)
	return a
}

// person adds a user with a role in the shop, or with none.
func (h *house) person(name string, role service.Role) service.Actor {
	h.t.Helper()
	oneTime, err := h.s.CreateUser(h.ctx, h.admin, name)
	h.must(err)
	a := h.enter(name, oneTime)
	if role != "" {
		h.must(h.s.SetRole(h.ctx, h.admin, name, "shop", role))
	}
	return a
}

// The policies of a full scene. The many differ in their names alone.
func fullPolicies() string {
	var b strings.Builder
	fmt.Fprintf(&b, `policies:
- {name: visitors, apps: [shop], limit: 5/1h sliding-log, key: ip, ban: {after: 3/1m, for: 10m, max: 24h}, description: %[1]q}
- {name: people, apps: [shop, %[2]s], limit: 3/1h, key: user, description: "Two\nlines"}
- {name: watched, apps: [shop], limit: 2/1h sliding-log, key: ip, mode: shadow}
- {name: sleeping, apps: [shop], limit: 10000/month tz=Europe/Berlin start=15, key: user, mode: off}
- {name: jobs, apps: [shop], limit: 20 concurrent ttl=5m, key: route, mode: shadow, on_limit: wait 500ms}
- {name: gone, apps: [shop], limit: 1/1s, key: ip, mode: off, description: %[1]q}
- {name: undone, apps: [shop], limit: 9/1s, key: ip, mode: shadow}
- {name: fallow, apps: [shop], limit: 9/1s, key: ip, mode: shadow}
- name: %[3]s
  apps: [shop]
  limit: 240/1h sliding-window segments=60
  plans: {pro: 9000/1h sliding-window segments=60, team: 99000/1h sliding-window segments=60}
  plan_by: user
  overrides: {"42": 50000/1h sliding-window segments=60}
  key: user
  match: {methods: [GET, POST], host: "*.example.com", path: "/a/very/long/path/with/many/parts/{and}/a/wildcard/"}
  access:
    allow: {networks: [10.0.0.0/8, "2001:db8::/32"], keys: ["7", "8"]}
    deny: {networks: [192.0.2.0/24], keys: [%[1]q]}
    deny_status: 429
  on_store_error: local
  mode: shadow
  priority: -1000
`, hostile, longApp, "n"+strings.Repeat("ame-", 15))

	// The many are for the pages and the filters of the list, and for a change of several at once.
	for i := range 60 {
		fmt.Fprintf(&b, "- {name: many-%d, apps: [shop], limit: %d/1m burst=20, key: ip, mode: shadow, priority: %[1]d, match: {path: /many/%[1]d}}\n", i+10, i+10)
	}

	return b.String()
}

// fill gives the database everything that pages show of it.
func (h *house) fill(first string) {
	h.admin = h.enter(service.FirstUser, first)
	h.must(h.s.CreateApp(h.ctx, h.admin, "shop", hostile))
	h.must(h.s.CreateApp(h.ctx, h.admin, longApp, ""))
	h.must(h.s.CreateApp(h.ctx, h.admin, "unused", ""))

	h.people()
	_, err := h.s.Import(h.ctx, h.admin, service.Import{Data: []byte(fullPolicies()), Format: service.YAML})
	h.must(err)

	h.history()

	// The two tokens differ in whether they end soon.
	for _, life := range []time.Duration{time.Hour, 24 * time.Hour * 90} {
		_, _, err := h.s.CreateToken(h.ctx, h.admin, service.TokenDraft{Label: hostile, Scope: service.Write,
			Apps: []string{"shop"}, Life: life})
		h.must(err)
	}

	revoked, _, err := h.s.CreateToken(h.ctx, h.admin, service.TokenDraft{Label: "revoked",
		Scope: service.Read, Life: time.Hour})
	h.must(err)
	h.must(h.s.RevokeToken(h.ctx, h.admin, revoked.ID))

	// A session from an address of IPv6, by a program whose name is hostile, is listed with the
	// others.
	_, err = h.s.Login(h.ctx, service.FirstUser, password, service.Meta{Address: "[2001:db8::1]:1", Agent: hostile})
	h.must(err)
}

// people adds users of each kind.
func (h *house) people() {
	h.person("ada", service.Owner)
	h.person("vic", service.Viewer)
	h.person("nora", "")

	h.person("tess", service.Owner) // who makes tokens
	h.person("rob", service.Viewer)
	h.must(h.s.DisableUser(h.ctx, h.admin, "rob"))

	h.person("pat", service.Viewer)
	delete(h.sessions, "pat") // whom the front signs in

	h.fay = h.factor(h.person("fay", service.Viewer))
	oneTime, err := h.s.CreateUser(h.ctx, h.admin, "otto")
	h.must(err)
	session, err := h.s.Login(h.ctx, "otto", oneTime, service.Meta{})
	h.must(err)
	h.sessions["otto"] = session.Token             // who has to choose a password
	_, err = h.s.CreateUser(h.ctx, h.admin, "ola") // whom the provider signs in
	h.must(err)

	h.person("mo", service.Viewer) // who sets up a second factor
	h.person("max@example.com", service.Viewer)
	h.must(h.s.Promote(h.ctx, h.admin, "max@example.com"))
}

// device is what a user has for the second factor.
type device struct {
	secret   string
	recovery string // a code that was not used
}

// factor sets up a second factor.
func (h *house) factor(a service.Actor) device {
	h.t.Helper()
	setup, err := h.s.BeginSecondFactor(h.ctx, a, password)
	h.must(err)
	code, err := totp.GenerateCode(setup.Secret, time.Now())
	h.must(err)
	codes, err := h.s.ConfirmSecondFactor(h.ctx, a, code)
	h.must(err)
	return device{setup.Secret, codes[0]}
}

// edit changes a policy, and returns it.
func (h *house) edit(name, comment string, change func(*policy.Policy)) policy.Policy {
	h.t.Helper()
	p, err := h.s.Policy(h.ctx, h.admin, name)
	h.must(err)
	change(&p)
	p, err = h.s.UpdatePolicy(h.ctx, h.admin.Saying(comment), p)
	h.must(err)
	return p
}

func (h *house) limit(text string) core.Limit {
	h.t.Helper()
	l, err := core.ParseLimit(text)
	h.must(err)
	return l
}

// history changes policies: visitors has five versions, gone was deleted, and fallow is paused.
func (h *house) history() {
	for i := range 4 {
		h.edit("visitors", hostile, func(p *policy.Policy) { p.Limit = h.limit(fmt.Sprintf("%d/1h sliding-log", 8-i)) })
	}

	h.must(h.s.DeletePolicy(h.ctx, h.admin.Saying(hostile), "gone", 1))
	_, err := h.s.PausePolicy(h.ctx, h.admin.Saying(hostile), "fallow", 1, policy.Off, service.MaxPause)
	h.must(err)
}

// soon waits until done returns true.
func (h *house) soon(what string, done func() bool) {
	h.t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			h.t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// furnish starts a console that has something to show on each page: people, policies with a
// history, an instance, traffic, bans, and a provider of OpenID Connect.
func furnish(t *testing.T, console string) *scene {
	t.Helper()

	data := t.TempDir()
	file := filepath.Join(data, "console.db")
	h := &house{t: t, ctx: t.Context(), sessions: map[string]string{}}

	(&database{t: t, url: "sqlite://" + file}).with(func(ctx context.Context, s *service.Service, first string) {
		h.s = s
		h.fill(first)
	})

	server, people := redistest.Start(t), provider(t)

	w := &scene{front: openFront(t), sessions: h.sessions}
	p := start(t, "console", console, []string{"HEADGATE_CONSOLE_OIDC_SECRET=" + people.ClientSecret}, "-data", data, "-redis", "redis://"+server.Addr, "-listen", "127.0.0.1:0",
		"-trusted-proxy", "127.0.0.1", "-identity-header", identity, "-webhook-allow", "127.0.0.0/8",
		"-oidc-issuer", people.Issuer(), "-oidc-client", people.ClientID, "-public-url", w.front.url)
	w.front.leadsTo(t, p.address)

	// The first log-in meets a user of the provider whom the console does not know, the second
	// one whom it does.
	people.QueueUser(&mockoidc.MockUser{Subject: "1", PreferredUsername: "nobody", Email: "nobody@example.com"})
	people.QueueUser(&mockoidc.MockUser{Subject: "2", PreferredUsername: "ola", Email: "ola@example.com"})

	leave := h.traffic(server.Addr)
	w.parts = fullStates(h.fay)

	// The instance ends first, while it can still write its last counts to Redis.
	w.withoutRedis = func() []state {
		leave()
		server.Kill()
		return statesWithoutRedis()
	}

	w.withoutTables = func() []state {
		db, err := sql.Open("sqlite", file)
		h.must(err)
		_, err = db.Exec(`ALTER TABLE audit RENAME TO mislaid`)
		h.must(errors.Join(err, db.Close()))
		return []state{{name: "a fault of the console", user: "admin", path: "/audit", status: 500}}
	}
	return w
}

// newHouse returns a database on SQLite that furnish has written to as the administrator, and the
// directory that it is in.
func newHouse(t *testing.T, furnish func(*house)) (h *house, data string) {
	t.Helper()

	data = t.TempDir()
	h = &house{t: t, ctx: t.Context(), sessions: map[string]string{}}
	db := &database{t: t, url: "sqlite://" + filepath.Join(data, "console.db")}
	db.with(func(_ context.Context, s *service.Service, first string) {
		h.s = s
		h.admin = h.enter(service.FirstUser, first)
		furnish(h)
	})
	return h, data
}

// unfurnished starts a console without Redis in which nothing is yet, and whose settings require
// a second factor.
func unfurnished(t *testing.T, console string) *scene {
	t.Helper()

	h, data := newHouse(t, func(h *house) {
		h.factor(h.admin)
		h.person("new", "")

		// The setting comes last, when new is signed in and has no factor yet.
		settings, err := h.s.Settings(h.ctx, h.admin)
		h.must(err)
		settings.SecondFactor = service.ForEveryone
		h.must(h.s.SaveSettings(h.ctx, h.admin, settings))
	})

	w := &scene{front: openFront(t), sessions: h.sessions, parts: emptyStates()}
	p := start(t, "console", console, nil, "-data", data, "-listen", "127.0.0.1:0")
	w.front.leadsTo(t, p.address)
	return w
}

// contested starts a console whose Redis has the policies of another database.
func contested(t *testing.T, console string) *scene {
	t.Helper()

	h, data := newHouse(t, func(h *house) {
		h.must(h.s.CreateApp(h.ctx, h.admin, "shop", ""))
		_, err := h.s.Import(h.ctx, h.admin, service.Import{Format: service.YAML,
			Data: []byte("policies: [{name: ours, apps: [shop], limit: 5/1m, key: ip}]")})
		h.must(err)
	})

	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	source, err := redissource.New(client, redissource.Options{Timeout: time.Minute})
	h.must(err)
	set, err := policyyaml.Decode([]byte("policies: [{name: theirs, apps: [shop], limit: 5/1m, key: ip}]"))
	h.must(err)
	_, err = source.PublishFrom(h.ctx, set, "", redissource.Origin{Database: "theirs", Revision: 1}, "")
	h.must(err)

	w := &scene{front: openFront(t), sessions: h.sessions, parts: takingOver()}
	p := start(t, "console", console, nil, "-data", data, "-redis", "redis://"+server.Addr, "-listen", "127.0.0.1:0")
	w.front.leadsTo(t, p.address)
	return w
}

// provider starts a provider of OpenID Connect.
func provider(t *testing.T) *mockoidc.MockOIDC {
	t.Helper()
	m, err := mockoidc.NewServer(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Start(httptest.NewUnstartedServer(nil).Listener, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Server.Close() })
	return m
}

// traffic sends requests of several users to an instance of the shop, by which their address is
// banned, and waits until Redis has the counts. leave ends the instance.
func (h *house) traffic(addr string) (leave func()) {
	h.t.Helper()
	shop, leave := h.instance(addr, strings.ReplaceAll(hostile[:34], " ", ""))
	for i := range 60 {
		user := hostile
		if i%2 != 0 {
			user = url.QueryEscape(fmt.Sprint("user ", i%12, hostile))
		}
		h.send(shop, http.MethodGet, "/", "192.0.2.1", user)
	}
	h.published(addr)
	return leave
}

// instance starts an instance of the shop in this process. leave ends it.
func (h *house) instance(addr, name string) (shop http.Handler, leave func()) {
	t := h.t
	t.Helper()

	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	user := func(r core.Request) (string, bool) { return strings.Join(r.Header("X-User"), ""), true }
	said := &test.Log{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the instance said:\n%s", said)
		}
	})

	limits, err := managed.Open(t.Context(), client, managed.Options{
		App: "shop", Store: redisstore.Options{Timeout: time.Minute},
		Bindings: policy.Bindings{User: user, Plans: map[string]policy.PlanFunc{"user": noPlan}},
		Follow:   policy.Options{Instance: name, OnMissing: policy.OnMissingWait, Timeout: time.Minute},
		Limiter:  limiter.Config{Top: 20, Logger: slog.New(slog.NewTextHandler(said, nil))},
	})
	if err != nil {
		t.Fatal(err)
	}

	// The instance may be ended early by the scene without Redis, and then by the cleanup again.
	leave = sync.OnceFunc(func() {
		h.must(limits.Close())
		h.must(client.Close())
	})
	t.Cleanup(leave)

	h.soon("the policies are in force", func() bool { return strings.Contains(said.String(), "policies are in force") })
	return nethttp.New(limits.Limiter)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})), leave
}

// send has an instance decide about a request.
func (h *house) send(shop http.Handler, method, path, address, user string) {
	r := httptest.NewRequestWithContext(h.ctx, method, path, nil)
	r.RemoteAddr = address + ":1234"
	r.Header.Set("X-User", user)
	shop.ServeHTTP(httptest.NewRecorder(), r)
}

// published waits until Redis has the keys that instances of the shop have counted.
func (h *house) published(addr string) {
	h.t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	defer client.Close()
	h.soon("Redis has the keys", func() bool {
		top, err := stats.ReadTop(h.ctx, client, "", "shop")
		h.must(err)
		return len(top.Rules) > 0
	})
}

func noPlan(context.Context, string) (string, error) { return "", nil }
