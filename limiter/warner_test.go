package limiter_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/findings"
)

// journal is a log handler that keeps the code and the rule of each line.
type journal struct{ test.Log }

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// codes are those of all warnings, in order, each with its rule.
func (j *journal) codes() string {
	var list []string
	for line := range strings.Lines(j.String()) {
		_, end, _ := strings.Cut(strings.TrimSpace(line), "code=")
		end, _, _ = strings.Cut(end, " see=")
		list = append(list, strings.Replace(end, " rule=", " ", 1))
	}
	return strings.Join(list, ", ")
}

// caller is a request from an address with headers of "Name: value" lines.
func caller(peer string, headers ...string) *test.Request {
	r := &test.Request{Peer: peer, Headers: map[string][]string{}}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Headers[name] = append(r.Headers[name], value)
	}
	return r
}

// limiterBy returns a limiter by the key that logs to the journal.
func limiterBy(t testing.TB, j *journal, key core.KeyFunc) *limiter.Limiter {
	t.Helper()
	r := rule(t, "a", "1000000/1h")
	r.Key = key
	return configured(t, limiter.Config{Store: newStore(), Rules: []limiter.Rule{r}, Logger: j.logger()})
}

func send(l *limiter.Limiter, r core.Request) { l.Admit(r).Done(200) }

func trusting(cidr ...string) core.KeyFunc {
	return keyfuncs.MustForwardedIP(keyfuncs.Proxies{Trusted: cidr})
}

