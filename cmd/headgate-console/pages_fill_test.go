package main

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	my "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/headgate-console/internal/app"
	"github.com/headgate/headgate/cmd/headgate-console/internal/config"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/cmd/headgate-console/internal/webhook"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/policy"
)

// openBig fills a database and a Redis, and opens a console on them. The database is filled
// without Redis, so that no counts are collected or pruned meanwhile.
func openBig(t *testing.T, db string) *big {
	t.Helper()
	server := redistest.Start(t)
	c := config.Config{DB: db, Webhooks: webhook.NewNetworks([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})}
	b := &big{t: t, cookies: map[string]string{}}

	b.open(c)
	t.Cleanup(func() { b.app.Close() })
	b.people()
	b.fill(db)

	// All is filled in by now, and the console starts again with Redis.
	b.must(b.app.Close())
	c.Redis = &redis.UniversalOptions{Addrs: []string{server.Addr}, ContextTimeoutEnabled: true, DisableIdentity: true}
	b.open(c)

	client := redis.NewUniversalClient(c.Redis)
	defer client.Close()
	waitFor(t, "the policies to be published",
		func() bool { return b.app.Publisher.Status().Err == nil && b.published(client) })

	b.report(client)
	b.ban()
	b.alert()
	b.collect()
	return b
}

// collect waits until the counts in Redis are collected, as they are in a console that has run for
// more than a minute.
func (b *big) collect() {
	b.t.Helper()
	ledger, last := b.app.Service.Ledger(), appName(manyApps-1)
	until := func() time.Time {
		at, err := ledger.Collected(b.t.Context(), last)
		b.must(err)
		return at
	}
	before := until()
	waitFor(b.t, "the counts to be collected", func() bool { return until().After(before) })
}

func (b *big) open(c config.Config) {
	b.t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	var err error
	b.app, err = app.Open(b.t.Context(), c, quiet)
	b.must(err)
	b.handler, err = handler(b.app, c, quiet)
	b.must(err)
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

	// Tens of policies are enforced and in shadow in turn, and one in fifty bans.
	var set policy.Set
	for i := range manyPolicies {
		l, err := core.ParseLimit("10/s")
		b.must(err)
		p := policy.Policy{
			Name:        policyName(i),
			Apps:        []string{appName(i % manyApps)},
			Limit:       l,
			Key:         "ip",
			Description: fmt.Sprintf("Resource %d", i),
			Match:       policy.Match{Path: fmt.Sprintf("/p/%05d", i)},
			Mode:        []policy.Mode{policy.Enforce, policy.Shadow}[i/manyApps%2],
		}
		if i%50 == 0 {
			p.Ban = core.MustParseBan("5/1m for 1m max 1h")
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
	b.actors = map[string]service.Actor{service.FirstUser: admin, "owner": b.logIn("owner", oneTime)}
}

// ban bans keys: half of them under one policy.
func (b *big) ban() {
	b.t.Helper()
	ctx := b.t.Context()
	banning, err := b.app.Service.PoliciesOf(ctx, b.actors[service.FirstUser], "")
	b.must(err)
	banning = slices.DeleteFunc(banning, func(p policy.Policy) bool { return p.Ban == core.Ban{} })

	var names []string
	for i := range manyBans {
		p := banning[0]

		// Half of the keys are under the first policy, for the page of a policy with very many
		// bans.
		if i%2 == 1 {
			p = banning[i%len(banning)]
		}
		op := core.Op{Verb: core.Impose, Rule: p.Name, Key: fmt.Sprintf("2001:db8:%x::%x", i, i), Limit: p.Limit}
		op.Ban = p.Ban.OrNil()
		op.Ban.For, op.Ban.Max = time.Hour, time.Hour
		b.must(b.app.Fleet.Apply(ctx, []core.Op{op}, make([]core.Decision, 1)))
	}

	for _, p := range banning {
		names = append(names, p.Name)
	}
	waitFor(b.t, "the bans to be listed", func() bool {
		list, err := b.app.Fleet.Bans(ctx, names)
		return err == nil && len(list) == manyBans
	})
}

// alert adds webhooks, half of them for all applications, and waits until alerts stand.
func (b *big) alert() {
	b.t.Helper()

	ctx, admin := b.t.Context(), b.actors[service.FirstUser]
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	b.t.Cleanup(receiver.Close)

	for i := range manyHooks {
		d := service.WebhookDraft{
			Name:    fmt.Sprintf("The team number %d", i),
			URL:     receiver.URL,
			Enabled: true,
			All:     i%2 == 1,
			Conditions: []service.Condition{
				{Kind: service.AlertBypassed},
				{Kind: service.AlertPolicies},
			},
		}
		if !d.All {
			d.Apps = []string{"a"}
		}
		hook, _, err := b.app.Service.CreateWebhook(ctx, admin, d)
		b.must(err)
		if i == 0 {
			b.hook = hook.ID
		}
	}
	waitFor(b.t, "alerts to stand", func() bool {
		list, err := b.app.Service.Webhooks(ctx, admin)
		standing := 0
		for _, hook := range list {
			standing += len(hook.Standing)
		}

		// Every second webhook has two alerts of each application.
		return err == nil && standing == manyHooks/2*2*(manyApps+1)
	})
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
	b.deleted(do, now)

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

// deleted writes policies that were created and deleted, one a minute.
func (b *big) deleted(do func(q string, args ...any), now int64) {
	b.t.Helper()
	const name, at = "CONCAT('d', CAST(10000 + n.n AS CHAR(8)))", "? - n.n * 60000000"
	body := "REPLACE(r.body_after, 'p00000', " + name + ")"
	from := " FROM revisions r JOIN numbers n ON n.n < ? WHERE r.policy = 'p00000' AND r.version = 1"
	columns := "INSERT INTO revisions (policy, version, at, actor, action, body_before, body_after, request_id, note) SELECT " + name
	do(columns+", 1, "+at+", r.actor, 'create', '', "+body+", 'r', ''"+from, now-60_000_000, manyDeleted)
	do(columns+", 2, "+at+", r.actor, 'delete', "+body+", '', 'r', ''"+from, now, manyDeleted)
	do("INSERT INTO deleted_policies (policy, version, at) SELECT policy, version, at FROM revisions WHERE body_after = ''")
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

	// Reports of instances expire, so a single one would be gone before the last page was asked
	// for.
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
		report := policy.Instance{
			ID: fmt.Sprintf("node-%03d", i), Process: "process-" + strconv.Itoa(i), App: appName(i % manyApps), Version: label, Store: "store"}
		if i/manyApps%4 == 0 { // is not well
			report.Version, report.Refused, report.Store = "an older one", label, "local"
		}
		if err := b.app.Instances.Report(context.WithoutCancel(b.t.Context()), report); err != nil {
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

	// A minute of all policies of an application is a single hash, as instances write it.
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
				p.ZAdd(ctx, base+"changed",
					redis.Z{Score: float64(min(now.UnixMilli(), (minute+1)*60_000)), Member: minute})
				return nil
			})
			b.must(err)
		}
	}
}
