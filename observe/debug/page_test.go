package debug_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/html"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/debug"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/store/memstore"
)

// ask returns the answer of the page to a GET from this machine, as changed.
func ask(p http.Handler, target string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", target, nil)
	r.RemoteAddr, r.Host = "127.0.0.1:5000", "localhost:8080"
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

func report(t *testing.T, p http.Handler) debug.Report {
	t.Helper()
	w := ask(p, "/?format=json")
	var r debug.Report
	if err := json.Unmarshal(w.Body.Bytes(), &r); w.Code != 200 || err != nil {
		t.Fatalf("status %d, %v: %s", w.Code, err, w.Body)
	}
	return r
}

func newLimiter(t testing.TB, c limiter.Config) *limiter.Limiter {
	t.Helper()
	l, err := limiter.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func rules(text string) []limiter.Rule {
	return []limiter.Rule{{Name: "api", Limit: core.MustParseLimit(text)}}
}

func TestLocal(t *testing.T) {
	for _, row := range []struct {
		peer, host, header string
		want               bool
	}{
		// Both ends have to be this machine: the peer's address, and the name under which the page
		// was asked for.
		{"127.0.0.1:1", "127.0.0.1:8080", "", true},
		{"127.8.9.1:1", "localhost", "", true},
		{"[::1]:1", "[::1]:8080", "", true},
		{"[::1]:1", "[::1]", "", true},
		{"[::ffff:127.0.0.1]:1", "LOCALHOST:1", "", true},
		{"192.0.2.1:1", "localhost", "", false},
		{"[::ffff:192.0.2.1]:1", "localhost", "", false},
		{"@", "localhost", "", false},
		{"", "localhost", "", false},
		// A name that leads here by DNS is one that a stranger may have chosen.
		{"127.0.0.1:1", "", "", false},
		{"127.0.0.1:1", "evil.example:8080", "", false},
		{"127.0.0.1:1", "127.0.0.1.evil.example", "", false},
		{"127.0.0.1:1", "localhost.evil.example", "", false},
		{"127.0.0.1:1", "192.0.2.1", "", false},
		{"127.0.0.1:1", "0x7f.1", "", false},
		// Any header of a proxy says that the client is somewhere else, whatever its value.
		{"127.0.0.1:1", "localhost", "X-Forwarded-For", false},
		{"127.0.0.1:1", "localhost", "forwarded", false},
		{"127.0.0.1:1", "localhost", "X-Real-IP", false},
		{"127.0.0.1:1", "localhost", "Via", false},
		{"127.0.0.1:1", "localhost", "CF-Connecting-IP", false},
		{"127.0.0.1:1", "localhost", "User-Agent", true},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr, r.Host = row.peer, row.host
		if row.header != "" {
			r.Header.Set(row.header, "")
		}
		if got := debug.Local(r); got != row.want {
			t.Errorf("from %q to %q with %q: %v, want %v", row.peer, row.host, row.header, got, row.want)
		}

		// The page goes by Local, and shows nothing of the limiters to others.
		code := 403
		if row.want {
			code = 200
		}

		w := httptest.NewRecorder()
		debug.Handler().ServeHTTP(w, r)
		if w.Code != code || code == 403 && strings.Contains(w.Body.String(), "Limiters") {
			t.Errorf("from %q to %q with %q: %d %s", row.peer, row.host, row.header, w.Code, w.Body)
		}
	}
}

func TestPageAllow(t *testing.T) {
	p := &debug.Page{Allow: func(r *http.Request) bool { return r.Header.Get("X-Admin") == "yes" }}
	remote := func(r *http.Request) { r.RemoteAddr, r.Host = "192.0.2.1:1", "api.example.com" }
	if w := ask(p, "/", remote); w.Code != 403 {
		t.Errorf("without permission %d", w.Code)
	}
	if w := ask(p, "/", remote, func(r *http.Request) { r.Header.Set("X-Admin", "yes") }); w.Code != 200 {
		t.Errorf("with permission %d", w.Code)
	}
}

func TestPageForms(t *testing.T) {
	p := debug.Handler(nil)
	accept := func(lines ...string) func(*http.Request) { return func(r *http.Request) { r.Header["Accept"] = lines } }
	const isHTML, isJSON, isText = "text/html; charset=utf-8", "application/json", "text/plain; charset=utf-8"
	for _, row := range []struct {
		target string
		change func(*http.Request)
		code   int
		kind   string
	}{
		// The form is the client's choice by Accept, HTML before the others.
		{"/", accept(), 200, isHTML},
		{"/", accept("*/*"), 200, isHTML},
		{"/", accept("application/json"), 200, isJSON},
		{"/", accept("text/plain", "application/json;q=0.5"), 200, isJSON},
		{"/", accept("text/html,application/json"), 200, isHTML},
		{"/?format=html", accept("application/json"), 200, isHTML},
		{"/?format=json", accept("text/html"), 200, isJSON},
		// The parameter goes before Accept, and is not echoed when it is wrong.
		{"/?format=%3Cscript%3E", accept(), 400, isText},
		{"/", func(r *http.Request) { r.Method = "HEAD" }, 200, isHTML},
		{"/", func(r *http.Request) { r.Method = "POST" }, 405, isText},
	} {
		w := ask(p, row.target, row.change)
		if w.Code != row.code || w.Header().Get("Content-Type") != row.kind ||
			strings.Contains(w.Body.String(), "<script") {
			t.Errorf("%s: %d %s: %s", row.target, w.Code, w.Header(), w.Body)
		}

		// Every answer forbids to be kept, framed, and read by other sites, errors too.
		for name, want := range map[string]string{"Cache-Control": "no-store",
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
			"Cross-Origin-Resource-Policy": "same-origin", "Referrer-Policy": "no-referrer"} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", row.target, name, got, want)
			}
		}
	}
}

