package e2e

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/headgate-console/internal/mariadbtest"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/managed"
	"github.com/headgate/headgate/store/redisstore"
)

// TestCountsEqualTheLoad has wrk send requests to two instances of one name and a third whose
// clock is off by 90 seconds, restarts one, ends two and kills two. What the console says equals
// what wrk says, to the request.
func TestCountsEqualTheLoad(t *testing.T) {
	t.Parallel() // the tests wait for other programs most of the time
	consoleProgram, shop := build(t)
	for name, args := range map[string]func(*testing.T) (env, args []string){
		"sqlite": func(t *testing.T) (env, args []string) { return nil, []string{"-data", t.TempDir()} },
		"mariadb": func(t *testing.T) (env, args []string) {
			return []string{"HEADGATE_CONSOLE_DB=" + mariadbtest.Start(t).Database(t)}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			env, args := args(t)
			redis := redistest.Start(t).Addr
			l := &load{t: t, shop: shop, redis: redis}
			l.console = start(t, "console", consoleProgram, env, append(args, "-redis", "redis://"+redis,
				"-listen", "127.0.0.1:0")...)
			l.signIn()
			l.run()
		})
	}
}

// load counts the requests that it sends, and how they were answered.
type load struct {
	t       *testing.T
	console *program
	client  *http.Client
	shop    string
	redis   string

	tally
}

// signIn logs in as the administrator.
func (l *load) signIn() {
	l.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		l.t.Fatal(err)
	}
	l.client = &http.Client{Jar: jar, Transport: &http.Transport{}, Timeout: patience}
	l.t.Cleanup(l.client.CloseIdleConnections)
	password := l.console.await(0, oneTime)[1]
	l.form("/login", url.Values{"name": {"admin"}, "password": {password}})
	l.form("/account/password", url.Values{"old": {password}, "password": {"the password of a load"},
		"repeat": {"the password of a load"}})
}

func (l *load) form(path string, values url.Values) {
	l.t.Helper()
	r, err := l.client.PostForm("http://"+l.console.address+path, values)
	if err != nil {
		l.t.Fatal(err)
	}
	defer r.Body.Close()
	if text, _ := io.ReadAll(r.Body); r.StatusCode != http.StatusOK {
		l.t.Fatalf("%s: %d\n%s", path, r.StatusCode, text)
	}
}

// call calls the API and reads its answer into out.
func (l *load) call(method, path string, in, out any) {
	l.t.Helper()

	body, err := json.Marshal(in)
	if err != nil {
		l.t.Fatal(err)
	}

	r, err := http.NewRequestWithContext(l.t.Context(), method, "http://"+l.console.address+path, bytes.NewReader(body))
	if err != nil {
		l.t.Fatal(err)
	}

	// The API wants either an object and that it is new, or no body at all.
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("If-None-Match", "*")
	} else {
		r.Body = http.NoBody
	}

	a, err := l.client.Do(r)
	if err != nil {
		l.t.Fatal(err)
	}
	defer a.Body.Close()

	text, err := io.ReadAll(a.Body)
	if err != nil || a.StatusCode >= 300 {
		l.t.Fatalf("%s %s: %d %v\n%s", method, path, a.StatusCode, err, text)
	}

	if out != nil {
		if err := json.Unmarshal(text, out); err != nil {
			l.t.Fatal(err)
		}
	}
}

// live is more than the age that the console lets its reading of Redis have.
const live = 2 * time.Second

// policies are what every request meets: one request under four policies.
var policies = map[string]map[string]any{
	"tight":  {"limit": "700/1h sliding-log"},
	"shadow": {"limit": "50/1h sliding-log", "mode": "shadow"},
	"wide":   {"limit": "1000000/1h"},
	"second": {"limit": "1000000/1h fixed-window"},
}