func TestWarnUnheededForwardedAddressOnce(t *testing.T) {
	const client = "X-Forwarded-For: 198.51.100.7"
	rfc7239 := keyfuncs.MustForwardedIP(keyfuncs.Proxies{Trusted: []string{"10.0.0.0/8"}, Header: "Forwarded"})
	two := trusting("10.0.0.1", "10.0.0.2")
	// A key that has the peer's port differs for each connection, and yet is by the proxy.
	host := func(r core.Request) (string, bool) { return r.RemoteAddr(), true }
	rows := []struct {
		name string
		key  core.KeyFunc
		r    *test.Request
		want string
	}{
		// A proxy at a private address says whom it speaks for, and the key counts the proxy.
		{"by the peer", keyfuncs.RemoteIP, caller("10.0.0.1:80", client), "HG001 a"},
		{"by the peer on loopback", keyfuncs.RemoteIP, caller("[::1]:80", client), "HG001 a"},
		{"by the peer in a local IPv6 network", keyfuncs.RemoteIP, caller("[fd00::9]:80", client), "HG001 a"},
		{"by the peer and its port", host, caller("10.0.0.1:80", client), "HG001 a"},
		{"by the peer and the path", keyfuncs.Join(keyfuncs.Path, keyfuncs.RemoteIP), caller("10.0.0.1:80", client),
			"HG001 a"},
		{"the last line counts", keyfuncs.RemoteIP, caller("10.0.0.1:80", "X-Forwarded-For: junk", client), "HG001 a"},
		{"RFC 7239", keyfuncs.RemoteIP, caller("10.0.0.1:80", `Forwarded: for=x, for="[2001:db8::1]:80";proto=https`),
			"HG001 a"},
		{"another proxy is trusted", trusting("10.9.0.0/16"), caller("10.0.0.1:80", client), "HG001 a"},

		// No reason to warn: the header is heeded, forged by a stranger, or does not matter to the
		// key.
		{"no proxy", keyfuncs.RemoteIP, caller("10.0.0.1:80"), ""},
		{"a stranger forges", keyfuncs.RemoteIP, caller("192.0.2.1:80", client), ""},
		{"the proxy is trusted", trusting("10.0.0.0/8"), caller("10.0.0.1:80", client), ""},
		{"the proxy is trusted, RFC 7239", rfc7239, caller("10.0.0.1:80", "Forwarded: for=198.51.100.7"), ""},
		{"the client ends as the proxy", two, caller("10.0.0.1:80", "X-Forwarded-For: 110.0.0.1, 10.0.0.2"), ""},
		{"the client begins as the proxy", two, caller("10.0.0.1:80", "X-Forwarded-For: 10.0.0.15, 10.0.0.2"), ""},
		{"by the proxy and the client", keyfuncs.Join(keyfuncs.RemoteIP, two), caller("10.0.0.1:80", client), ""},
		{"one network", trusting("fd00::9"), caller("[fd00::9]:80", "X-Forwarded-For: fd00::8"), ""},
		{"an address with another in it", trusting("10.0.0.0/8"), caller("10.0.0.1:80", "X-Forwarded-For: 110.0.0.15"),
			""},
		{"two proxies", trusting("10.0.0.0/8"), caller("10.0.0.1:80", "X-Forwarded-For: 198.51.100.7, 10.0.0.2"), ""},
		{"nothing to be read", trusting("10.0.0.0/8"), caller("10.0.0.1:80", "X-Forwarded-For: unknown"), ""},
		{"the peer itself", keyfuncs.RemoteIP, caller("10.0.0.1:80", "X-Forwarded-For: 10.0.0.1"), ""},
		{"by a user", byHeader, caller("10.0.0.1:80", client, "X-Key: ann"), ""},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			j := &journal{}
			l := limiterBy(t, j, row.key)
			// The mistake is in the set-up, not in a request: more of the same add no line.
			for range 3 {
				send(l, row.r)
			}
			if got := j.codes(); got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
}

// A proxy that writes no header lets callers write it, and a socket has no address.
func TestWarnMissingAddressAtOnce(t *testing.T) {
	by := func(p keyfuncs.Proxies) core.KeyFunc { return keyfuncs.MustForwardedIP(p) }
	near := []string{"10.0.0.0/8"}
	const client = "X-Forwarded-For: 203.0.113.7"
	// This key reads a field of the concrete type and calls no method of the request.
	typed := func(r core.Request) (string, bool) { return r.(*test.Request).Peer, true }
	rows := []struct {
		name string
		key  core.KeyFunc
		r    *test.Request
		want string
	}{
		// The key would be read from a header that a trusted proxy leaves to its callers.
		{"a trusted proxy writes nothing", trusting(near...), caller("10.0.0.1:80"), "HG011 a"},
		{"a trusted proxy in IPv6", trusting("fd00::/8"), caller("[fd00::9]:80"), "HG011 a"},
		{"the last of one proxy", by(keyfuncs.Proxies{Hops: 1}), caller("192.0.2.1:80"), "HG011 a"},
		{"the last of three proxies", by(keyfuncs.Proxies{Hops: 3}), caller("192.0.2.1:80"), "HG011 a"},
		{"RFC 7239", by(keyfuncs.Proxies{Trusted: near, Header: "Forwarded"}), caller("10.0.0.1:80"), "HG011 a"},
		{"a header of one address", by(keyfuncs.Proxies{Trusted: near, Header: "X-Real-IP"}), caller("10.0.0.1:80"),
			"HG011 a"},
		{"in a tuple", keyfuncs.Join(keyfuncs.Route, trusting(near...)), caller("10.0.0.1:80"), "HG011 a"},
		{"as a second choice", keyfuncs.First(byHeader, trusting(near...)), caller("10.0.0.1:80"), "HG011 a"},
		{"a socket and a proxy that writes nothing", by(keyfuncs.Proxies{Hops: 1}), caller("@"), "HG011 a"},

		// Callers on a socket have no address, so all of them share one key.
		{"a socket", keyfuncs.RemoteIP, caller("@"), "HG010 a"},
		{"a socket without a name", keyfuncs.RemoteIP, caller(""), "HG010 a"},
		{"a socket that cannot be trusted", trusting(near...), caller("@", client), "HG010 a"},
		{"a socket in a tuple", keyfuncs.Join(keyfuncs.RemoteIP, keyfuncs.Route), caller("@"), "HG010 a"},

		// The header is there, or none is expected, or the key reads none.
		{"the proxy writes the header", trusting(near...), caller("10.0.0.1:80", client), ""},
		{"a stranger", trusting(near...), caller("192.0.2.1:80"), ""},
		{"no proxy is expected", keyfuncs.RemoteIP, caller("127.0.0.1:80"), ""},
		{"another header is missing", keyfuncs.Join(keyfuncs.RemoteIP, keyfuncs.Header("X-Tenant")),
			caller("10.0.0.1:80"), ""},
		{"a socket and a proxy", by(keyfuncs.Proxies{Hops: 1}), caller("@", client), ""},
		{"a socket and users", byHeader, caller("@"), ""},
		{"a socket and one for all", keyfuncs.Global, caller("@"), ""},
		{"a key that reads nothing else than the request", typed, caller("@"), ""},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			j := &journal{}
			l := limiterBy(t, j, row.key)
			// At once: the first such request is as wrong as the thousandth.
			for range 3 {
				send(l, row.r)
				if got := j.codes(); got != row.want {
					t.Fatalf("got %q, want %q", got, row.want)
				}
			}
		})
	}
}

