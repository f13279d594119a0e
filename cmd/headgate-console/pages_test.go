package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/app"
	"github.com/headgate/headgate/cmd/headgate-console/internal/mariadbtest"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy/stats"
)

const (
	// quick is the longest time in which the console answers, apart from the network.
	quick = 100 * time.Millisecond

	// slight is the largest number of bytes of an answer as it is sent: of a page together with
	// its style and its script.
	slight = 100_000

	// polled is the largest number of bytes, as it is sent, of a part of a page that a browser
	// asks for every second.
	polled = 5000
)

// These are the sizes of the console that TestPagesAreQuick asks.
const (
	manyApps      = 10
	manyPolicies  = 10_000
	manyInstances = 200
	manyUsers     = 1000
	manyAudits    = 200_000
	manyVersions  = 1000 // of the policy that was changed most
	manyDeleted   = 20_000
	manyBans      = 6000
	manyHooks     = 30
)

// files are the routes whose answers are saved as files, of any size.
var files = []string{"/export", "/audit/export", "/api/export", "/api/traffic/csv", "/api/overrides"}

// variants are the queries with which routes are asked, apart from none.
var variants = map[string][]string{
	"/":                         {"range=15m", "app=a", "app=a&range=15m", "app=a&range=6h", "app=a&range=24h", "app=a&range=7d", "app=a&range=30d", "range=30d"},
	"/live":                     {"app=a", "app=a&range=15m", "app=a&range=30d", "range=30d"},
	"/policies":                 {"page=100", "search=p00", "search=nothing+like+it", "app=a", "mode=shadow", "sort=-updated", "sort=-share", "sort=refused&page=100", "refusing=now", "refusing=now&sort=-share", "app=a&mode=shadow&search=9&sort=priority"},
	"/policies/{name}":          {"range=7d", "range=30d"},
	"/policies/{name}/live":     {"range=30d"},
	"/deleted":                  {"page=2", "page=400"},
	"/audit":                    {"actor=admin", "action=nothing", "object=policy:p00000", "outcome=refused", "since=2026-01-01&action=policy.update"},
	"/export":                   {"app=a", "format=json"},
	"/keys/live":                {"app=a&view=banned", "app=a&view=banned&policy=p00000"},
	"/keys":                     {"app=a", "view=banned&policy=p00000", "policy=p00000&key=192.0.2.1"},
	"/api/policies":             {"per_page=100", "app=a&search=9", "sort=-refused", "refusing=true"},
	"/api/traffic":              {"app=a", "app=a&policy=p00000"},
	"/api/traffic/policies":     {"app=a"},
	"/validate":                 {"name=p&apps=a&quota=10&period=1&unit=m"},
	"/drawing.svg":              {"limit=10/s"},
	"/new":                      {"from=p00000"},
	"/apps/delete":              {"name=a"},
	"/alerts":                   {"webhook=new", "webhook={webhook}"},
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
	actors  map[string]service.Actor // the administrator and the owner of the application a
	cookies map[string]string        // the session's token by user
	hook    string                   // the id of a webhook
	frame   int                      // bytes of the style and the script
	polls   []string                 // the paths of what pages ask for by themselves
	more    int64                    // grows with each collection
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

	// The style and the script come with every page at first, so they count for its size.
	for _, file := range []string{"/static/style.css", "/static/live.js"} {
		b.frame += b.ask(get(service.FirstUser, file)).Body.Len()
	}
	t.Logf("the style and the script have %d bytes", b.frame)

	for user := range b.actors {
		for _, path := range b.paths() {
			b.measure(get(user, path))
		}
		b.measureCounted(user)

		// This policy was deleted, and its history is that of a name out of thousands.
		b.measure(get(user, "/policies/d10000/history"))
		b.measure(post(user, "/keys/try", url.Values{"app": {"a"}, "method": {"GET"}, "path": {"/p/00000"},
			"address": {"192.0.2.1"}}))
		b.measureImports(user)
	}
}

