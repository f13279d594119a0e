package main

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	my "github.com/go-sql-driver/mysql"
	"github.com/headgate/headgate/console/internal/app"
	"github.com/headgate/headgate/console/internal/config"
	"github.com/headgate/headgate/console/internal/mariadbtest"
	"github.com/headgate/headgate/console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/events"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
	"github.com/redis/go-redis/v9"
)

const (
	// quick is the longest time in which the console answers, apart from the network.
	quick = 100 * time.Millisecond

	// slight is the largest number of bytes of an answer as it is sent: of a page together with
	// its style and its script.
	slight = 100_000
)

// These are the sizes of the console that TestPagesAreQuick asks.
const (
	manyApps      = 10
	manyPolicies  = 10_000
	manyInstances = 200
	manyUsers     = 1000
	manyAudits    = 200_000
	manyVersions  = 1000 // of the policy that was changed most
)

// files are the routes whose answers are saved as files, of any size.
var files = []string{"/export", "/audit/export", "/api/export", "/api/traffic/csv", "/api/audit/csv"}

// variants are the queries with which routes are asked, apart from none.
var variants = map[string][]string{
	"/":                         {"range=15m", "app=a", "app=a&range=15m", "app=a&range=6h", "app=a&range=24h", "app=a&range=7d", "app=a&range=30d", "range=30d"},
	"/live":                     {"app=a", "app=a&range=15m", "app=a&range=30d", "range=30d"},
	"/policies":                 {"page=100", "search=p00", "search=nothing+like+it", "app=a", "mode=shadow", "sort=-updated", "sort=-share", "sort=refused&page=100", "refusing=now", "refusing=now&sort=-share", "app=a&mode=shadow&search=9&sort=priority"},
	"/policies/{name}":          {"range=7d", "range=30d"},
	"/policies/{name}/live":     {"range=30d"},
	"/bans":                     {"policy=p00000"},
	"/audit":                    {"actor=admin", "action=nothing", "object=policy:p00000", "outcome=refused", "since=2026-01-01&action=policy.update"},
	"/export":                   {"app=a", "format=json"},
	"/who":                      {"app=a"},
	"/tester":                   {"app=a"},
	"/api/policies":             {"per_page=100", "app=a&search=9", "sort=-refused", "refusing=now"},
	"/api/audit":                {"per_page=100"},
	"/api/traffic":              {"app=a", "app=a&policy=p00000"},
	"/api/traffic/policies":     {"app=a"},
	"/validate":                 {"name=p&apps=a&quota=10&period=1&unit=m"},
	"/drawing.svg":              {"limit=10/s"},
	"/new":                      {"from=p00000"},
	"/apps/delete":              {"name=a"},
	"/api/policies/{name}/diff": {"from=1&to=2"},
	"/policies/{name}/diff":     {"from=1&to=2"},
}

// must have a query: without one they are answered 400 or 404.
var onlyWithQuery = []string{"/drawing.svg", "/apps/delete", "/api/traffic/policies", "/api/policies/{name}/diff"}

// big is a console with much in it.
type big struct {
	t       *testing.T
	handler http.Handler
	app     *app.App
	cookies map[string]string // the session's token by user
	hook    string            // the id of a webhook
	more    int64             // grows with each collection
}

// TestPagesAreQuick asks every page and every resource of a large console, as an administrator
// and as the owner of one application.
func TestPagesAreQuick(t *testing.T) {
	test.Long(t, "it writes millions of rows")
	t.Run("sqlite", func(t *testing.T) {
		askAll(t, "sqlite://"+filepath.Join(t.TempDir(), "console.db"))
	})
	t.Run("mariadb", func(t *testing.T) { askAll(t, mariadbtest.Start(t).Database(t)) })
}

