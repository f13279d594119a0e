package web

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/cmd/headgate-console/internal/webhook"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
	"github.com/headgate/headgate/store/redisstore"
)

func TestMain(m *testing.M) {
	fleetTime = patience
	test.Exit(m.Run())
}

// world is the console with the applications a and b, and people in it.
type world struct {
	*service.Service
	t     testing.TB
	db    *store.DB
	fleet *fakeFleet
	log   *strings.Builder
	url   string
	pages http.Handler
	admin service.Actor
	at    atomic.Pointer[time.Time] // the time of the service; nil means now

	hook string // the id of a webhook, in the matrix
}

func (w *world) now() time.Time {
	if at := w.at.Load(); at != nil {
		return *at
	}
	return time.Now()
}

// pass stops the service's clock, and moves it.
func (w *world) pass(d time.Duration) {
	at := w.now().Add(d)
	w.at.Store(&at)
}

// patience bounds a transaction, far above what a busy machine needs.
const patience = 3 * time.Minute

const password = "nine quiet harbours"

// newWorld changes the options before it makes the pages.
func newWorld(t testing.TB, change ...func(*Options)) *world {
	t.Helper()

	// A database in memory makes a test fast, and the long timeout keeps a busy machine from
	// failing it.
	db, err := store.Open(t.Context(), store.Options{URL: "sqlite://" + filepath.Join(test.MemoryDir(t),
		"console.db"), Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })

	fleet := &fakeFleet{used: map[string]int64{}, lent: map[string][]redisstore.Credit{}}
	w := &world{t: t, db: db, fleet: fleet, log: &strings.Builder{}}
	quiet := slog.New(slog.DiscardHandler)

	// Receivers of webhooks are local servers here, which the console would refuse otherwise. The
	// hash of passwords is cheap, as every test logs in.
	w.Service, err = service.New(service.Options{DB: db, Clock: w.now, Fleet: w.fleet,
		Sender: webhook.New(webhook.Options{Networks: webhook.NewNetworks(
			[]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})}),
		Passwords: auth.Cost{Memory: 8, Time: 1}, Logger: quiet})
	w.must(err)

	o := Options{Service: w.Service, Fleet: w.fleet, Logger: slog.New(slog.NewTextHandler(&locked{w: w.log}, nil))}
	for _, f := range change {
		f(&o)
	}
	w.pages, err = New(o)
	w.must(err)

	server := httptest.NewServer(w.pages)
	t.Cleanup(server.Close)
	w.url = server.URL

	// The first administrator gets the one-time password of a new console, and so a session by the
	// usual way.
	oneTime, err := w.Bootstrap(t.Context())
	w.must(err)
	w.admin = w.logIn(service.FirstUser, oneTime)
	for _, app := range []string{"a", "b"} {
		w.must(w.CreateApp(t.Context(), w.admin, app, "about "+app))
	}
	return w
}