// measureImports asks what imports would do: of all policies that the user sees as they are, with
// another limit each, and with a mistake in each.
func (b *big) measureImports(user string) {
	b.t.Helper()
	export := b.ask(get(user, "/export?format=json"), "Accept-Encoding", "identity").Body.String()
	for _, limit := range []string{`"10/1s"`, `"11/1s"`, `"often"`} {
		data := strings.ReplaceAll(export, `"limit": "10/1s"`, `"limit": `+limit)
		if strings.Count(data, limit) < manyPolicies/manyApps {
			b.t.Fatalf("the export of %s has no policies with the limit %s", user, limit)
		}
		q := b.upload(user, "/import", "policies.json", data)
		q.what = "with the limit " + limit
		b.measure(q)
	}
}

// counted are the pages that show counts, which the console adds up anew after each collection.
var counted = []string{"/", "/live", "/?app=a&range=24h", "/live?app=a&range=30d", "/policies", "/policies?sort=-share", "/policies?sort=refused&page=100",
	"/policies?refusing=now", "/policies/p00000", "/policies/p00000/live"}

// measureCounted asks the pages that show counts, each as the first one after a minute of all
// policies of the application a was collected.
func (b *big) measureCounted(user string) {
	b.t.Helper()
	m := stats.Minute{Start: time.Now().Add(-3 * time.Minute).Truncate(time.Minute),
		Policies: map[string]stats.Counts{}}

	// Five times, of which the middle counts: a single pause of the machine makes no test fail.
	for _, path := range counted {
		var times []time.Duration
		for range 5 {
			// New counts are what makes the sums of before useless.
			b.more++
			for i := 0; i < manyPolicies; i += manyApps {
				m.Policies[policyName(i)] = stats.Counts{events.Allowed: 10_000 + b.more, events.Refused: 1000 + b.more}
			}
			b.must(b.app.Service.Ledger().Record(b.t.Context(), "a", m))

			begun := time.Now()
			b.ask(get(user, path))
			times = append(times, time.Since(begun))
		}

		slices.Sort(times)
		test.AtMost(b.t, fmt.Sprintf("GET %s as %s, each time the first after a collection, least %s", path, user,
			rounded(times[0])), times[2], quick)
	}
}

// paths are the addresses of all routes to GET, as the sources list them.
func (b *big) paths() (list []string) {
	b.t.Helper()
	values := strings.NewReplacer("{$}", "", "{name}", "p00000", "{app}", "a", "{user}", "owner", "{version}", "2",
		"{webhook}", b.hook)

	for _, route := range b.routes() {
		route = strings.TrimSuffix(route, "{$}")
		path := values.Replace(route)
		if strings.HasPrefix(route, "/users/") {
			path = "/users/owner"
		}
		if strings.Contains(path, "{") {
			b.t.Errorf("no value for a part of %s", route)
		}

		if !slices.Contains(onlyWithQuery, route) {
			list = append(list, path)
		}
		for _, q := range variants[route] {
			list = append(list, path+"?"+values.Replace(q))
		}
	}
	return list
}

// listed is a page in the list of the source, and whether pages ask for it by themselves.
var listed = regexp.MustCompile(`pattern: "GET (/[^"]*)", answer: \w+(?:, open: true)?(, poll: true)?`)

// routes are the paths to GET: of the pages as the source lists them, and of the API as it
// describes itself, so that a new one is asked without an entry here.
func (b *big) routes() (list []string) {
	b.t.Helper()
	b.polls = nil
	text, err := os.ReadFile("internal/web/routes.go")
	b.must(err)
	for _, f := range listed.FindAllStringSubmatch(string(text), -1) {
		list = append(list, f[1])
		if f[2] != "" {
			b.polls = append(b.polls, strings.ReplaceAll(f[1], "{name}", "p00000"))
		}
	}
	pages := len(list)

	var described struct {
		Paths map[string]map[string]any
	}
	answer := b.ask(get(service.FirstUser, "/api/openapi.json"), "Accept-Encoding", "identity")
	b.must(json.Unmarshal(answer.Body.Bytes(), &described))
	for path, operations := range described.Paths {
		if operations["get"] != nil {
			list = append(list, path)
		}
	}
	if pages < 20 || len(list)-pages < 15 || len(b.polls) < 5 {
		b.t.Fatalf("there are %d routes to GET of pages, of which %d are polled, and %d in all",
			pages, len(b.polls), len(list))
	}
	return list
}