func TestWarnNamesMissingHeader(t *testing.T) {
	j := &journal{}
	send(limiterBy(t, j, keyfuncs.MustForwardedIP(keyfuncs.Proxies{Trusted: []string{"10.0.0.0/8"},
		Header: "x-real-ip"})), caller("10.0.0.1:80"))
	if got := j.String(); !strings.Contains(got, "without X-Real-Ip") || strings.Contains(got, "10.0.0.1") {
		t.Error(got)
	}
}

func TestWarnOneKeyAfterAThousandRequests(t *testing.T) {
	constant := func(core.Request) (string, bool) { return "site", true }
	rows := []struct {
		name string
		key  core.KeyFunc
		odd  *test.Request // the five hundredth
		want string
	}{
		// Only a key that could tell callers apart and does not is a mistake. A constant is meant.
		{"no key tells callers apart", byHeader, caller("192.0.2.1:1"), "HG003 a"},
		{"all by way of a peer", keyfuncs.RemoteIP, caller("192.0.2.1:1"), "HG003 a"},
		{"one key differs", byHeader, caller("192.0.2.1:1", "X-Key: ann"), ""},
		{"another peer", keyfuncs.RemoteIP, caller("192.0.2.2:1"), ""},
		{"one for all, as meant", keyfuncs.Global, caller("192.0.2.1:1"), ""},
		{"one constant for all", constant, caller("192.0.2.1:1"), ""},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			j := &journal{}
			l := limiterBy(t, j, row.key)

			// A thousand requests are the sample. The odd one among them is enough to show that
			// keys differ.
			for i := 1; i < 1000; i++ {
				if i == 500 {
					send(l, row.odd)
					continue
				}
				send(l, caller("192.0.2.1:1"))
			}
			if got := j.codes(); got != "" {
				t.Fatalf("%q after 999", got)
			}

			if !l.CheckingSetup() {
				t.Fatal("the thousandth request is not examined")
			}

			// The sample is judged once. After it no request pays for an examination, whatever was
			// found.
			for range 2000 {
				send(l, caller("192.0.2.1:1"))
			}
			if got := j.codes(); got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
			if l.CheckingSetup() {
				t.Error("requests are examined for ever")
			}
		})
	}
}

func TestWarnExaminationEndsWithoutMatchingRequests(t *testing.T) {
	l := limiterBy(t, &journal{}, func(core.Request) (string, bool) { return "", false })
	for range 10_000 {
		send(l, caller("192.0.2.1:1"))
	}
	// Requests that no rule counts say nothing of keys. Ten thousand of them end the examination.
	if !l.CheckingSetup() {
		t.Error("over too early")
	}
	if send(l, caller("192.0.2.1:1")); l.CheckingSetup() {
		t.Error("requests are examined for ever")
	}
}

func TestWarnTooCostlyOnce(t *testing.T) {
	for _, onLimit := range []limiter.Action{limiter.Reject, limiter.Degrade, limiter.Shadow} {
		j := &journal{}
		r := rule(t, "a", "5/1h")
		r.OnLimit = onLimit
		cost := int64(5)
		r.Cost = func(core.Request) int64 { return cost }

		l := configured(t, limiter.Config{Store: newStore(), Rules: []limiter.Rule{r}, Logger: j.logger()})
		// A cost of 5 empties the limit and fits.
		send(l, caller("192.0.2.1:1"))
		send(l, caller("192.0.2.1:1"))
		if got := j.codes(); got != "" {
			t.Errorf("%q", got)
		}

		// A cost of 6 never fits: each such request is refused for ever, or passes uncounted under
		// a soft rule.
		cost = 6
		send(l, caller("192.0.2.1:1"))
		send(l, caller("192.0.2.1:1"))
		if got := j.codes(); got != "HG005 a" {
			t.Errorf("%s: %q", onLimit, got)
		}
	}
}