func (l *load) run() {
	t := l.t

	for _, app := range []string{"shop", "till"} {
		l.call("PUT", "/api/apps/"+app, map[string]any{}, nil)
	}

	// Every policy limits the same key, so each request meets all four.
	for name, p := range policies {
		p = maps.Clone(p)
		p["name"], p["apps"], p["key"] = name, []string{"shop"}, "ip"
		l.call("PUT", "/api/policies/"+name, p, nil)
	}

	l.published()
	a, stopA := l.instance("twin")
	b, stopB := l.instance("twin")
	c, stopC := l.skewed(90 * time.Second)

	// The limit of 700 admits all of these, and a hundred of the next, whichever instance they
	// reach.
	l.send(600, a, b, c)
	l.agree("at first")
	l.instances()

	// A restart within a minute must not take the counts that the first process wrote for it.
	stopA(syscall.SIGTERM) // in the same minute, under the same name
	a, stopA = l.instance("twin")
	l.send(600, a, b, c)
	l.agree("after a restart")

	// An instance that ends by SIGTERM writes its last counts first.
	l.send(300, c)
	stopC()
	stopA(syscall.SIGTERM)
	l.send(100, b)
	l.agree("after two instances ended")

	stopB(syscall.SIGKILL) // it has written all that it counted
	b, stopB = l.instance("twin")
	l.send(100, b)
	l.agree("after a kill")

	l.kill(b, stopB)
	l.fromSQL()

	// In all 700 pass, which the tight policy admits.
	if want := (tally{1800, 700, 1100}); l.tally != want {
		t.Errorf("wrk says %+v in all, want %+v", l.tally, want)
	}
}

// published waits until Redis has all policies, so that every instance begins with them.
func (l *load) published() {
	l.t.Helper()
	l.settles(func() error {
		var v struct{ Pending bool }
		if l.call("GET", "/api/publishing", nil, &v); v.Pending {
			return errors.New("not all policies are published")
		}
		return nil
	})
}

// instance starts an instance and waits until it has the policies in force. stop ends it by a
// signal.
func (l *load) instance(name string) (address string, stop func(os.Signal)) {
	l.t.Helper()
	p := start(l.t, name, l.shop, nil, "-redis", l.redis, "-listen", "127.0.0.1:0", "-timeout", "1m", "-instance", name)
	p.await(0, inForce)
	return p.address, p.stop
}

// skewed starts an instance in this process, whose clock is off.
func (l *load) skewed(off time.Duration) (address string, stop func()) {
	l.t.Helper()

	client := redis.NewClient(&redis.Options{Addr: l.redis, ContextTimeoutEnabled: true})
	limits, err := managed.Open(context.Background(), client, managed.Options{
		App:     "shop",
		Store:   redisstore.Options{Timeout: time.Minute},
		Clock:   func() time.Time { return time.Now().Add(off) },
		Follow:  policy.Options{Instance: "skewed", Timeout: time.Minute},
		Limiter: limiter.Config{Logger: slog.New(slog.DiscardHandler)},
	})
	if err != nil {
		l.t.Fatal(err)
	}

	answer := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	server := httptest.NewServer(nethttp.New(limits.Limiter)(answer))
	stop = sync.OnceFunc(func() {
		server.Close()
		if err := limits.Close(); err != nil {
			l.t.Error(err)
		}
		client.Close()
	})

	l.t.Cleanup(stop)
	return strings.TrimPrefix(server.URL, "http://"), stop
}

// send has wrk send n requests in all to instances, to all of them at once.
func (l *load) send(n int, addresses ...string) {
	l.t.Helper()
	running := make([]*program, len(addresses))
	for i, address := range addresses {
		running[i] = startWrk(l.t, address, n/len(addresses))
	}
	for _, p := range running {
		l.add(p.tally())
	}
}

// counts are counts by verdict.
type counts map[string]int64

func (c counts) total() (n int64) {
	for _, m := range c {
		n += m
	}
	return n
}