func askAll(t *testing.T, db string) {
	begun := time.Now()
	b := openBig(t, db)
	t.Logf("the console was filled in %s", time.Since(begun).Round(time.Second))
	frame := 0
	for _, file := range []string{"/static/style.css", "/static/live.js"} {
		frame += b.ask(service.FirstUser, http.MethodGet, file, nil).Body.Len()
	}
	t.Logf("the style and the script have %d bytes", frame)
	for _, user := range []string{service.FirstUser, "owner"} {
		for _, path := range b.paths() {
			b.measure(user, http.MethodGet, path, nil, frame)
		}
		b.measureCounted(user)
		form := url.Values{"app": {"a"}, "method": {"GET"}, "path": {"/p/00000"}, "address": {"192.0.2.1"}}
		b.measure(user, http.MethodPost, "/tester", form, frame)
		export := b.ask(user, http.MethodGet, "/export?format=json&app=a", nil, "Accept-Encoding", "identity").Body.String()
		b.measure(user, http.MethodPost, "/import", url.Values{"format": {"json"}, "data": {export}}, frame)
		b.measure(user, http.MethodPost, "/import", url.Values{"format": {"json"}, "data": {strings.ReplaceAll(export, `"10/s`, `"11/s`)}}, frame)
	}
}

// counted are the pages that show counts, which the console adds up anew after each collection.
var counted = []string{"/", "/live", "/?app=a&range=24h", "/live?app=a&range=30d", "/policies", "/policies?sort=-share", "/policies?sort=refused&page=100",
	"/policies?refusing=now", "/policies/p00000", "/policies/p00000/live"}

// measureCounted asks the pages that show counts, each as the first one after a minute of all
// policies of the application a was collected.
func (b *big) measureCounted(user string) {
	b.t.Helper()
	m := stats.Minute{Start: time.Now().Add(-3 * time.Minute).Truncate(time.Minute), Policies: map[string]stats.Counts{}}
	for _, path := range counted {
		least := time.Hour
		for range 3 {
			b.more++
			for i := 0; i < manyPolicies; i += manyApps {
				m.Policies[policyName(i)] = stats.Counts{events.Allowed: 10_000 + b.more, events.Refused: 1000 + b.more}
			}
			b.must(b.app.Service.Ledger().Record(b.t.Context(), "a", m))
			begun := time.Now()
			b.ask(user, http.MethodGet, path, nil)
			least = min(least, time.Since(begun))
		}
		test.AtMost(b.t, fmt.Sprintf("GET %s as %s, first after a collection", path, user), least, quick)
	}
}

// paths are the addresses of all routes to GET, as the sources list them.
func (b *big) paths() (list []string) {
	b.t.Helper()
	pattern := regexp.MustCompile(`pattern: "GET (/[^"]*)"`)
	values := strings.NewReplacer("{$}", "", "{name}", "p00000", "{app}", "a", "{user}", "owner", "{version}", "2", "{webhook}", b.hook)
	for _, source := range []string{"internal/web/routes.go", "internal/api/route.go"} {
		text, err := os.ReadFile(source)
		if err != nil {
			b.t.Fatal(err)
		}
		found := pattern.FindAllStringSubmatch(string(text), -1)
		if len(found) < 20 {
			b.t.Fatalf("%s has %d routes to GET", source, len(found))
		}
		for _, f := range found {
			route := strings.TrimSuffix(f[1], "{$}")
			path := values.Replace(route)
			if strings.HasPrefix(route, "/users/") {
				path = "/users/owner"
			}
			if strings.Contains(path, "{") {
				b.t.Errorf("%s: no value for a part of %s", source, route)
			}
			if !slices.Contains(onlyWithQuery, route) {
				list = append(list, path)
			}
			for _, q := range variants[route] {
				list = append(list, path+"?"+q)
			}
		}
	}
	return list
}

// ask sends a request of a user.
func (b *big) ask(user, method, path string, form url.Values, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(b.t.Context(), method, path, strings.NewReader(form.Encode()))
	r.Header.Set("Accept-Encoding", "gzip")
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for pair := range slices.Chunk(headers, 2) {
		r.Header.Set(pair[0], pair[1])
	}
	r.AddCookie(&http.Cookie{Name: "headgate", Value: b.cookies[user]})
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	return w
}