func TestWarnOnceUnderConcurrency(t *testing.T) {
	j := &journal{}
	l := limiterBy(t, j, keyfuncs.RemoteIP)

	var all sync.WaitGroup
	// Eight callers at once meet three mistakes: an address that is not heeded, one key for all,
	// and a request that is counted twice by one limiter.
	for range 8 {
		all.Go(func() {
			for range 500 {
				a := l.Admit(caller("10.0.0.1:80", "X-Forwarded-For: 198.51.100.7"))
				// The mark that the limiter leaves says that it has counted this request.
				h := map[string][]string{}
				a.SetHeaders(h)
				a.LeaveMark(h)
				l.Counted(h)
				a.Done(200)
			}
		})
	}
	all.Wait()

	for _, code := range []string{findings.Unheeded, findings.OneKey, findings.Twice} {
		if n := strings.Count(j.String(), "code="+code); n != 1 {
			t.Errorf("%s came %d times", code, n)
		}
	}
	// No other warning came of it.
	if n := strings.Count(j.String(), "\n"); n != 3 {
		t.Errorf("%d lines:\n%s", n, j)
	}
}

func TestWarnHoldsNothingThatAClientSent(t *testing.T) {
	j := &journal{}
	const mark = "198.51.100.77"
	l := limiterBy(t, j, keyfuncs.Join(keyfuncs.RemoteIP, keyfuncs.Path))
	// The address of the client, the peer and the path are what a log must not keep.
	for range 1000 {
		send(l, caller("10.0.0.1:80", "X-Forwarded-For: "+mark, "Forwarded: for="+mark))
	}

	if got := j.codes(); got != "HG001 a, HG003 a" {
		t.Errorf("%q", got)
	}
	for _, text := range []string{mark, "10.0.0.1", "/a"} {
		if strings.Contains(j.String(), text) {
			t.Errorf("%q is in\n%s", text, j)
		}
	}
}

func TestWarnDiscardingLoggerExaminesNothing(t *testing.T) {
	s := &diagnosing{mapStore: newStore()}
	l := configured(t, limiter.Config{Store: s, Rules: []limiter.Rule{rule(t, "a", "5/1h")},
		Logger: slog.New(slog.DiscardHandler)})
	if l.CheckingSetup() {
		t.Error("requests are examined")
	}

	// The warnings would not be read, so neither the request nor the store is examined for them.
	send(l, caller("10.0.0.1:80", "X-Forwarded-For: 198.51.100.7"))
	l.Warn(core.Finding{Code: "X1", Text: "text"})

	if s.asked != 0 {
		t.Error("the store was asked")
	}
}

func TestWarnUsesTheCurrentDefaultLogger(t *testing.T) {
	// Set after the limiter was made: the logger is that of the moment.
	l := configured(t, limiter.Config{Store: newStore()})
	j, before := &journal{}, slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(j.logger())

	l.Warn(core.Finding{Code: "X1", Rule: "r", Text: "text"})
	if got := j.codes(); got != "X1 r" || !strings.Contains(j.String(), `level=WARN msg="headgate: text"`) {
		t.Errorf("%s", j)
	}
}

type brokenLog struct{ slog.Handler }

func (brokenLog) Enabled(context.Context, slog.Level) bool { panic("boom") }

func TestWarnLoggerPanicIsAnError(t *testing.T) {
	var got error
	l := configured(t, limiter.Config{Store: newStore(), Logger: slog.New(brokenLog{}),
		OnError: func(_ context.Context, err error) { got = err }})
	l.Warn(core.Finding{Code: "X1"})
	if got == nil || got.Error() != `log: panic: "boom"` {
		t.Errorf("%v", got)
	}
	(*limiter.Limiter)(nil).Warn(core.Finding{})
}

func TestWarnCodesAreBounded(t *testing.T) {
	j := &journal{}
	l := configured(t, limiter.Config{Store: newStore(), Logger: j.logger()})
	// Stores and adapters choose the codes. 64 are remembered, so that made-up ones fill no memory.
	for i := range 100 {
		l.Warn(core.Finding{Code: fmt.Sprint(i)})
	}

	if n := strings.Count(j.String(), "\n"); n != 64 {
		t.Errorf("%d", n)
	}
}

// diagnosing is a store whose Diagnose returns its findings once the test allows it.
type diagnosing struct {
	*mapStore
	findings func(context.Context) []core.Finding
	asked    int
	rules    []core.Op // of the latest call
}