// The page needs no more than its security policy allows: the style that it holds.
func TestPageSecurityPolicy(t *testing.T) {
	w := ask(debug.Handler(), "/")
	policy := w.Header().Get("Content-Security-Policy")
	style := ""
	for _, n := range nodes(t, w.Body.String()) {
		if n.Type == html.ElementNode && n.Data == "style" {
			style += n.FirstChild.Data
		}
	}
	if want := "default-src 'none'; style-src 'sha256-" + sha256Of(style) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"; policy != want {
		t.Errorf("the policy is %q, want %q", policy, want)
	}
}

// hostile are keys that would do harm if they were not inert.
var hostile = []string{
	"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "</code></td></tr></table><h1>owned</h1>",
	"&lt;b&gt;", "{{.At}}",
	"\x00\x01\x1b[31mred\x07", "line\r\nbreak", "\u202egnp.exe\u202c", "\u2066\u2069\u200b\ufeff",
	"e\u0301\u0302\u0303\u0304\u0305",
	"\xff\xfe\xc0\x80", "javascript:alert(1)", "<!--", "]]>", "<style>*{display:none}</style>", "'", "`${1}`",
	"\u2028\u2029",
	strings.Repeat("<b>", 4000), strings.Repeat("\u202e", 3000), strings.Repeat("x", 10_000), "", " ",
	"<svg/onload=alert(1)>",
}

func TestPageHostileKeys(t *testing.T) {
	for _, key := range hostile {
		checkInert(t, key)
	}
}

func FuzzPage(f *testing.F) {
	for _, key := range hostile {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) { checkInert(t, key) })
}

// checkInert fails unless a page with the key, and an error with the same text, has the elements of
// a page with harmless ones, and no character outside of ASCII.
func checkInert(t *testing.T, key string) {
	t.Helper()
	body := pageWith(t, key)
	for i, c := range []byte(body) {
		if c >= 0x7f || c < ' ' && c != '\n' {
			t.Fatalf("%.80q: the byte %#x at %d", key, c, i)
		}
	}

	// The same elements in the same order: the key is nothing but text.
	got, want := shape(t, body), shape(t, pageWith(t, "harmless"))
	if !slices.Equal(got, want) {
		t.Errorf("%.80q changes the page", key)
	}

	// A short key of letters is shown as it is, between quotes and escaped.
	if len(key) <= 40 && utf8Text(key) && !strings.Contains(text(t, body), strconv.QuoteToASCII(key)) {
		t.Errorf("%q is not shown", key)
	}
}

func utf8Text(s string) bool { return strings.ToValidUTF8(s, "") == s }

// pageWith returns a page of a limiter that has refused the key, and an error with its text.
func pageWith(t *testing.T, key string) string {
	t.Helper()

	l, err := limiter.New(limiter.Config{Top: 5, Rules: rules("1/1h"), Logger: discard})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	// The second request is refused, so that the key is in the list of the refused.
	for range 2 {
		if _, err := l.Take(t.Context(), key, 1); err != nil {
			t.Fatal(err)
		}
	}

	// A second limiter has an error with the same text.
	down, err := limiter.New(limiter.Config{Top: 5, Rules: rules("1/1h"), Logger: discard,
		Store: &telling{err: errors.New("about " + key)}})
	if err != nil {
		t.Fatal(err)
	}
	defer down.Close()

	_, _ = down.Take(t.Context(), key, 1) // which fails
	w := ask(debug.Handler(l, down), "/")
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// telling is a store that fails and tells so.
type telling struct {
	err error
	events.Listeners
}

func (s *telling) Report() events.Report { return events.Report{Listen: s.Add, Status: s.status} }

func (s *telling) status(list []events.StoreStatus) []events.StoreStatus {
	return append(list, events.StoreStatus{Store: "failover", Mode: events.PassesUndecided,
		Away: []string{s.err.Error()}, Cause: s.err})
}

// nodes returns the nodes of a page in their order.
func nodes(t *testing.T, body string) (list []*html.Node) {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}

	var walk func(*html.Node)
	walk = func(n *html.Node) {
		list = append(list, n)
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			walk(c)
		}
	}
	walk(doc)
	return list
}