// asAdmin returns a console, and the browser of its administrator.
func asAdmin(t testing.TB) (*world, *browser) {
	t.Helper()
	w := newWorld(t)
	return w, w.as("admin")
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// logIn logs in a user with a one-time password, and changes the password.
func (w *world) logIn(user, oneTime string) service.Actor {
	w.t.Helper()
	ctx := w.t.Context()
	s, err := w.Login(ctx, user, oneTime, service.Meta{Address: "192.0.2.1:1"})
	w.must(err)
	a, err := w.Authenticate(ctx, s.Token, service.Meta{})
	w.must(err)
	s, err = w.ChangePassword(ctx, a, oneTime, password)
	w.must(err)
	a, err = w.Authenticate(ctx, s.Token, service.Meta{})
	w.must(err)
	return a
}

// person adds a user with roles by application.
func (w *world) person(name string, roles map[string]service.Role) service.Actor {
	w.t.Helper()
	oneTime, err := w.CreateUser(w.t.Context(), w.admin, name)
	w.must(err)
	a := w.logIn(name, oneTime)
	for app, role := range roles {
		w.must(w.SetRole(w.t.Context(), w.admin, name, app, role))
	}
	return a
}

// add adds a policy.
func (w *world) add(p policy.Policy) policy.Policy {
	w.t.Helper()
	p, err := w.CreatePolicy(w.t.Context(), w.admin, p)
	w.must(err)
	return p
}

// policy adds a policy of the application a with the text of a limit.
func (w *world) policy(name, limit string) policy.Policy {
	w.t.Helper()
	l, err := core.ParseLimit(limit)
	w.must(err)
	return w.add(policy.Policy{Name: name, Apps: []string{"a"}, Limit: l, Key: "ip"})
}

// browser is a client of the pages, without JavaScript.
type browser struct {
	t      testing.TB
	url    string
	client *http.Client
	header http.Header // of every request
}

// answer is the answer to a request.
type answer struct {
	t      testing.TB
	status int
	header http.Header
	text   string
	doc    *html.Node
}

func (w *world) browser() *browser {
	jar, err := cookiejar.New(nil)
	w.must(err)
	transport := &http.Transport{}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &browser{t: w.t, url: w.url, client: &http.Client{
		Jar: jar, Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// as returns a browser in which the user is logged in.
func (w *world) as(user string) *browser {
	w.t.Helper()
	b := w.browser()
	if got := b.post("/login", url.Values{"name": {user}, "password": {password}}); got.status != http.StatusSeeOther {
		w.t.Fatalf("the log-in of %s was answered %d", user, got.status)
	}
	return b
}

func (b *browser) do(r *http.Request) *answer {
	b.t.Helper()

	maps.Copy(r.Header, b.header)
	resp, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()

	// The body is read to its end, so that the connection is used again.
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}

	// Every answer is parsed, as tests look at elements and not at the text.
	a := &answer{t: b.t, status: resp.StatusCode, header: resp.Header, text: string(body)}
	if a.doc, err = html.Parse(strings.NewReader(a.text)); err != nil {
		b.t.Fatal(err)
	}
	return a
}

func (b *browser) get(path string) *answer {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.url+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.do(r)
}

func (b *browser) post(path string, form url.Values) *answer {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return b.do(r)
}

// want fails unless the page has the status.
func (a *answer) want(status int) *answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("the status is %d and not %d: %s", a.status, status, a.text)
	}
	return a
}

// has fails unless the page has the texts.
func (a *answer) has(texts ...string) *answer {
	a.t.Helper()
	for _, text := range texts {
		if !strings.Contains(a.text, text) {
			a.t.Errorf("the page lacks %q: %s", text, a.text)
		}
	}
	return a
}

// lacks fails if the page has one of the texts.
func (a *answer) lacks(texts ...string) *answer {
	a.t.Helper()
	for _, text := range texts {
		if strings.Contains(a.text, text) {
			a.t.Errorf("the page has %q: %s", text, a.text)
		}
	}
	return a
}

// goes fails unless the answer sends the browser to a page.
func (a *answer) goes(to string) *answer {
	a.t.Helper()
	a.want(http.StatusSeeOther)
	if got := a.header.Get("Location"); got != to {
		a.t.Fatalf("it goes to %q and not to %q", got, to)
	}
	return a
}

// goesTo fails unless the answer sends the browser to a page whose address begins so.
func (a *answer) goesTo(prefix string) *answer {
	a.t.Helper()
	a.want(http.StatusSeeOther)
	if got := a.header.Get("Location"); !strings.HasPrefix(got, prefix) {
		a.t.Fatalf("it goes to %q and not to %q", got, prefix)
	}
	return a
}

// fakeFleet counts in memory.
type fakeFleet struct {
	mu     sync.Mutex
	used   map[string]int64 // by policy and key
	lent   map[string][]redisstore.Credit
	banned []core.Banned
	top    stats.Top
	away   error
	store  *redisstore.Store // of the keys; nil counts in memory

	// keys returns the keys of minutes; nil means that instances record none.
	keys func(ctx context.Context, app, policy string, from time.Time, n int) ([]topkeys.Summary, error)

	instances []policy.Instance // nil means the usual ones
}

func (f *fakeFleet) MinuteKeys(
	ctx context.Context, app, policy string, from time.Time, n int,
) ([]topkeys.Summary, error) {
	if f.keys == nil {
		return make([]topkeys.Summary, n), nil
	}
	return f.keys(ctx, app, policy, from, n)
}

func (f *fakeFleet) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	if f.store != nil {
		return f.store.Apply(ctx, ops, out)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, op := range ops {
		out[i] = f.decideLocked(op)
	}
	return f.away
}

func (f *fakeFleet) decideLocked(op core.Op) core.Decision {
	at := op.Rule + " " + op.Key
	switch op.Verb {
	case core.Peek:
		left, credit := op.Limit.Quota-f.used[at], int64(0)
		for _, c := range f.lent[at] {
			credit += c.Units
		}
		return core.Decision{Allowed: left+credit > 0, Remaining: left + credit, Credit: credit,
			ResetAfter: time.Minute}
	case core.Grant:
		f.lent[at] = append(f.lent[at], redisstore.Credit{Units: op.Cost, Until: op.CreditUntil})
	case core.Revoke:
		delete(f.lent, at)
	case core.Debit:
		f.used[at] += op.Cost
	case core.Reset:
		delete(f.used, at)
	case core.Impose:
		f.banned = append(f.banned,
			core.Banned{Rule: op.Rule, Key: op.Key, Until: midday.Add(op.Ban.For).UnixMicro()})
	case core.Lift:
		f.banned = slices.DeleteFunc(f.banned, func(b core.Banned) bool { return b.Rule == op.Rule && b.Key == op.Key })
	}
	return core.Decision{Allowed: true, Taken: op.Cost}
}

func (f *fakeFleet) Credits(ctx context.Context, id core.ID) ([]redisstore.Credit, error) {
	if f.store != nil {
		return f.store.Credits(ctx, id)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lent[id.Rule+" "+id.Key], f.away
}

func (f *fakeFleet) Bans(ctx context.Context, policies []string) (list []core.Banned, err error) {
	if f.store != nil {
		return f.store.Report().Bans(ctx, policies, 100)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.banned {
		if slices.Contains(policies, b.Rule) {
			list = append(list, b)
		}
	}
	return list, f.away
}

// Minutes implements service.Fleet. The other application has no counts.
func (f *fakeFleet) Minutes(_ context.Context, app string) ([]stats.Minute, error) {
	if app != "a" {
		return nil, f.away
	}
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return []stats.Minute{
		{Start: at, Policies: map[string]stats.Counts{"one": {events.Allowed: 30, events.Refused: 10,
			events.Banned: 6}, "": {events.FailedOpen: 2}},
			Requests: stats.Counts{events.Waited: 31, events.ShadowRefused: 7, events.Denied: 3}, Lost: 4},
		{Start: at.Add(time.Minute), Policies: map[string]stats.Counts{"one": {events.Waited: 20}}},
	}, f.away
}

// Instances implements service.Fleet.
func (f *fakeFleet) Instances(context.Context) ([]policy.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.instances != nil {
		return slices.Clone(f.instances), f.away
	}
	return []policy.Instance{{ID: "here-1", App: "a", Version: "7-abc", Process: "abc",
		ClockOffset: -90 * time.Second, Store: "local"}, {ID: "here-2", App: "a", Version: "6-old", Refused: "7-abc",
		Error: `policy "secret-launch": limit: wrong`}, {ID: "there", App: "b", Version: "7-abc"}}, f.away
}

func (f *fakeFleet) Version(context.Context) (string, error) { return "7-abc", f.away }

// locked is a writer for several goroutines.
type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}