// shown returns what the console says: the requests, and the decisions by policy.
func (l *load) shown() (requests counts, decisions map[string]counts) {
	l.t.Helper()

	var chart struct{ Total counts }
	l.call("GET", "/api/traffic?app=shop", nil, &chart)

	var sums struct {
		Sums []struct {
			Policy string
			Counts counts
		}
	}
	l.call("GET", "/api/traffic/policies?app=shop", nil, &sums)

	decisions = map[string]counts{}
	for _, s := range sums.Sums {
		decisions[s.Policy] = s.Counts
	}
	return chart.Total, decisions
}

// want are the figures that the load expects.
func (l *load) right(requests counts, decisions map[string]counts) bool {
	passed := requests["allowed"] + requests["shadow_refused"]
	if requests.total() != l.sent || passed != l.ok || requests["refused"] != l.refused ||
		len(decisions) != len(policies) {
		return false
	}

	for name := range policies {
		if decisions[name].total() != l.sent {
			return false
		}
	}

	// The shadow policy refuses no request, and what the tight one refuses is overruled for the
	// others.
	shadow := decisions["shadow"]
	return decisions["tight"]["allowed"] == l.ok && decisions["tight"]["refused"] == l.refused &&
		shadow["refused"] == 0 &&
		shadow["allowed"]+shadow["overruled"]+shadow["shadow_refused"] == l.sent && shadow["shadow_refused"] > 0 &&
		decisions["wide"]["allowed"] == l.ok && decisions["wide"]["overruled"] == l.refused
}

// agree fails unless the console soon says what was sent.
func (l *load) agree(when string) {
	l.t.Helper()

	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(30 * time.Second)
	for {
		// The counts may come late, but a count that is too high never becomes right again.
		requests, decisions := l.shown()
		if l.right(requests, decisions) {
			break
		}
		if time.Now().After(deadline) || requests.total() > l.sent {
			l.t.Fatalf("%s: %d requests were sent, %d passed and %d were refused; the console says %v and %v", when,
				l.sent, l.ok, l.refused, requests, decisions)
		}
		<-tick.C
	}

	for _, r := range []string{"15m", "1h", "6h", "24h", "7d", "30d"} {
		l.page(when, "/?app=shop&range="+r)
	}
	l.page(when, ofAll)
	l.others(when)
	l.t.Logf("%s: %d requests, %d passed, %d refused, and the console agrees", when, l.sent, l.ok, l.refused)
}

// These find the numbers of the series, those of all bars, and the rows of policies.
var (
	series = regexp.MustCompile(`</svg> ([A-Z][a-z ]+) <b>([0-9,]+)</b>`)
	ofBars = regexp.MustCompile(`<tr id="row-[0-9]+">.*?<td>([0-9,]+)</td></tr>`)
	ofRow  = regexp.MustCompile(`(?s)<tr>\s*<th scope="row"><a href="[^"]*">([a-z]+)</a>.*?` +
		`<td data-head="Requests">([0-9,]+)</td>.*?<td data-head="Refused"[^>]*>([0-9,]+)</td>`)
)

// ofAll is the page of all applications, of which one has no requests.
const ofAll = "/?app="