// measure asks several times, prints how long it took, and fails if the answer is too large.
func (b *big) measure(user, method, path string, form url.Values, frame int) {
	b.t.Helper()
	begun := time.Now()
	plain := b.ask(user, method, path, form, "Accept-Encoding", "identity")
	first := time.Since(begun)
	var sent *httptest.ResponseRecorder
	var times []time.Duration
	for range 5 {
		begun := time.Now()
		sent = b.ask(user, method, path, form)
		times = append(times, time.Since(begun))
	}
	slices.Sort(times)
	what := fmt.Sprintf("%s %s as %s: %d, %d bytes, plain %d, first %s", method, path, user, sent.Code, sent.Body.Len(),
		plain.Body.Len(), first.Round(100*time.Microsecond))
	test.AtMost(b.t, what, times[2], quick)
	if sent.Code >= 500 || method == http.MethodPost && sent.Code != 200 {
		b.t.Errorf("%s %s as %s: %d: %.300s", method, path, user, plain.Code, plain.Body)
	}
	route, _, _ := strings.Cut(path, "?")
	size := sent.Body.Len()
	if strings.HasPrefix(sent.Header().Get("Content-Type"), "text/html") {
		size += frame
	}
	if size > slight && !slices.Contains(files, route) {
		b.t.Errorf("OVER: %s has %d bytes to send, at most %d", what, size, slight)
	}
}

// openBig fills a database and a Redis, and opens a console on them.
func openBig(t *testing.T, db string) *big {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	server := redistest.Start(t)
	c := config.Config{DB: db, Redis: &redis.UniversalOptions{Addrs: []string{server.Addr}, ContextTimeoutEnabled: true, DisableIdentity: true}}
	b := &big{t: t, cookies: map[string]string{}}
	var err error
	b.app, err = app.Open(t.Context(), c, quiet)
	b.must(err)
	t.Cleanup(func() { b.app.Close() })
	b.handler, err = handler(b.app, c, quiet)
	b.must(err)
	b.people()
	b.fill(db)
	client := redis.NewUniversalClient(c.Redis)
	defer client.Close()
	b.report(client)
	waitFor(t, "the policies to be published", func() bool { return b.app.Publisher.Status().Err == nil && b.published(client) })
	return b
}

func (b *big) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// waitFor waits for what happens in another goroutine.
func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within three minutes", what)
		case <-tick.C:
		}
	}
}

func (b *big) published(client redis.UniversalClient) bool {
	s, err := b.app.Instances.Load(b.t.Context(), "")
	return err == nil && len(s.Policies) == manyPolicies
}

// appName returns the name of an application: a to j.
func appName(i int) string { return string(rune('a' + i)) }

// policyName returns the name of a policy, whose application is that of its number's last digit.
func policyName(i int) string { return fmt.Sprintf("p%05d", i) }

// people adds the administrator, the owner of the application a, and all policies.
func (b *big) people() {
	b.t.Helper()
	ctx := b.t.Context()
	s := b.app.Service
	admin := b.logIn(service.FirstUser, b.app.OneTimePassword)
	var set policy.Set
	for i := range manyPolicies {
		l, err := core.ParseLimit("10/s")
		b.must(err)
		p := policy.Policy{Name: policyName(i), Apps: []string{appName(i % manyApps)}, Limit: l, Key: "ip",
			Description: fmt.Sprintf("Protects the resource number %d from callers that ask too often", i),
			Match:       policy.Match{Path: fmt.Sprintf("/p/%05d", i)}, Mode: []policy.Mode{policy.Enforce, policy.Shadow}[i/manyApps%2]}
		if i%50 == 0 {
			p.Ban = policy.Ban{After: "5/1m", For: "1m", Max: "1h"}
		}
		set = append(set, p)
	}
	data, err := policy.EncodeJSON(set)
	b.must(err)
	begun := time.Now()
	_, err = s.Import(ctx, admin, service.Import{Data: data, Format: service.JSON})
	b.must(err)
	b.t.Logf("%d policies were imported in %s", manyPolicies, time.Since(begun).Round(time.Millisecond))
	oneTime, err := s.CreateUser(ctx, admin, "owner")
	b.must(err)
	b.must(s.SetRole(ctx, admin, "owner", "a", service.Owner))
	b.logIn("owner", oneTime)
	hook, _, err := s.CreateWebhook(ctx, admin, service.WebhookDraft{Name: "ops", URL: "https://hook.example", Apps: []string{"a"},
		Conditions: []service.Condition{{Kind: service.AlertLost, Minutes: 1}}})
	b.must(err)
	b.hook = hook.ID
}

