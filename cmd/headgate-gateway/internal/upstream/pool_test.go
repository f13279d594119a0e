package upstream

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/freeport"
	"github.com/headgate/headgate/policy"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

// server starts a server and returns its address.
func server(t *testing.T, h http.HandlerFunc) *url.URL {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// named is a server that answers with a name.
func named(t *testing.T, name string) *url.URL {
	t.Helper()
	return server(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, name) })
}

// closed is an address that refuses connections.
func closed(t *testing.T) *url.URL {
	t.Helper()
	return &url.URL{Scheme: "http", Host: freeport.Addr(t)}
}

// table starts a table of upstreams.
func table(t *testing.T, list ...Options) *Table {
	t.Helper()
	for i := range list {
		list[i].ConnectTimeout, list[i].HeaderTimeout = time.Minute, time.Minute
	}
	made, err := New(list, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	made.Start(nil)
	t.Cleanup(func() { made.Close(nil) })
	return made
}

// one starts a single upstream.
func one(t *testing.T, o Options) *Pool {
	t.Helper()
	o.Name = "up"
	return table(t, o).pools[0]
}

// ask sends a request as the proxy does, and returns the call, which has ended, and the answer.
func ask(t *testing.T, p *Pool, method string, body io.Reader) (c *Call, answer string, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, p.Target().String()+"/", body)
	if err != nil {
		t.Fatal(err)
	}

	c = &Call{}
	defer c.End()
	res, err := p.Do(r, c)
	if err != nil {
		return c, "", err
	}

	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}

	return c, fmt.Sprint(res.StatusCode, " ", string(text)), nil
}

func TestAddressesTakeTurns(t *testing.T) {
	a, b := named(t, "a"), named(t, "b")
	for _, balance := range []Balance{Least, RoundRobin} {
		p := one(t, Options{Addresses: []*url.URL{a, b}, Balance: balance})
		got := ""
		for range 6 {
			_, text, _ := ask(t, p, "GET", nil)
			got += strings.TrimPrefix(text, "200 ")
		}
		if got != "bababa" {
			t.Errorf("balance %d: %s", balance, got)
		}
	}
}

// Of two addresses the one that is busy gets no request while the other is not.
func TestTheLeastBusyAddressGetsTheRequest(t *testing.T) {
	a, b := named(t, "a"), named(t, "b")
	p := one(t, Options{Addresses: []*url.URL{a, b}})
	p.addresses[1].inFlight.Store(5)
	for i := range 4 {
		if _, text, _ := ask(t, p, "GET", nil); text != "200 a" {
			t.Errorf("request %d: %s", i, text)
		}
	}

	// In turn it gets every second one.
	p.options.Balance = RoundRobin
	_, first, _ := ask(t, p, "GET", nil)
	if _, second, _ := ask(t, p, "GET", nil); first == second {
		t.Errorf("%s %s", first, second)
	}

	if n := p.addresses[0].inFlight.Load(); n != 0 {
		t.Errorf("%d requests are in flight after their end", n)
	}
}