// page fails unless a page has the figures of the load in its series, in the table of its chart and
// in the lines of the policies, and that of all applications in their lines.
func (l *load) page(when, path string) {
	l.t.Helper()

	page := l.get(path)

	// The figures of the page are read as a user reads them, from its text.
	seen, all := l.series(page)
	if all != l.sent || seen["Refused"] != l.refused || seen["Passed"]+seen["Shadow"] != l.ok {
		l.t.Errorf("%s: %s has %v; %d were sent, %d refused, and %d passed", when, path, seen, l.sent, l.refused, l.ok)
	}

	var bars int64
	for _, m := range ofBars.FindAllStringSubmatch(page, -1) {
		bars += l.number(m[1])
	}
	if bars != l.sent {
		l.t.Errorf("%s: the bars of %s have %d requests, and %d were sent", when, path, bars, l.sent)
	}

	_, sums, _ := strings.Cut(page, `id="sums"`)
	lines := map[string][2]int64{}
	for _, m := range ofRow.FindAllStringSubmatch(sums, -1) {
		lines[m[1]] = [2]int64{l.number(m[2]), l.number(m[3])}
	}

	// On the page of all applications the first rows are those of the applications.
	if path == ofAll {
		if lines["shop"] != [2]int64{l.sent, l.refused} || lines["till"] != [2]int64{} {
			l.t.Errorf("%s: the applications have %v; %d were sent, and %d refused", when, lines, l.sent, l.refused)
		}
		delete(lines, "shop")
		delete(lines, "till")
	}

	if len(lines) != len(policies) || lines["tight"] != [2]int64{l.sent, l.refused} ||
		lines["wide"] != [2]int64{l.sent, 0} {
		l.t.Errorf("%s: the policies of %s have %v; %d were sent, and %d refused", when, path, lines, l.sent, l.refused)
	}
}

// series returns what a page says of each series, and of all together.
func (l *load) series(page string) (seen map[string]int64, all int64) {
	l.t.Helper()
	seen = map[string]int64{}
	for _, m := range series.FindAllStringSubmatch(page, -1) {
		seen[m[1]] = l.number(m[2])
	}
	for _, n := range seen {
		all += n
	}
	return seen, all
}

// These find the figures of a policy in the list, and the address of the file.
var (
	ofFile = regexp.MustCompile(`<a href="(/api/traffic/csv[^"]*)"`)
	ofList = regexp.MustCompile(`(?s)<tr id="policy-([a-z]+)">.*?<td class="n" data-head="Refused">([0-9,]+)</td>`)
)

// others fails unless the pages of the policies, their list and the file have the figures of the
// load.
func (l *load) others(when string) {
	l.t.Helper()

	refused := map[string]int64{"tight": l.refused, "wide": 0, "second": 0, "shadow": 0}
	for name, want := range refused {
		seen, all := l.series(l.get("/policies/" + name + "?range=24h"))
		if all != l.sent || seen["Refused"] != want {
			l.t.Errorf("%s: the page of %s has %v; %d were sent, and it refused %d", when, name, seen, l.sent, want)
		}
	}

	listed := map[string]int64{}
	for _, m := range ofList.FindAllStringSubmatch(l.get("/policies"), -1) {
		listed[m[1]] = l.number(m[2])
	}
	if !maps.Equal(listed, refused) {
		l.t.Errorf("%s: the list has %v, and these were refused: %v", when, listed, refused)
	}

	l.file(when, ofAll+"&range=24h", map[string]int64{"": l.sent})

	want := map[string]int64{"": l.sent}
	for name := range policies {
		want[name] = l.sent
		l.file(when, "/policies/"+name+"?range=24h", map[string]int64{name: l.sent})
	}
	l.file(when, "/?app=shop&range=24h", want)
}

// file fails unless the file that a page leads to has counts of these sums, by policy.
func (l *load) file(when, page string, want map[string]int64) {
	l.t.Helper()

	link := ofFile.FindStringSubmatch(l.get(page))
	if link == nil {
		l.t.Fatalf("%s leads to no file", page)
	}

	rows, err := csv.NewReader(strings.NewReader(l.get(html.UnescapeString(link[1])))).ReadAll()
	if err != nil {
		l.t.Fatal(err)
	}

	sums := map[string]int64{}
	for _, row := range rows[1:] {
		policy := slices.Index(rows[0], "policy")
		for _, n := range row[policy+1 : len(row)-1] { // the last are those that were lost
			sums[row[policy]] += l.number(n)
		}
	}

	if !maps.Equal(sums, want) {
		l.t.Errorf("%s: the file of %s has %v, want %v", when, page, sums, want)
	}
}