// logIn logs in a user with a one-time password, and changes the password.
func (b *big) logIn(user, oneTime string) service.Actor {
	b.t.Helper()
	ctx, s := b.t.Context(), b.app.Service
	session, err := s.Login(ctx, user, oneTime, service.Meta{Address: "192.0.2.1:1"})
	b.must(err)
	a, err := s.Authenticate(ctx, session.Token, service.Meta{})
	b.must(err)
	session, err = s.ChangePassword(ctx, a, oneTime, "nine quiet harbours")
	b.must(err)
	b.cookies[user] = session.Token
	a, err = s.Authenticate(ctx, session.Token, service.Meta{})
	b.must(err)
	return a
}

// fill writes traffic, audit rows, revisions and users.
func (b *big) fill(location string) {
	b.t.Helper()
	db := openSQL(b.t, location)
	defer db.Close()
	do := func(q string, args ...any) {
		b.t.Helper()
		if _, err := db.ExecContext(b.t.Context(), q, args...); err != nil {
			b.t.Fatalf("%s: %v", q, err)
		}
	}
	do("CREATE TABLE numbers (n BIGINT NOT NULL PRIMARY KEY)")
	do("INSERT INTO numbers VALUES (0)")
	for n := 1; n < manyAudits; n *= 2 {
		do("INSERT INTO numbers SELECT n + ? FROM numbers WHERE n + ? < ?", n, n, manyAudits)
	}
	for i := range manyApps {
		do("INSERT INTO traffic_series (app, policy) VALUES (?, '')", appName(i))
		do("INSERT INTO traffic_series (app, policy) SELECT app, policy FROM policy_apps WHERE app = ?", appName(i))
	}
	do("INSERT INTO traffic_series (app, policy) VALUES ('', '')")
	b.traffic(do)
	now := time.Now().UnixMicro()
	do("INSERT INTO audit (at, actor, via, action, object, outcome, body_before, body_after, request_id, address, note) "+
		"SELECT ? + n * 1000000, 'admin', 'session', 'policy.update', 'policy:p00001', 'done', '{\"limit\":\"10/s\"}', '{\"limit\":\"11/s\"}', 'r', '192.0.2.1', '' FROM numbers",
		now-manyAudits*1_000_000)
	do("INSERT INTO revisions (policy, version, at, actor, action, body_before, body_after, request_id, note) "+
		"SELECT r.policy, n.n + 2, ? + n.n * 60000000, r.actor, 'update', r.body_after, r.body_after, 'r', '' FROM revisions r JOIN numbers n ON n.n < ? "+
		"WHERE r.policy = 'p00000' AND r.version = 1", now-manyVersions*60_000_000, manyVersions)
	do("UPDATE policies SET version = ? WHERE name = 'p00000'", manyVersions+1)
	text := "CAST(1000 + n AS CHAR(8))"
	do("INSERT INTO users (name, password, administrator, disabled, must_change, created_at, created_by, password_at) "+
		"SELECT CONCAT('user-', "+text+"), 'x', 0, 0, 0, ?, 'admin', ? FROM numbers WHERE n < ?", now, now, manyUsers)
	do("INSERT INTO roles (user_name, app, role) SELECT u.name, a.name, 'viewer' FROM users u JOIN apps a WHERE u.name LIKE 'user-%'")
	b.t.Logf("%d series", count(b.t, db, "SELECT COUNT(*) FROM traffic_series"))
	b.t.Logf("%d rows of traffic", count(b.t, db, "SELECT COUNT(*) FROM traffic"))
	if strings.HasPrefix(location, "sqlite") {
		do("PRAGMA wal_checkpoint(TRUNCATE)")
	}
}

