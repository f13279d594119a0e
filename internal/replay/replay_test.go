package replay

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/accesslog"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/policyyaml"
)

// setOf returns the policies of a text in YAML, of the application shop.
func setOf(t testing.TB, text string) policy.Set {
	t.Helper()
	set, err := policyyaml.Decode([]byte("policies:\n" + text))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// replayOf replays a log, and returns it with what became of each request.
func replayOf(t testing.TB, text string, o Options) (*Replay, []fate) {
	t.Helper()
	in, err := accesslog.New("log", strings.NewReader(text), accesslog.Options{})
	if err != nil {
		t.Fatal(err)
	}

	r, err := NewReplay(o, in.Stats().Has)
	if err != nil {
		t.Fatal(err)
	}

	var fates []fate
	for {
		e, err := in.Next()
		if errors.Is(err, io.EOF) {
			return r, fates
		}
		if err != nil {
			t.Fatal(err)
		}
		r.Add(e)
		fates = append(fates, r.main.fate)
	}
}

// forms are the logs of a request, each with the resolution of its times.
var forms = []struct {
	name       string
	resolution time.Duration
	line       func(at time.Time, r *http.Request) string
}{
	{"combined", time.Second, func(at time.Time, r *http.Request) string {
		return fmt.Sprintf("%s - - [%s] \"%s %s HTTP/1.1\" 200 1 \"-\" \"%s\"\n",
			r.RemoteAddr[:strings.LastIndex(r.RemoteAddr, ":")],
			at.In(time.FixedZone("", 3600)).Format("02/Jan/2006:15:04:05 -0700"), r.Method, r.RequestURI, r.UserAgent())
	}},
	{"Envoy", time.Millisecond, func(at time.Time, r *http.Request) string {
		return fmt.Sprintf("[%s] \"%s %s HTTP/2\" 200 - 0 0 1 1 \"%s\" \"%s\" \"id\" \"%s\" \"-\"\n",
			at.Format("2006-01-02T15:04:05.000Z"), r.Method, r.RequestURI, r.RemoteAddr, r.UserAgent(), r.Host)
	}},
	{"Caddy", time.Microsecond, func(at time.Time, r *http.Request) string {
		return fmt.Sprintf(`{"ts":%d.%06d,"request":{"remote_ip":%q,"method":%q,"uri":%q,"host":%q,"headers":{"User-Agent":[%q]}}}`+"\n",
			at.Unix(), at.Nanosecond()/1000, r.RemoteAddr, r.Method, r.RequestURI, r.Host, r.UserAgent())
	}},
}

// limitsOfAll has a limit of each algorithm that a log is enough for.
var limitsOfAll = []string{"10/10s", "20/10s burst=5", "8/10s fixed-window", "8/10s fixed-window aligned",
	"5/10s sliding-log", "12/10s sliding-window segments=4", "6/3s token-bucket burst=9", "15/day tz=Europe/Berlin"}

// What a server refuses while it runs, the replay of its log refuses, request for request.
func TestReplayDecidesAsTheServerDid(t *testing.T) {
	for _, form := range forms {
		for i, limit := range limitsOfAll {
			t.Run(form.name+" "+limit, func(t *testing.T) {
				set := setOf(t, `
- {name: all, apps: [shop], limit: `+limit+`, key: ip}
- {name: post, apps: [shop], limit: 2/5s, key: ip+method, match: {methods: [POST], path: "/orders/{id}"}}
- {name: agents, apps: [shop], limit: 25/10s, key: "header:User-Agent", mode: shadow}
- {name: guard, apps: [shop], limit: 40/20s, key: ip/56, ban: 3/1m for 20s max 1m, access: {deny: {networks: [192.0.2.4]}}}
`)
				var log strings.Builder
				var want []bool
				synctest.Test(t, func(t *testing.T) {
					want = serve(t, set, form.resolution, uint64(i), func(at time.Time, r *http.Request) {
						log.WriteString(form.line(at, r))
					})
				})

				// The log is all that the replay knows.
				r, fates := replayOf(t, log.String(), Options{Policies: set, App: "shop"})

				if len(r.main.leftOut) > 0 || len(fates) != len(want) {
					t.Fatalf("%d of %d requests, and %v are left out", len(fates), len(want), r.main.leftOut)
				}

				// Some are refused, and not all.
				n := int64(0)
				for i := range want {
					if want[i] {
						n++
					}
					if (fates[i] == refused) != want[i] {
						t.Fatalf("request %d: refused %t, want %t", i, fates[i] == refused, want[i])
					}
				}
				if got := r.Report().Refused; got != n || n == 0 || int(n) == len(want) {
					t.Errorf("%d of %d are refused, want %d", got, len(want), n)
				}
			})
		}
	}
}

// serve sends random requests to a server with the policies, and reports which were refused. Time
// passes in steps of the resolution.
func serve(t *testing.T, set policy.Set, resolution time.Duration, seed uint64,
	each func(at time.Time, r *http.Request)) (refused []bool) {
	t.Helper()
	l := limiter.MustNew(limiter.Config{Logger: discard})
	defer l.Close()
	compiled, err := policy.Compile("shop", set, policy.Bindings{})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.SetSelectedRules(compiled.Selected()); err != nil {
		t.Fatal(err)
	}

	// The handler is reached by what passes.
	h := nethttp.New(l)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))

	rnd := rand.New(rand.NewPCG(seed, uint64(resolution)))
	paths := []string{"/", "/orders/7?x=1", "/Orders/8", "/%6Frders/%37/", "/a%2Fb", "//orders/9"}
	for range 600 {
		time.Sleep(time.Duration(rnd.ExpFloat64() * float64(300*time.Millisecond)).Round(resolution))
		method := []string{"GET", "POST", "HEAD"}[rnd.IntN(3)]
		r := httptest.NewRequest(method, paths[rnd.IntN(len(paths))], nil)
		r.Host = "shop.example"
		r.RemoteAddr = []string{"192.0.2.1:80", "192.0.2.2:81", "[2001:db8::1]:80", "192.0.2.4:7"}[rnd.IntN(4)]
		r.Header.Set("User-Agent", []string{"a", "b"}[rnd.IntN(2)])

		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		refused = append(refused, w.Code != http.StatusOK)
		each(time.Now().UTC(), r)
	}
	return refused
}