// question is a request of a user.
type question struct {
	user, method, path string
	kind, body         string // the type of the body
	what               string // more words about it, or ""
	status             int    // of the answer; 0 for any below 500
}

func get(user, path string) question {
	return question{user: user, method: http.MethodGet, path: path}
}

func post(user, path string, form url.Values) question {
	return question{user: user, method: http.MethodPost, path: path, kind: "application/x-www-form-urlencoded",
		body: form.Encode(), status: http.StatusOK}
}

// upload sends a file in a form.
func (b *big) upload(user, path, name, data string) question {
	b.t.Helper()
	var body strings.Builder
	m := multipart.NewWriter(&body)
	f, err := m.CreateFormFile("file", name)
	b.must(err)
	_, err = io.WriteString(f, data)
	b.must(errors.Join(err, m.Close()))
	return question{user: user, method: http.MethodPost, path: path, kind: m.FormDataContentType(), body: body.String()}
}

func (b *big) ask(q question, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(b.t.Context(), q.method, q.path, strings.NewReader(q.body))
	r.Header.Set("Accept-Encoding", "gzip")
	if q.kind != "" {
		r.Header.Set("Content-Type", q.kind)
	}
	for pair := range slices.Chunk(headers, 2) {
		r.Header.Set(pair[0], pair[1])
	}
	r.AddCookie(&http.Cookie{Name: "headgate", Value: b.cookies[q.user]})
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	return w
}

func rounded(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

var brought = regexp.MustCompile(`name="packed" value="([^"]*)"`)

// measure asks several times, prints how long it took, and fails if the answer is too large.
func (b *big) measure(q question) {
	b.t.Helper()

	// The first answer is uncompressed and may fill caches; it is printed, and not judged.
	begun := time.Now()
	plain := b.ask(q, "Accept-Encoding", "identity")
	first := time.Since(begun)

	var sent *httptest.ResponseRecorder
	var times []time.Duration
	for range 5 {
		begun := time.Now()
		sent = b.ask(q)
		times = append(times, time.Since(begun))
	}

	slices.Sort(times)
	what := fmt.Sprintf("%s %s %s as %s: %d, %d bytes, plain %d, first %s, least %s",
		q.method, q.path, q.what, q.user,
		sent.Code, sent.Body.Len(), plain.Body.Len(), rounded(first), rounded(times[0]))
	test.AtMost(b.t, what, times[2], quick)

	if sent.Code >= 500 || q.status != 0 && sent.Code != q.status {
		b.t.Errorf("%s %s as %s: %d: %.300s", q.method, q.path, q.user, plain.Code, plain.Body)
	}

	route, _, _ := strings.Cut(q.path, "?")
	if n := sent.Body.Len(); n > polled && slices.Contains(b.polls, route) {
		b.t.Errorf("OVER: %s has %d bytes to send every second, at most %d", what, n, polled)
	}

	// What a browser has to load for the page is its answer and the frame.
	size := sent.Body.Len()
	if strings.HasPrefix(sent.Header().Get("Content-Type"), "text/html") {
		size += b.frame
	}

	// The plan of an import brings the import back, for the form that confirms it.
	if m := brought.FindSubmatch(sent.Body.Bytes()); m != nil {
		size -= len(m[1])
	}
	if size > slight && !slices.Contains(files, route) {
		b.t.Errorf("OVER: %s has %d bytes to send, at most %d", what, size, slight)
	}
}