// get returns the text of a page.
func (l *load) get(path string) string {
	l.t.Helper()
	r, err := l.client.Get("http://" + l.console.address + path)
	if err != nil {
		l.t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		l.t.Fatalf("%s: %d %v\n%s", path, r.StatusCode, err, text)
	}
	return string(text)
}

// number reads a number as pages show it.
func (l *load) number(text string) int64 {
	l.t.Helper()
	n, err := strconv.ParseInt(strings.ReplaceAll(text, ",", ""), 10, 64)
	if err != nil {
		l.t.Error(err)
	}
	return n
}

// instances fails unless the three instances are listed.
func (l *load) instances() {
	l.t.Helper()

	var list struct {
		Instances []struct {
			ID, Process, Store string
			ClockOffsetMS      int64 `json:"clock_offset_ms"`
		}
	}

	l.call("GET", "/api/instances", nil, &list)
	names, processes := map[string]int{}, map[string]bool{}
	for _, i := range list.Instances {
		names[i.ID]++
		processes[i.Process] = true

		// Beside the 90 seconds that are meant, an offset is an error of the measurement.
		off := time.Duration(i.ClockOffsetMS) * time.Millisecond
		if i.ID == "skewed" {
			off -= 90 * time.Second
		}
		test.AtMost(l.t, "the offset of "+i.ID+" beside the true one", off.Abs(), time.Second)
	}

	if names["twin"] != 2 || names["skewed"] != 1 || len(processes) != 3 {
		l.t.Errorf("the instances are %+v", list)
	}
}

// kill kills an instance right after a load. What it has not written yet is lost, and
// nothing else.
func (l *load) kill(address string, stop func(os.Signal)) {
	l.t.Helper()
	before := l.sent
	l.send(100, address)
	stop(syscall.SIGKILL)
	requests, decisions := l.shown()
	if got := requests.total(); got < before || got > l.sent {
		l.t.Errorf("after a kill the console says %v and %v; %d requests were written before, and %d sent in all",
			requests, decisions, before, l.sent)
	}
	l.t.Logf("the instance that was killed lost %d of its last 100 requests", l.sent-requests.total())
}

// fromSQL fails unless the database alone says the same, once the minutes are collected.
func (l *load) fromSQL() {
	test.Long(l.t, "it waits for the end of a minute")
	time.Sleep(live) // so that no reading from before the kill is shown
	before, decisions := l.shown()

	client := redis.NewClient(&redis.Options{Addr: l.redis})
	defer client.Close()

	time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute))) // when the console collects
	l.settles(func() error {
		// Without the keys of Redis the figures come from the database alone.
		back := l.aside(client)
		defer back()
		time.Sleep(live) // so that no reading with the counts of Redis is shown
		after, later := l.shown()
		if !maps.Equal(before, after) || fmt.Sprint(decisions) != fmt.Sprint(later) {
			return fmt.Errorf("Redis said %v and %v, and the database says %v and %v", before, decisions, after, later)
		}
		return nil
	})
}

// settles calls f until it returns nil.
func (l *load) settles(f func() error) {
	l.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			l.t.Error(err)
			return
		}
	}
}

// aside renames the keys of the counts in Redis. back gives them their names again.
func (l *load) aside(client *redis.Client) (back func()) {
	l.t.Helper()

	rename := func(pattern string, to func(string) string) {
		keys, err := client.Keys(l.t.Context(), pattern).Result()
		if err != nil || len(keys) == 0 {
			l.t.Fatal(keys, err)
		}

		for _, k := range keys {
			err := client.Rename(l.t.Context(), k, to(k)).Err()
			if redis.HasErrorPrefix(err, "ERR no such key") { // it has expired
				continue
			}
			if err != nil {
				l.t.Fatal(err)
			}
		}
	}

	const kept = "aside:"
	rename("hg:{stats:shop}:*", func(k string) string { return kept + k })
	return func() { rename(kept+"*", func(k string) string { return strings.TrimPrefix(k, kept) }) }
}