// traffic writes the rows of all levels. Requests were counted in every minute, as were the
// policies of the application a in the last hour and one in 25 in the last two days; one in ten
// in the last ten days; one in five in every hour of a month, and one in fifty in every hour of
// thirteen months; all of them on every day of thirteen months.
func (b *big) traffic(do func(q string, args ...any)) {
	b.t.Helper()
	now := time.Now().Unix() / 60
	counted := "900 + n.n % 7, 3, 0, n.n % 3, 0, 97, n.n % 2, 0, 0, 0, 0, 0, 0, 0"
	write := func(level, back int64, which string) {
		first := (now - back) / level * level
		do("INSERT INTO traffic (level, series, at, allowed, waited, degraded, shadow_refused, failed_open, refused, banned, impossible, "+
			"denied, queue_full, canceled, failed_closed, overruled, lost) SELECT ?, s.id, ? + n.n * ?, "+counted+
			" FROM (SELECT id FROM traffic_series WHERE "+which+" ORDER BY id) s CROSS JOIN numbers n WHERE n.n <= ?", level, first, level, (now-first)/level)
	}
	const keep = 400 * 1440
	number := "policy <> '' AND CAST(SUBSTR(policy, 2) AS DECIMAL)"
	write(14400, keep, "1 = 1")
	write(1440, keep, "1 = 1")
	write(60, keep, "policy = '' OR "+number+" % 500 < 10")
	write(60, 31*1440, number+" % 500 BETWEEN 10 AND 99")
	write(60, 24*60, number+" % 500 >= 100")
	write(10, 10*1440, "policy = '' OR "+number+" % 100 < 10")
	write(10, 180, "app = 'a' AND "+number+" % 100 >= 10")
	write(1, 2*1440, "policy = '' OR "+number+" % 250 < 10")
	write(1, 60, "app = 'a' AND "+number+" % 250 >= 10")
}

func count(t *testing.T, db *sql.DB, query string) (n int64) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// openSQL opens the database beside the console, for statements that write much.
func openSQL(t *testing.T, location string) *sql.DB {
	t.Helper()
	if path, ok := strings.CutPrefix(location, "sqlite://"); ok {
		db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(60000)&_pragma=synchronous(0)")
		if err != nil {
			t.Fatal(err)
		}
		db.SetMaxOpenConns(1)
		return db
	}
	u, err := url.Parse(location)
	if err != nil {
		t.Fatal(err)
	}
	c := my.NewConfig()
	c.Net, c.Addr, c.User, c.DBName = "tcp", u.Host, u.User.Username(), strings.TrimPrefix(u.Path, "/")
	c.Passwd, _ = u.User.Password()
	c.Collation = "utf8mb4_bin"
	c.InterpolateParams = true
	connector, err := my.NewConnector(c)
	if err != nil {
		t.Fatal(err)
	}
	return sql.OpenDB(connector)
}

// report has the instances report, and the counts and bans of the last minutes written.
func (b *big) report(client redis.UniversalClient) {
	b.t.Helper()
	ctx := b.t.Context()
	label, err := b.app.Instances.Version(ctx)
	b.must(err)
	stop, ended := make(chan struct{}), make(chan struct{})
	b.t.Cleanup(func() { close(stop); <-ended })
	first := make(chan error, 1)
	go func() { // as instances do, again and again
		defer close(ended)
		tick := time.NewTicker(8 * time.Second)
		defer tick.Stop()
		for {
			err := b.reportOnce(label)
			select {
			case first <- err:
			default:
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	b.must(<-first)
	b.counts(client)
}

func (b *big) reportOnce(label string) error {
	for i := range manyInstances {
		err := b.app.Instances.Report(context.WithoutCancel(b.t.Context()), policy.Instance{
			ID: fmt.Sprintf("node-%03d", i), Process: "process-" + strconv.Itoa(i), App: appName(i % manyApps), Version: label, Store: "store"})
		if err != nil {
			return err
		}
	}
	return nil
}

// counts writes the counts of the last minutes: of the application a in fifteen, and of the
// others in two.
func (b *big) counts(client redis.UniversalClient) {
	b.t.Helper()
	ctx := b.t.Context()
	now := time.Now()
	for i := range manyApps {
		app := appName(i)
		for ago := range map[bool]int{true: 15, false: 2}[app == "a"] {
			minute := now.Unix()/60 - int64(ago)
			fields := []any{"a", 900_000, "r", 97_000}
			for p := i; p < manyPolicies; p += manyApps {
				fields = append(fields, "a:"+policyName(p), 900+ago, "r:"+policyName(p), 97)
			}
			_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
				base := "hg:{stats:" + app + "}:"
				p.HSet(ctx, base+"minute:"+strconv.FormatInt(minute, 10), fields...)
				p.ZAdd(ctx, base+"changed", redis.Z{Score: float64(now.UnixMilli()), Member: minute})
				return nil
			})
			b.must(err)
		}
	}
}