// line returns a line of a combined log, some seconds after a full hour.
func lineAt(second int, address, target string) string {
	at := time.Date(2026, 11, 28, 8, 0, second, 0, time.UTC).Format("02/Jan/2006:15:04:05 -0700")
	return fmt.Sprintf("%s - ada [%s] \"GET %s HTTP/1.1\" 200 1 \"-\" \"curl\"\n", address, at, target)
}

func TestReportCountsByPolicyAndCaller(t *testing.T) {
	set := setOf(t, `
- {name: api, apps: [a], limit: 2/1m fixed-window, key: ip, match: {path: /api/}}
- {name: slow, apps: [a], limit: 1/10s, key: ip, on_limit: wait 5s, match: {path: /slow}}
- {name: quiet, apps: [a], limit: 1/1h, key: user, mode: shadow, match: {path: /quiet}}
- {name: off, apps: [a], limit: 1/1h, key: ip, mode: "off"}
`)

	// The third request of a minute is too many.
	log := lineAt(0, "192.0.2.1", "/api/x") + lineAt(1, "192.0.2.1", "/api/y") +
		lineAt(2, "192.0.2.1", "/api/x") + // refused
		lineAt(3, "192.0.2.2", "/api/") + lineAt(4, "192.0.2.1", "/API") + // refused
		lineAt(5, "192.0.2.3", "/slow") + lineAt(9, "192.0.2.3", "/slow") + // refused: six seconds are too long
		lineAt(11, "192.0.2.3", "/slow") + // waits four
		lineAt(12, "192.0.2.3", "/quiet") + lineAt(13, "192.0.2.4", "/quiet") // over, and passes
	r, _ := replayOf(t, log, Options{Policies: set, Users: true})
	got := r.Report()

	if got.Requests != 10 || got.Callers != 4 || got.Refused != 3 || got.RefusedCallers != 2 || got.Waited != 1 {
		t.Errorf("%+v", got)
	}

	// Each policy counts by its own key, and one that is off does not count.
	var rows []string
	for _, p := range got.Policies {
		rows = append(rows, fmt.Sprint(p.Policy, p.Requests, p.Callers, p.Over, p.Touched, p.Refused, p.Waited,
			p.First.Second(), p.Last.Second()))
	}

	want := []string{"api 5 2 2 1 2 0 2 4", "quiet 2 1 1 1 0 0 13 13", "slow 3 1 2 1 1 1 9 11"}
	for i := range want {
		want[i] = strings.Replace(want[i], " ", "", 1)
	}
	if !slices.Equal(rows, want) {
		t.Errorf("%q, want %q", rows, want)
	}

	top := fmt.Sprint(got.Top)
	if top != "[{api 192.0.2.1 2} {slow 192.0.2.3 2} {quiet ada 1}]" {
		t.Errorf("%s", top)
	}

	if n := got.Refusals.Counts; len(n) != 14 || n[2] != 1 || n[4] != 1 || n[9] != 1 || n[0] != 0 {
		t.Errorf("%v", got.Refusals)
	}
}