func (s *diagnosing) Report() events.Report { return events.Report{Diagnose: s.diagnose} }

func (s *diagnosing) diagnose(ctx context.Context, rules []core.Op) []core.Finding {
	s.asked++
	s.rules = rules
	return s.findings(ctx)
}

func TestDiagnosisDelaysNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		s := &diagnosing{mapStore: newTicking(), findings: func(context.Context) []core.Finding {
			// The store answers a second late, from the background.
			time.Sleep(time.Second)
			return []core.Finding{{Code: "HG006", Text: "a"}, {Code: "HG007", Text: "b"}}
		}}
		l := configured(t, limiter.Config{Store: s, Rules: []limiter.Rule{rule(t, "a", "50/1h")}, Logger: j.logger()})

		// The first request begins the diagnosis, and it and the next wait for none of it.
		start := time.Now()
		send(l, caller("192.0.2.1:1"))
		if _, err := l.Take(t.Context(), "k", 1); err != nil || time.Since(start) != 0 {
			t.Errorf("%v after %s", err, time.Since(start))
		}

		synctest.Wait()
		if got := j.codes(); got != "" {
			t.Errorf("%q too early", got)
		}

		// Once for the life of the limiter, though two requests came.
		time.Sleep(time.Second)
		synctest.Wait()
		if got := j.codes(); got != "HG006, HG007" || s.asked != 1 {
			t.Errorf("%q, asked %d times", got, s.asked)
		}
	})
}

func TestDiagnosisEndsWithCloseOrItsTimeout(t *testing.T) {
	for _, closes := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var ended time.Duration
			start := time.Now()
			// The store heeds its context, and panics once that ends.
			s := &diagnosing{mapStore: newTicking(), findings: func(ctx context.Context) []core.Finding {
				<-ctx.Done()
				ended = time.Since(start)
				panic("boom")
			}}
			var got error
			l := configured(t, limiter.Config{Store: s, OnError: func(_ context.Context, err error) { got = err }})

			// Without Close the context ends by its timeout of 5 s.
			want := 5 * time.Second
			if _, err := l.Take(t.Context(), "k", 1); err != nil {
				t.Error(err)
			}
			if closes {
				time.Sleep(time.Second)
				want = time.Second
				_ = l.Close()
			}

			time.Sleep(10 * time.Second)
			synctest.Wait()
			// The panic in the background reaches OnError, not the program.
			if ended != want || got == nil || got.Error() != `diagnosis: panic: "boom"` {
				t.Errorf("ended after %s with %v", ended, got)
			}
		})
	}
}

func TestWarnExaminesNewRulesAgain(t *testing.T) {
	j := &journal{}
	l := limiterBy(t, j, keyfuncs.RemoteIP)
	// A thousand requests with one key come under a and then twice under b. But a code comes once.
	for range 3 {
		for range 1000 {
			send(l, caller("192.0.2.1:1"))
		}

		b := rule(t, "b", "5/1h")
		b.Key = keyfuncs.RemoteIP
		if err := l.SetRules([]limiter.Rule{b}); err != nil {
			t.Fatal(err)
		}
	}

	if got := j.codes(); got != "HG003 a" {
		t.Errorf("%q", got)
	}

	// The code HG001 has not come yet, so it may still come for b.
	send(l, caller("10.0.0.1:80", "X-Forwarded-For: 198.51.100.7"))
	if got := j.codes(); got != "HG003 a, HG001 b" {
		t.Errorf("%q", got)
	}

	// A socket, and then a proxy that writes no header: two codes that are left.
	send(l, caller("@"))
	c := rule(t, "c", "5/1h")
	c.Key = trusting("10.0.0.0/8")
	if err := l.SetRules([]limiter.Rule{c}); err != nil || !l.CheckingSetup() {
		t.Errorf("%v, examining %t", err, l.CheckingSetup())
	}

	send(l, caller("10.0.0.1:80"))
	if got := j.codes(); got != "HG003 a, HG001 b, HG010 b, HG011 c" {
		t.Errorf("%q", got)
	}

	// The examination is over when no code is left that the rules could give.
	if err := l.SetRules([]limiter.Rule{rule(t, "d", "5/1h")}); err != nil || l.CheckingSetup() {
		t.Errorf("%v, examining %t with nothing left to warn of", err, l.CheckingSetup())
	}
}