// shape returns the tags, attributes and comments of a page.
func shape(t *testing.T, body string) (list []string) {
	t.Helper()
	for _, n := range nodes(t, body) {
		// The text of a page may differ, but nothing that a browser acts upon.
		switch n.Type {
		case html.ElementNode:
			tag := n.Data
			for _, a := range n.Attr {
				tag += " " + a.Key + "=" + a.Val
			}
			list = append(list, tag)
		case html.CommentNode:
			list = append(list, "a comment")
		}
	}
	return list
}

// text returns the text of a page.
func text(t *testing.T, body string) string {
	t.Helper()
	var b strings.Builder
	for _, n := range nodes(t, body) {
		if n.Type == html.TextNode {
			b.WriteString(n.Data)
		}
	}
	return b.String()
}

func TestReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A rule of 2 requests that refuses the third, and one of 1 that is still at its first
		// ban's strikes.
		api, login := rules("2/1h burst=2")[0], limiter.Rule{Name: "login",
			Limit: core.MustParseLimit("1/1h fixed-window"),
			Ban:   core.MustParseBan("3/5m for 1m max 1h"), OnStoreError: limiter.FailClosed}
		l, err := limiter.New(limiter.Config{Top: 2, Rules: []limiter.Rule{api, login}, MaxWaiters: 7, Logger: discard})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now().UTC()

		// Two keys ask three times, a second apart, which the times in the report show.
		for range 3 {
			for _, key := range []string{"ann", "bob"} {
				if _, err := l.Take(t.Context(), key, 1); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
		}

		// A limiter that is nil is left out, and takes its name with it.
		p := &debug.Page{Limiters: []*limiter.Limiter{nil, l}, Names: []string{"none", "front"}}
		got := report(t, p)
		if !got.At.Equal(begun.Add(3*time.Second)) || len(got.Limiters) != 1 {
			t.Fatalf("report %+v", got)
		}

		one := got.Limiters[0]
		same(t, "limiter", []any{one.Name, one.Since, one.MayWait, one.Closed, one.TopIsKept,
			one.Answers.Store}, []any{"front", begun, 7, false, true, "ok"})

		// The fourth refusal of login is the last; the first came a second after the beginning.
		later := begun.Add(time.Second)
		same(t, "refusing", []any{one.Answers.Refusing},
			[]any{[]debug.Refusing{{Rule: "login", Requests: 4, Since: later, TopKey: `"ann"`}}})
		r := one.Rules[1]
		same(t, "rule", []any{r.Limit, r.Words, r.OnStoreError, r.Ban, r.Verdicts}, []any{"1/1h fixed-window",
			"1 request an hour, counted in windows that begin with a request", "closed",
			"after 3 refusals within 5m0s, for 1m0s, at most 1h0m0s",
			map[string]int64{"allowed": 2, "refused": 4}})
		same(t, "refused", []any{r.Refused}, []any{debug.Keys{From: later, Requests: 4, Keys: []debug.Key{
			{Key: `"ann"`, AtLeast: 2, AtMost: 2, Since: later}, {Key: `"bob"`, AtLeast: 2, AtMost: 2, Since: later}}}})
		same(t, "stores", []any{len(one.Stores), one.Stores[0].Store, one.Stores[0].Counts["keys"]},
			[]any{1, "memory", int64(4)})
		if err := l.Close(); err != nil || !report(t, p).Limiters[0].Closed {
			t.Errorf("after Close: %v", err)
		}
	})
}

// The page calls a limiter as the program of the page does, or as that of the limiter, or by
// its number.
func TestNamesOfLimiters(t *testing.T) {
	var all []*limiter.Limiter

	// Two limiters have one name, and the third none.
	for _, name := range []string{"api", "api", ""} {
		l := limiter.MustNew(limiter.Config{Name: name, Logger: slog.New(slog.DiscardHandler),
			Store: memstore.MustNew(memstore.Options{}), Rules: []limiter.Rule{
				{Name: "r", Key: keyfuncs.Global, Limit: core.MustParseLimit("1/1h")}}})
		defer l.Close()
		all = append(all, l)
	}

	var names []string
	for _, l := range report(t, &debug.Page{Limiters: all, Names: []string{"front"}}).Limiters {
		names = append(names, l.Name)
	}
	same(t, "names", []any{names}, []any{[]string{"front", "api", "3"}})
}