// The windows of a calendar are those of the log's days, and not of today.
func TestCalendarsFollowTheLog(t *testing.T) {
	set := setOf(t, "- {name: api, apps: [a], limit: 2/day tz=Europe/Berlin, key: ip}")
	var log strings.Builder
	for hour := 20; hour < 20+240; hour++ {
		log.WriteString(lineAt(hour*3600, "192.0.2.1", "/"))
	}

	// From 04:00 UTC on, an hour after another: a day in Berlin begins at 23:00.
	r, fates := replayOf(t, log.String(), Options{Policies: set})
	if n := r.Report().Undecided; n > 0 {
		t.Errorf("%d requests are undecided", n)
	}
	var passed []int
	for i, f := range fates {
		if f == passes {
			passed = append(passed, (4+i)%24)
		}
	}
	want := append([]int{4, 5}, slices.Repeat([]int{23, 0}, 10)...)
	if !slices.Equal(passed, want) {
		t.Errorf("requests pass at the hours %v, want %v", passed, want)
	}
}

func TestReplayComparesTwoSets(t *testing.T) {
	before := setOf(t, `- {name: api, apps: [a], limit: 1/1m, key: ip, match: {path: /b}}`)
	after := setOf(t, `- {name: api, apps: [a], limit: 2/1m, key: ip}`)

	// Both decide about the same requests.
	log := lineAt(0, "192.0.2.1", "/b") + lineAt(1, "192.0.2.1", "/b") + // let in
		lineAt(2, "192.0.2.1", "/b") + // refused by both
		lineAt(3, "192.0.2.1", "/a") + lineAt(3, "192.0.2.1", "/a") + // two are new refusals
		lineAt(4, "192.0.2.2", "/a")
	r, _ := replayOf(t, log, Options{Policies: after, Against: before, Compare: true})
	got := *r.Report().Against
	got.LeftOut = nil
	if want := (Comparison{2, 2, 1, 1, 1, nil}); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A request costs what its policy says, and the status of the log gives it back.
func TestCostsAndAnswersOfTheLogCount(t *testing.T) {
	statuses := []int{200, 304, 500, 200, 304, 200, 304}
	text := ""
	for i, status := range statuses {
		text += strings.Replace(lineAt(i, "192.0.2.1", "/"), `" 200 `, fmt.Sprintf(`" %d `, status), 1)
	}

	// Each digit is what became of a request: 0 passes, 2 is refused.
	for policy, want := range map[string]string{
		"limit: 5/1h fixed-window":                                      "0000022",
		"limit: 5/1h fixed-window, cost: 2":                             "0022222",
		"limit: 5/1h fixed-window, cost: 2, refund: [304, 5xx]":         "0000222",
		"limit: 2/1h fixed-window, refund: [304]":                       "0002222",
		"limit: 2/1h fixed-window, count_only: [304]":                   "0000022",
		"limit: 3/1h fixed-window, mode: shadow, cost: 3":               "0000000",
		"limit: 1/1h fixed-window, cost: 1, count_only: [404]":          "0000000",
		`limit: 1/1h fixed-window, match: {except: ["/{$}"]}, cost: 1`:  "0000000",
		"limit: 1/1h fixed-window, match: {headers: {user-agent: a}}":   "0000000",
		`limit: 1/1h fixed-window, match: {headers: {user-agent: "*"}}`: "0222222",
	} {
		set := setOf(t, "- {name: a, apps: [x], key: ip, "+policy+"}\n")

		_, fates := replayOf(t, text, Options{Policies: set})
		got := ""
		for _, f := range fates {
			got += fmt.Sprint(int(f))
		}
		if got != want {
			t.Errorf("%s: %s, want %s", policy, got, want)
		}
	}
}

// A log has the queries of its requests.
func TestQueriesOfTheLogCount(t *testing.T) {
	text := ""
	for i, target := range []string{"/", "/?export=csv", "/?export=pdf", "/?x&%65xport=csv", "/?export=csv#a",
		"/#?export=csv"} {
		text += lineAt(i, "192.0.2.1", target)
	}
	set := setOf(t, "- {name: a, apps: [x], key: ip, limit: 1/1h fixed-window, match: {query: {export: csv}}}\n")
	if _, fates := replayOf(t, text, Options{Policies: set}); fmt.Sprint(fates) != "[0 0 0 2 2 0]" {
		t.Errorf("%v", fates)
	}
}

func TestPoliciesThatNeedMoreAreLeftOut(t *testing.T) {
	set := setOf(t, `
- {name: a, apps: [x], limit: 1/1m, key: ip}
- {name: b, apps: [x], limit: 1/1m, key: user}
- {name: c, apps: [x], limit: 1/1m, key: "ip+header:X-Team"}
- {name: d, apps: [x], limit: 1/1m, key: "header:Referer"}
- {name: e, apps: [x], limit: 1/1m, key: ip+route}
- {name: f, apps: [x], limit: 1/1m, key: ip, match: {host: shop.example}}
- {name: g, apps: [x], limit: 1/1m, key: ip, plans: {p: 2/1m}, plan_by: user}
- {name: h, apps: [x], limit: 5 concurrent ttl=1m, key: ip}
- {name: i, apps: [x], limit: 1/1m, key: api-key}
- {name: j, apps: [x], limit: 1/1m, key: basic-auth}
- {name: k, apps: [x], limit: 1/1m, key: "cookie:sid"}
- {name: l, apps: [x], limit: 1/1m, key: host}
- {name: m, apps: [x], limit: 1/1m, key: global, access: {allow: {networks: [192.0.2.0/24]}}}
- {name: n, apps: [x], limit: 1/1m, key: method+path}
- {name: o, apps: [x], limit: 1/1m, key: ip, match: {headers: {x-plan: free}}}
- {name: p, apps: [x], limit: 1/1m, key: ip, match: {headers: {user-agent: "*"}}}
- {name: q, apps: [x], limit: 1/1m, key: ip, match: {query: {export: csv}}}
- {name: r, apps: [x], limit: 1/1m, key: ip, match: {claims: {plan: free}}}
`)
	text := func(out []LeftOut) string { return strings.Trim(fmt.Sprint(out), "[]{}") }
	r, _ := replayOf(t, lineAt(0, "192.0.2.1", "/"), Options{Policies: set})
	const want = "b the user} {c the header X-Team} {d the header Referer} {e the route} {f the host} " +
		"{g the plan of a caller} {h the ends of requests} {i the API key} {j the header Authorization} " +
		"{k the cookie sid} {l the host} {o the header X-Plan} " +
		"{q queries} {r the claims of a token"
	if got := text(r.Report().LeftOut); got != want {
		t.Errorf("%s, want %s", got, want)
	}

	// A log without addresses has nothing to count callers by.
	r, _ = replayOf(t, lineAt(0, "-", "/"), Options{Policies: set, Users: true})
	if got := text(r.Report().LeftOut); !strings.HasPrefix(got, "a addresses} {c addresses} ") ||
		!strings.Contains(got, "{m addresses}") && !strings.HasSuffix(got, "{m addresses") {
		t.Errorf("%s", got)
	}
}

// What a log does not say of costs is charged by the default or the estimate, and told.
func TestCostsThatALogHasNot(t *testing.T) {
	set := setOf(t, `
- {name: a, apps: [x], limit: 10/1m, key: ip, cost: {header: x-cost, default: 4}}
- {name: b, apps: [x], limit: 10/1m, key: ip, cost: {answer_header: x-cost, estimate: 6}}
- {name: c, apps: [x], limit: 10/1m, key: ip, cost: {usage: tokens, estimate: 3}}
- {name: d, apps: [x], limit: 10/1m, key: ip, cost: 2}
`)
	log := ""
	for i := range 4 {
		log += lineAt(i, "192.0.2.1", "/")
	}
	r, _ := replayOf(t, log, Options{Policies: set})

	got := ""
	for _, p := range r.Report().Policies {
		got += fmt.Sprintf("%s %d %q; ", p.Policy, p.Over, p.CostNeeds)
	}

	// Of b the first request passes alone, and refused ones cost nothing.
	const want = `a 0 "the header X-Cost"; b 3 "the header X-Cost of answers"; c 0 "the tokens of answers"; d 0 ""; `
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestProxiesAreLookedThrough(t *testing.T) {
	set := setOf(t, `- {name: api, apps: [a], limit: 1/1m, key: ip}`)
	line := func(forwarded string) string {
		return strings.TrimSuffix(lineAt(0, "10.0.0.1", "/"), "\n") + ` "` + forwarded + `"` + "\n"
	}

	// The first address from the right that is no proxy is the caller.
	log := line("192.0.2.1") + line("192.0.2.2") + line("8.8.8.8, 192.0.2.1")
	r, fates := replayOf(t, log, Options{Policies: set, Proxies: []string{"10.0.0.0/8"}})
	if want := []fate{passes, passes, refused}; !slices.Equal(fates, want) || r.Report().Callers != 2 {
		t.Errorf("%v, want %v, of %d callers", fates, want, r.Report().Callers)
	}

	if _, err := NewReplay(Options{Proxies: []string{"x"}}, 0); err == nil {
		t.Error("x is a proxy")
	}
}

// Beyond what is counted exactly, a sample is as good as its size.
func TestDistinctIsBounded(t *testing.T) {
	var d distinct
	for i := range 10 * maxDistinct {
		d.add(hashOf(fmt.Sprint(i)))
		d.add(hashOf(fmt.Sprint(i / 2)))
	}
	got, want := float64(d.count()), float64(10*maxDistinct)
	if len(d.slots) > 2*maxDistinct || got < 0.98*want || got > 1.02*want {
		t.Errorf("%d are kept, and %.0f counted, want about %.0f", d.n, got, want)
	}
}

func TestTopIsBounded(t *testing.T) {
	var list top
	for i := range 3 * maxTop {
		list.add("p", fmt.Sprint("rare", i))
		list.add("p", "often")
	}
	if got := list.first(1)[0]; got.Key != "often" || got.Times != 3*maxTop || len(list.counts) > maxTop {
		t.Errorf("%+v of %d", got, len(list.counts))
	}
}

func TestTimelineKeepsItsSums(t *testing.T) {
	var line timeline
	const start = 1_795_851_437 * int64(1e6)
	for i := range 1000 {
		line.add(start+int64(i)*1e6, int64(i%2))
	}

	// 1000 seconds need a width of 32.
	got := line.report()
	sum := int64(0)
	for _, n := range got.Counts {
		sum += n
	}
	if sum != 500 || got.Step != 32*time.Second || len(got.Counts) != 32 || got.Counts[0] != 16 {
		t.Errorf("%d in %+v", sum, got)
	}
}