func TestRequestsAreSentAgainWhereThatIsSafe(t *testing.T) {
	for _, row := range []struct {
		method, body string
		unknownSize  bool
		attempts     int // of three that the options allow
	}{
		{"GET", "", false, 3}, {"HEAD", "", false, 3}, {"OPTIONS", "", false, 3}, {"DELETE", "", false, 3},
		{"PUT", "text", false, 3}, {"PUT", strings.Repeat("x", maxReplay), false, 3},
		{"PUT", strings.Repeat("x", maxReplay+1), false, 1}, {"PUT", "text", true, 1},
		{"POST", "text", false, 1}, {"POST", "", false, 1}, {"PATCH", "", false, 1},
	} {
		for _, kind := range []string{"status", "broken", "refused", "other status"} {
			bodies := make(chan string, 3)
			u := server(t, func(w http.ResponseWriter, r *http.Request) {
				text, _ := io.ReadAll(r.Body)
				bodies <- string(text)
				if kind == "broken" {
					panic(http.ErrAbortHandler)
				}
				w.WriteHeader(map[string]int{"status": 503, "other status": 500}[kind])
			})
			if kind == "refused" {
				u = closed(t)
			}

			// A body that is no known reader has no known size.
			p := one(t, Options{Addresses: []*url.URL{u}, Attempts: 3, Statuses: []int{502, 503}})
			var body io.Reader
			if row.body != "" {
				body = strings.NewReader(row.body)
			}
			if row.unknownSize {
				body = io.MultiReader(body)
			}
			c, answer, err := ask(t, p, row.method, body)

			// A status that the options do not name is an answer like others.
			want := row.attempts
			if kind == "other status" {
				want = 1
			}
			if c.Attempts() != want {
				t.Errorf("%s of %d bytes, %s: sent %d times, want %d", row.method, len(row.body), kind,
					c.Attempts(), want)
			}
			if kind == "status" && answer != "503 " || (kind == "broken" || kind == "refused") != (err != nil) {
				t.Errorf("%s, %s: %s %v", row.method, kind, answer, err)
			}
			for len(bodies) > 0 {
				if got := <-bodies; got != row.body {
					t.Errorf("%s, %s: an attempt had %d bytes, want %d", row.method, kind, len(got), len(row.body))
				}
			}
		}
	}
}

// Another address gets the request, and an answer ends the attempts.
func TestAnotherAddressGetsTheNextAttempt(t *testing.T) {
	p := one(t, Options{Addresses: []*url.URL{closed(t), named(t, "b"), closed(t)}, Attempts: 3})
	for i := range 6 {
		if _, text, err := ask(t, p, "GET", nil); text != "200 b" {
			t.Errorf("request %d: %s %v", i, text, err)
		}
	}
	for i, a := range p.addresses {
		if n := a.inFlight.Load(); n != 0 {
			t.Errorf("address %d has %d requests after their end", i, n)
		}
	}
}

// A late answer may still be under way, so nothing is sent twice.
func TestALateAnswerIsNotAskedForAgain(t *testing.T) {
	end := make(chan bool)
	u := server(t, func(http.ResponseWriter, *http.Request) { <-end })
	defer close(end)
	list := []Options{{Name: "up", Addresses: []*url.URL{u}, Attempts: 3, ConnectTimeout: time.Minute,
		HeaderTimeout: 20 * time.Millisecond}}
	made, err := New(list, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}

	defer made.Close(nil)
	if c, _, err := ask(t, made.pools[0], "GET", nil); err == nil || c.Attempts() != 1 {
		t.Errorf("%d attempts, %v", c.Attempts(), err)
	}
}

// What has reached the client is not taken back: an early hint ends the attempts.
func TestNothingIsSentAgainAfterAnInterimAnswer(t *testing.T) {
	u := server(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(103)
		w.WriteHeader(503)
	})
	p := one(t, Options{Addresses: []*url.URL{u}, Attempts: 3, Statuses: []int{503}})
	if c, text, _ := ask(t, p, "GET", nil); c.Attempts() != 1 || text != "503 " {
		t.Errorf("%d attempts, %s", c.Attempts(), text)
	}
}

// A client that goes is no reason to send its request again, nor to blame an address.
func TestAClientThatGoesIsNoFailure(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	u := server(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})

	p := one(t, Options{Addresses: []*url.URL{u, closed(t)}, Attempts: 3, Failures: 1, Out: time.Hour})
	p.addresses[1].sick.Store(true)

	r, err := http.NewRequestWithContext(ctx, "GET", u.String(), nil)
	if err != nil {
		t.Fatal(err)
	}

	var c Call
	if _, err := p.Do(r, &c); err == nil || c.Attempts() != 1 || !p.addresses[0].isWell() {
		t.Errorf("%v, sent %d times", err, c.Attempts())
	}

	c.End()
}

func TestFailuresTakeAnAddressOut(t *testing.T) {
	bad := closed(t)
	p := one(t, Options{Addresses: []*url.URL{bad, named(t, "b")}, Balance: RoundRobin, Failures: 2, Out: time.Hour})
	// Every second request meets the bad address, until it is out.
	failed := 0
	for range 20 {
		if _, _, err := ask(t, p, "GET", nil); err != nil {
			failed++
		}
	}

	if failed != 2 {
		t.Errorf("%d requests failed, want the 2 that take the address out", failed)
	}

	// After its time it is asked again.
	p.addresses[0].outUntil.Store(1)
	for range 4 {
		if _, _, err := ask(t, p, "GET", nil); err != nil {
			failed++
		}
	}

	if failed != 4 {
		t.Errorf("%d requests failed after the time, want 2 more", failed-2)
	}

	// If none is well, all are asked.
	p.addresses[1].outUntil.Store(time.Now().Add(time.Hour).UnixNano())
	answered := 0
	for range 4 {
		if _, _, err := ask(t, p, "GET", nil); err == nil {
			answered++
		}
	}

	if answered != 2 {
		t.Errorf("%d of 4 were answered while none was well, want the 2 of the one that answers", answered)
	}
}

func TestUpstreamsAreFoundByHostAndPath(t *testing.T) {
	u := []*url.URL{{Scheme: "http", Host: "h"}}
	tab := table(t,
		Options{Name: "api", Addresses: u, Match: policy.Match{Host: "api.example", Path: "/v1/"}},
		Options{Name: "all of api", Addresses: u, Match: policy.Match{Host: "api.example"}},
		Options{Name: "writes", Addresses: u, Match: policy.Match{Path: "/files/", Methods: []string{"PUT"}}},
		Options{Name: "files", Addresses: u, Match: policy.Match{Path: "/files/"}},
		Options{Name: "below", Addresses: u, Match: policy.Match{Host: "*.example"}},
	)
	// The first that matches gets the request, however a path is spelled.
	for text, want := range map[string]string{
		"GET api.example/v1/x": "api", "GET API.example:8080/v1": "api", "GET api.example/v2": "all of api",
		"PUT other/files/x": "writes", "GET other/files/x": "files", "GET a.b.example/": "below", "GET other/": "",
		"GET other/x/../files/y": "files",
	} {
		method, rest, _ := strings.Cut(text, " ")
		host, path, _ := strings.Cut(rest, "/")
		r := &http.Request{Method: method, Host: host, URL: &url.URL{Path: "/" + path}, Header: http.Header{}}
		got := ""
		if p := tab.Find(r); p != nil {
			got = p.Name()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestUpstreamsThatAreNeverReachedAreMistakes(t *testing.T) {
	m := func(host, path string, methods ...string) policy.Match {
		return policy.Match{Host: host, Path: path, Methods: methods}
	}

	query := policy.Match{Path: "/a/", Query: map[string]policy.Values{"a": {"1"}}}
	headers := policy.Match{Path: "/a/", Headers: map[string]policy.Values{"X-A": {"1"}}}
	for _, row := range []struct {
		first, second policy.Match
		hidden        bool
	}{
		// What matches all hides all, and a wildcard hides literals.
		{m("", ""), m("", "/a"), true},
		{m("", "/a/"), m("", "/a/"), true},
		{m("", "/a/"), m("", "/a"), true},
		{m("", "/a"), m("", "/a/"), false},
		{m("", "/a/{x}/"), m("", "/a/"), false},
		{m("", "/{x}/"), m("", "/a/"), true},
		{m("", "/{x}/"), m("", "/a/b"), true},
		{m("", "/a/b"), m("", "/{x}/b"), false},
		{m("", "/A/"), m("", "/a/b"), true},
		{m("h", ""), m("", ""), false},
		{m("", ""), m("h", ""), true},
		{m("*.h", ""), m("a.h", ""), true},
		{m("a.h", ""), m("*.h", ""), false},

		// All methods of the second have to be among those of the first.
		{m("", "", "GET"), m("", ""), false},
		{m("", "", "GET", "PUT"), m("", "", "PUT"), true},
		{m("", "", "GET"), m("", "", "GET", "PUT"), false},

		// A header, a query or an exception of the first leaves requests to the second.
		{headers, m("", "/a/"), false},
		{m("", "/a/"), headers, true},
		{query, m("", "/a/"), false},
		{m("", "/a/"), query, true},
		{policy.Match{Path: "/a/", Except: []string{"/a/b"}}, m("", "/a/"), false},
	} {
		u := []*url.URL{{Scheme: "http", Host: "h"}}
		_, err := New([]Options{{Name: "first", Addresses: u, Match: row.first},
			{Name: "second", Addresses: u, Match: row.second}}, slog.New(slog.DiscardHandler))
		if row.hidden != (err != nil) || err != nil && !strings.Contains(err.Error(), `second: match: it never gets`) {
			t.Errorf("%+v before %+v: %v, want hidden %v", row.first, row.second, err, row.hidden)
		}
	}
}

// Upstreams that stay the same keep what is known of them, and the others are new.
func TestATableTakesOverTheOneBefore(t *testing.T) {
	u := []*url.URL{named(t, "a")}
	health := Health{Path: "/", Interval: time.Hour, Timeout: time.Second, Threshold: 1}
	list := []Options{{Name: "same", Addresses: u, Match: policy.Match{Path: "/a"}, Health: health},
		{Name: "other", Addresses: u, Match: policy.Match{Path: "/b"}, Health: health}}
	before := table(t, list...)
	same, other := before.pools[0], before.pools[1]

	next := []Options{list[1], list[0]}
	next[0].Idle = 7
	after, err := New(next, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { after.Close(nil) })
	after.Start(before)
	if after.pools[1] != same || after.pools[0] == other {
		t.Error("the same upstream is new, or the changed one is not")
	}

	if _, text, err := ask(t, other, "GET", nil); text != "200 a" {
		t.Errorf("a request of the former upstream: %s %v", text, err)
	}

	// What the next table has kept goes on to ask, and what it has not kept does not.
	before.Close(after)
	if same.asking.Err() != nil || other.asking.Err() == nil {
		t.Errorf("it asks: the same %v, the other %v", same.asking.Err(), other.asking.Err())
	}
}

// An upstream that has changed keeps what is known of the addresses that it still has.
func TestAddressesThatStayKeepWhatIsKnownOfThem(t *testing.T) {
	a, b, c := named(t, "a"), named(t, "b"), named(t, "c")
	o := Options{Name: "up", Addresses: []*url.URL{a, b}, Failures: 1, Out: time.Hour, Balance: RoundRobin}
	before := table(t, o)
	before.pools[0].addresses[0].outUntil.Store(time.Now().Add(time.Hour).UnixNano())

	// The first address is out, so the others get all requests.
	o.Addresses = []*url.URL{c, b, a}
	after := made(t, o)
	after.Start(before)
	before.Close(after)
	got := map[string]int{}
	for range 10 {
		_, text, err := ask(t, after.pools[0], "GET", nil)
		if err != nil {
			t.Fatal(err)
		}
		got[text]++
	}
	if got["200 a"] != 0 || got["200 b"] == 0 || got["200 c"] == 0 {
		t.Errorf("%v", got)
	}

	// What other questions have found says nothing.
	o.Health = Health{Path: "/", Interval: time.Hour, Timeout: time.Second, Threshold: 1}
	asked := made(t, o)
	asked.Start(after)
	after.Close(asked)
	if at := asked.pools[0].addresses[2]; at == after.pools[0].addresses[2] || at.outUntil.Load() != 0 {
		t.Error("an address keeps what other questions have found")
	}
}

// made makes a table that is closed with the test, and does not start it.
func made(t *testing.T, o Options) *Table {
	t.Helper()
	o.ConnectTimeout, o.HeaderTimeout = 5*time.Second, 5*time.Second
	made, err := New([]Options{o}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { made.Close(nil) })
	return made
}

// A request is sent again although the answer before never ends.
func TestARetryDoesNotWaitForTheAnswerBefore(t *testing.T) {
	end := make(chan struct{})
	stalls := server(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte("x"))
		w.(http.Flusher).Flush()
		<-end
	})
	defer close(end)

	p := one(t, Options{Addresses: []*url.URL{stalls, named(t, "good")}, Attempts: 2, Statuses: []int{503},
		Balance: RoundRobin})
	for range 2 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.Target().String()+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		var c Call
		res, err := p.Do(r, &c)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", res, err)
		}
		_ = res.Body.Close()
		c.End()
	}
}
