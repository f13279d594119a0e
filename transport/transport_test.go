package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

// body is the body of a request, which knows whether it was closed.
type requestBody struct {
	io.Reader
	closed int
}

func (b *requestBody) Close() error { b.closed++; return nil }

// events is an observer that keeps what it is told.
type events struct {
	mu  sync.Mutex
	all []string
}

func (o *events) Observe(_ context.Context, e Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, fmt.Sprintf("%s %s %d try=%d waited=%s retry=%s err=%v", e.Key, e.Outcome, e.Status, e.Try,
		e.Waited, e.RetryAfter, e.Err))
}

// bubble runs f in fake time and without jitter.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	withJitter(t, 0)
	synctest.Test(t, f)
}

// away is a base to which a request takes the time there, and its answer the time back. It sleeps,
// so it is for bubbles only.
type away struct {
	http.RoundTripper
	there, back time.Duration
}

func (a away) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(a.there)
	defer time.Sleep(a.back)
	return a.RoundTripper.RoundTrip(r)
}

// send sends a request and returns the status, or what a LimitedError says.
func send(t *testing.T, tr http.RoundTripper, r *http.Request) string {
	t.Helper()

	resp, err := tr.RoundTrip(r)
	var limited *LimitedError
	switch {
	case errors.As(err, &limited):
		if !errors.Is(err, limiter.ErrLimited) {
			t.Errorf("%v is not ErrLimited", err)
		}
		return "limited " + limited.RetryAfter.String()
	case err != nil:
		return err.Error()
	}
	defer resp.Body.Close()
	return fmt.Sprint(resp.StatusCode)
}

func TestRetryAfterIsWaitedFor(t *testing.T) {
	// All ways to say three seconds: as a time, a date, a quota or GitHub's epoch.
	for name, fields := range map[string]string{
		"seconds": "429 Retry-After: 3", "a date": "429 Retry-After: Sat, 01 Jan 2000 00:00:03 GMT",
		"503": "503 Retry-After: 3", "403": "403 Retry-After: 3",
		"a quota": `429 RateLimit: "a";r=0;t=3`,
		"GitHub":  "403 X-RateLimit-Remaining: 0|X-RateLimit-Reset: 946684803",
		"used up": `200 RateLimit: "a";r=0;t=3`,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				// MaxWait is exactly the wait, which still fits.
				s := saying(fields, "200")
				tr := MustNew(Config{Base: s, MaxWait: 3 * time.Second})

				if got := send(t, tr, get(t.Context())); got != fields[:3] {
					t.Errorf("got %s", got)
				}

				// The refusal itself is passed on; the next request is sent after its time.
				if got := send(t, tr, get(t.Context())); got != "200" ||
					!slices.Equal(s.times(), []time.Duration{0, 3 * time.Second}) {
					t.Errorf("got %s at %v", got, s.times())
				}
			})
		})
	}
}

// The wait is known to be too long, so no time is lost, and nothing is sent.
func TestWaitThatIsTooLongIsAnErrorAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		// After three of the ten seconds seven are left, more than MaxWait.
		s, o := saying("429 Retry-After: 10", "200"), &events{}
		tr := MustNew(Config{Base: s, MaxWait: 5 * time.Second, Observer: o})

		send(t, tr, get(t.Context()))
		time.Sleep(3 * time.Second)

		// Neither may time pass, nor the body stay open, nor anything be sent.
		begun, body := time.Now(), &requestBody{Reader: strings.NewReader("x")}
		r := get(t.Context())
		r.Body = body
		if got := send(t, tr, r); got != "limited 7s" || time.Since(begun) != 0 || body.closed != 1 {
			t.Errorf("%s after %s, body closed %d times", got, time.Since(begun), body.closed)
		}

		if len(s.times()) != 1 {
			t.Errorf("%d requests were sent", len(s.times()))
		}

		// After five, the wait would fit MaxWait but not the deadline of the caller.
		time.Sleep(2 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		if got := send(t, tr, get(ctx)); got != "limited 5s" {
			t.Errorf("with a deadline: %s", got)
		}

		// Without the deadline it fits.
		if got := send(t, tr, get(t.Context())); got != "200" {
			t.Errorf("with a wait that fits: %s", got)
		}

		// The observer hears of each request, and of how long it has waited.
		want := []string{
			"api.test refused 429 try=0 waited=0s retry=10s err=<nil>",
			`api.test limited 0 try=0 waited=0s retry=7s err=transport: a request to "api.test" was not sent, by what the server said: headgate: over the limit; retry after 7s`,
			`api.test limited 0 try=0 waited=0s retry=5s err=transport: a request to "api.test" was not sent, by what the server said: headgate: over the limit; retry after 5s`,
			"api.test answered 200 try=0 waited=5s retry=0s err=<nil>",
		}
		if !slices.Equal(o.all, want) {
			t.Errorf("observed\n%s", strings.Join(o.all, "\n"))
		}
	})
}

// Those that wait already, and would have to wait for too long since another refusal, do not.
func TestRefusalEndsWaitsThatWouldBeTooLong(t *testing.T) {
	bubble(t, func(t *testing.T) {
		// The first answer takes half a second, in which nine others queue up behind it.
		s := saying("429 Retry-After: 3600")
		tr := MustNew(Config{Base: away{s, time.Second / 2, 0}})

		var all sync.WaitGroup
		for i := range 10 {
			time.Sleep(time.Millisecond)

			// The first is refused by the server, the others by what it has said: after half a
			// second, and not after an hour.
			all.Go(func() {
				want := "limited 1h0m0s"
				if i == 0 {
					want = "429"
				}

				begun := time.Now()
				if got := send(t, tr, get(t.Context())); got != want || time.Since(begun) > time.Second/2 {
					t.Errorf("%d: %s after %s", i, got, time.Since(begun))
				}
			})
		}

		all.Wait()
		if n := len(s.times()); n != 1 {
			t.Errorf("%d requests were sent", n)
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		// A second of the thirty passes, and then the caller gives up.
		s, cause := saying("429 Retry-After: 30", "200"), errors.New("not wanted any longer")
		tr := MustNew(Config{Base: s})

		send(t, tr, get(t.Context()))
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })

		body := &requestBody{Reader: strings.NewReader("x")}
		r := get(ctx)
		r.Body = body
		begun := time.Now()
		if _, err := tr.RoundTrip(r); err != cause || time.Since(begun) != time.Second || body.closed != 1 {
			t.Errorf("%v after %s, body closed %d times", err, time.Since(begun), body.closed)
		}

		// A request whose context has ended already is not sent.
		if _, err := tr.RoundTrip(r); err != cause || len(s.times()) != 1 {
			t.Errorf("a context that has ended: %v", err)
		}

		// The one that left holds up no other: the next is sent at its time.
		if got := send(t, tr, get(t.Context())); got != "200" || time.Since(begun) != 30*time.Second {
			t.Errorf("the next: %s after %s", got, time.Since(begun))
		}
	})
}

// Its turn comes at the instant at which it is not wanted any longer.
func TestWaitThatEndsInItsTurnKeepsNoOther(t *testing.T) {
	for range 50 { // which of both is seen first is left to chance
		bubble(t, func(t *testing.T) {
			// The turn comes after a second, and so does the end of the context.
			s := saying("429 Retry-After: 1", "200")
			tr := MustNew(Config{Base: s})

			send(t, tr, get(t.Context()))
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			var all sync.WaitGroup
			all.Go(func() {
				if resp, err := tr.RoundTrip(get(ctx)); err == nil {
					resp.Body.Close()
				}
			})

			synctest.Wait()

			// Whichever is first, the next request gets its turn at the same instant.
			begun := time.Now()
			if got := send(t, tr, get(t.Context())); got != "200" || time.Since(begun) != time.Second {
				t.Errorf("%s after %s", got, time.Since(begun))
			}

			all.Wait()
		})
	}
}

// While the first answer has not come, nothing is known. The waits are bounded nevertheless.
func TestSlowServerDoesNotHoldUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		// Answers take a minute, and the waits are bounded by six seconds.
		tr := MustNew(Config{Base: away{saying("200"), time.Minute, 0}, MaxWait: 6 * time.Second})

		var all sync.WaitGroup
		count := map[string]int{}
		var mu sync.Mutex

		for range 100 {
			all.Go(func() {
				got := send(t, tr, get(t.Context()))
				mu.Lock()
				count[got]++
				mu.Unlock()
			})
		}

		all.Wait()
		// 1 at once, then 2, 4, 8, 16, 32 under way at the seconds 1 to 5, and 64 or none at 6.
		if sent := count["200"]; sent < 32 || sent > 64 || sent+count["limited 0s"] != 100 {
			t.Error(count)
		}
	})
}

func TestSpreadSpacesEvenly(t *testing.T) {
	// Four are left of ten seconds: spread, they are two seconds apart; in a burst they are sent at
	// once.
	for pace, want := range map[Pace][]time.Duration{
		Spread: {0, 2 * time.Second, 4 * time.Second, 6 * time.Second, 8 * time.Second},
		Burst:  {0, 0, 0, 0, 0},
	} {
		// Each answer counts one less, in the window's two seconds less.
		bubble(t, func(t *testing.T) {
			s := saying(`200 RateLimit: "a";r=4;t=10`, `200 RateLimit: "a";r=3;t=8`, `200 RateLimit: "a";r=2;t=6`,
				`200 RateLimit: "a";r=1;t=4`, `200 RateLimit: "a";r=0;t=2`)

			tr := MustNew(Config{Base: s, Pace: pace})
			for range 5 {
				send(t, tr, get(t.Context()))
			}

			if !slices.Equal(s.times(), want) {
				t.Errorf("pace %d: %v", pace, s.times())
			}
		})
	}
}

func TestRetries(t *testing.T) {
	// with makes a request: by its method, with a body or without, one that can be had again or
	// not, and a header.
	with := func(method string, body, again bool, header string) func(context.Context) *http.Request {
		return func(ctx context.Context) *http.Request {
			r := get(ctx)
			r.Method = method
			if body {
				r.Body = &requestBody{Reader: strings.NewReader("body")}
			}
			if again {
				r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("body")), nil }
			}
			if header != "" {
				r.Header.Set(header, "1")
			}
			return r
		}
	}

	for name, row := range map[string]struct {
		answers []string
		request func(context.Context) *http.Request
		want    string
		at      []int // seconds
	}{
		// A refusal by a limit was not carried out, so any method may be sent again.
		"GET after 429": {[]string{"429 Retry-After: 2", "200"}, with("GET", false, false, ""), "200", []int{0, 2}},
		"twice": {[]string{"429 Retry-After: 2", "429 Retry-After: 3", "200"},
			with("GET", false, false, ""), "200", []int{0, 2, 5}},
		"no more than Retries": {[]string{"429 Retry-After: 2"}, with("GET", false, false, ""), "429",
			[]int{0, 2, 4}},
		"POST after 429": {[]string{"429 Retry-After: 2", "200"}, with("POST", true, true, ""), "200", []int{0, 2}},
		"POST after 403": {[]string{"403 Retry-After: 2", "200"}, with("POST", true, true, ""), "200", []int{0, 2}},
		"POST without a body": {[]string{"429 Retry-After: 2", "200"}, with("POST", false, false, ""),
			"200", []int{0, 2}},

		// A body that was read cannot be sent again.
		"a body that cannot be had again": {[]string{"429 Retry-After: 2", "200"}, with("PUT", true, false, ""),
			"429", []int{0}},

		// An outage may strike halfway, so only what is idempotent is sent again, and only after a
		// time that was told.
		"GET after 503": {[]string{"503 Retry-After: 2", "200"}, with("GET", false, false, ""), "200", []int{0, 2}},
		"POST after 503 may be carried out": {[]string{"503 Retry-After: 2", "200"}, with("POST", true, true, ""),
			"503", []int{0}},
		"POST after 503 with a key": {[]string{"503 Retry-After: 2", "200"},
			with("POST", true, true, "Idempotency-Key"), "200", []int{0, 2}},
		"503 without a time": {[]string{"503", "200"}, with("GET", false, false, ""), "503", []int{0}},

		// The waits together stay within MaxWait, which is twenty seconds here.
		"a wait that does not fit": {[]string{"429 Retry-After: 21", "200"}, with("GET", false, false, ""),
			"429", []int{0}},
		"waits that do not fit together": {[]string{"429 Retry-After: 15", "429 Retry-After: 15", "200"},
			with("GET", false, false, ""), "429", []int{0, 15}},

		// Without a time the waits are a second, and then twice that.
		"no time at all, and then twice that": {[]string{"429", "429", "200"}, with("GET", false, false, ""), "200",
			[]int{0, 1, 3}},
		"another error": {[]string{"500 Retry-After: 2", "200"}, with("GET", false, false, ""), "500", []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				// The server reads each body, which has to be whole at each attempt.
				s := saying(row.answers...)
				inner := s.handler
				s.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Body != nil {
						if text, _ := io.ReadAll(r.Body); string(text) != "body" {
							t.Errorf("the body is %q", text)
						}
					}
					inner.ServeHTTP(w, r)
				})

				r := row.request(t.Context())
				before := *r

				tr := MustNew(Config{Base: s, Retries: 2, MaxWait: 20 * time.Second})
				if got := send(t, tr, r); got != row.want {
					t.Errorf("got %s", got)
				}

				var at []int
				for _, d := range s.times() {
					at = append(at, int(d/time.Second))
				}
				if !slices.Equal(at, row.at) {
					t.Errorf("sent at %v, want %v", at, row.at)
				}

				// A RoundTripper must not change the request of its caller.
				if r.Body != before.Body || r.Method != before.Method {
					t.Error("the request was changed")
				}
			})
		})
	}
}

// A server that closes its own key for ever does so for a day, and grows nothing.
func TestHostileServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		// The server tells more than three years, and a quota with more yet.
		s := saying("429 Retry-After: 99999999|RateLimit: \"a\";r=0;t=999999999999999", "200")
		tr := MustNew(Config{Base: s})

		send(t, tr, get(t.Context()))

		// A thousand requests later nothing has grown, and the time is still a day.
		for range 1000 {
			if got := send(t, tr, get(t.Context())); got != "limited 24h0m0s" {
				t.Fatal(got)
			}
		}

		// Another host is not punished for it.
		other := get(t.Context())
		other.URL.Host = "other.test"
		if got := send(t, tr, other); got != "200" {
			t.Errorf("another key: %s", got)
		}

		// The day less the longest wait has passed: the next request waits for what is left and is
		// sent.
		time.Sleep(24*time.Hour - DefaultMaxWait)
		if got := send(t, tr, get(t.Context())); got != "200" {
			t.Errorf("after a day: %s", got)
		}
	})
}

func TestNumberOfKeysIsBounded(t *testing.T) {
	// A crawler has a new host for each request, so the gates of those that are idle are forgotten,
	// the oldest first.
	tr := MustNew(Config{Base: saying("200"), MaxKeys: 10})
	for i := range 1000 {
		r := get(t.Context())
		r.URL.Host = fmt.Sprintf("h%d.test", i)
		send(t, tr, r)
		if n := len(tr.gates.gates); n > 10 || tr.gates.idle != n {
			t.Fatalf("%d keys, %d idle, after %d", n, tr.gates.idle, i+1)
		}
	}

	for i := range 10 {
		if tr.gates.gates[fmt.Sprintf("h%d.test", 990+i)] == nil {
			t.Errorf("key %d was used lately, and is forgotten", 990+i)
		}
	}
}

func TestHostIsTheKey(t *testing.T) {
	// A name in any case, with its port if it has one, and never with a password.
	for text, want := range map[string]string{"http://API.test/x": "api.test", "https://a.test:8443/": "a.test:8443",
		"http://u:p@a.test": "a.test"} {
		r, err := http.NewRequest("GET", text, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := host(r); got != want {
			t.Errorf("%s: %q", text, got)
		}
	}

	if got := host(&http.Request{}); got != "" {
		t.Errorf("without a URL: %q", got)
	}
}

func TestJitterOnlyLengthensWaits(t *testing.T) {
	// A wait grows by a 64th at most, and by no more than ten seconds; below 64 ns that is nothing.
	longest := time.Duration(0)
	for _, wait := range []time.Duration{0, 1, 63, 64, time.Millisecond, time.Second, time.Minute, time.Hour,

		believed} {
		for range 1000 {
			j := jitter(wait)
			longest = max(longest, j)
			if j < 0 || j > wait/64 || j > 10*time.Second {
				t.Fatalf("%s of %s", j, wait)
			}
		}
	}

	// It is used, too: a jitter of zero would pass all of the above.
	if longest < 9*time.Second {
		t.Errorf("never more than %s", longest)
	}
}

func TestOwnLimitsAreTaken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		// The server allows much, the own limit one request a second.
		s := saying(`200 RateLimit: "a";r=1000;t=3600`)
		l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{{Limit: core.MustParseLimit("1/1s")}}})
		tr := MustNew(Config{Base: s, Limiter: l, MaxWait: 2 * time.Second})

		var all sync.WaitGroup
		count := map[string]int{}
		var mu sync.Mutex

		// Three requests fit into the wait of two seconds: at once and after one and two.
		for range 5 {
			all.Go(func() {
				got := send(t, tr, get(t.Context()))
				mu.Lock()
				count[got]++
				mu.Unlock()
			})
			synctest.Wait()
		}

		all.Wait()
		if !slices.Equal(s.times(), []time.Duration{0, time.Second, 2 * time.Second}) || count["200"] != 3 ||
			count["limited 3s"] != 2 {
			t.Errorf("%v at %v", count, s.times())
		}
	})
}

// Units that were taken while the server refused another request are given back.
func TestOwnLimitsAreGivenBackWhenTheServerRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const left = `RateLimit: "a";r=1000;t=3600`
		s := saying("200 "+left, "429 Retry-After: 10", "200 "+left)
		l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{{Limit: core.MustParseLimit("2/10s")}}})

		// A unit comes back each five seconds; answers take a second and a half.
		tr := MustNew(Config{Base: away{s, 1500 * time.Millisecond, 0}, Limiter: l})

		send(t, tr, get(t.Context())) // at 0 s

		// The second request takes the other unit and is refused.
		var all sync.WaitGroup
		all.Go(func() { send(t, tr, get(t.Context())) }) // refused at 3 s, and until 13 s
		time.Sleep(time.Millisecond)

		// The third waits for its unit until 5 s, and is then held by the refusal until 13 s.
		all.Go(func() { send(t, tr, get(t.Context())) }) // has its unit at 5 s, and another one at 13 s
		all.Wait()

		if got := s.times(); !slices.Equal(got, []time.Duration{0, 1500 * time.Millisecond, 13 * time.Second}) {
			t.Error(got)
		}

		// Its first unit was given back: had it kept both, none would remain.
		if d, err := l.Peek(t.Context(), "api.test"); err != nil || d[0].Decision.Remaining != 1 {
			t.Errorf("%+v, %v", d, err)
		}
	})
}

func TestLeaseIsHeldUntilTheBodyEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		// One request may be under way, and the answer's body is what keeps it there.
		l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{{Limit: core.MustParseLimit("1 concurrent ttl=1m")}}})
		tr := MustNew(Config{Limiter: l, MaxWait: time.Second,
			Base: roundTripper(func(*http.Request) (*http.Response, error) {
				return response(200, "", "x"), nil
			})})

		// A caller that reads a body to its end need not close it first.
		for _, end := range []func(*http.Response){
			func(resp *http.Response) { resp.Body.Close() },
			func(resp *http.Response) { io.ReadAll(resp.Body) },
		} {
			resp, err := tr.RoundTrip(get(t.Context()))
			if err != nil {
				t.Fatal(err)
			}

			if got := send(t, tr, get(t.Context())); !strings.HasPrefix(got, "limited") {
				t.Errorf("while the body is open: %s", got)
			}

			end(resp)
			if got := send(t, tr, get(t.Context())); got != "200" {
				t.Errorf("after its end: %s", got)
			}
		}
	})
}

// The body of an answer 101 is also written to.
func TestLeaseKeepsABodyThatIsWritten(t *testing.T) {
	// A body that is a Writer too has to remain one, although it is wrapped.
	var written strings.Builder
	resp := &http.Response{Body: struct {
		io.ReadCloser
		io.Writer
	}{io.NopCloser(strings.NewReader("")), &written}}

	released := 0
	holdUntilRead(resp, func() { released++ })
	if _, err := io.WriteString(resp.Body.(io.Writer), "x"); err != nil || written.String() != "x" || released != 0 {
		t.Errorf("%q, %v, released %d times", written.String(), err, released)
	}

	// Closing twice is allowed, and releases once.
	resp.Body.Close()
	resp.Body.Close()
	if released != 1 {
		t.Errorf("released %d times", released)
	}
}

// GitHub names its secondary limit in the body of a 403. The program reads it, and then the key is
// closed. Nothing is read ahead.
func TestSecondaryLimitInABody(t *testing.T) {
	const fields = "X-RateLimit-Remaining: 9\nX-RateLimit-Reset: 3600\nX-RateLimit-Resource: core"

	// The two texts in which GitHub names the limit, another 403, and the text beyond what is
	// searched.
	for body, closed := range map[string]bool{
		`{"message": "You have exceeded a secondary rate limit."}`:       true,
		`{"documentation_url": "https://x.test/#secondary-rate-limits"}`: true,
		`{"message": "Must have admin rights"}`:                          false,
		strings.Repeat(" ", maxSniffed) + "secondary rate limit":         false,
	} {
		bubble(t, func(t *testing.T) {
			// The body comes byte by byte, so the text is cut at every place, and what was read of
			// it is known.
			var read strings.Builder
			tr := MustNew(Config{MaxWait: time.Second, Base: roundTripper(func(*http.Request) (*http.Response, error) {
				resp := response(403, fields, "")
				resp.Body = io.NopCloser(io.TeeReader(iotest.OneByteReader(strings.NewReader(body)), &read))
				return resp, nil
			})})

			// The second refusal in a row doubles the wait of a minute.
			for i, wait := range []time.Duration{time.Minute, 2 * time.Minute} {
				read.Reset()
				resp, err := tr.RoundTrip(get(t.Context()))
				if err != nil || read.Len() > 0 {
					t.Fatalf("%v, %d bytes are read ahead", err, read.Len())
				}

				if text, err := io.ReadAll(resp.Body); string(text) != body || err != nil {
					t.Errorf("%q, %v", text, err)
				}

				if !closed {
					continue
				}

				if got := send(t, tr, get(t.Context())); got != "limited "+wait.String() {
					t.Errorf("refusal %d: %s", i+1, got)
				}
				time.Sleep(wait)
			}
		})
	}
}

// A store that cannot decide is the business of the limiter.
type brokenStore struct{}

var errBroken = errors.New("broken")

func (brokenStore) Apply(context.Context, []core.Op, []core.Decision) error { return errBroken }

func TestFailureModeOfOwnLimits(t *testing.T) {
	for mode, want := range map[limiter.FailureMode]error{limiter.FailOpen: nil, limiter.FailClosed: errBroken} {
		l := limiter.MustNew(limiter.Config{Store: brokenStore{}, OnStoreError: mode,
			Rules: []limiter.Rule{{Limit: core.MustParseLimit("1/1s")}}})
		resp, err := MustNew(Config{Base: saying("200"), Limiter: l}).RoundTrip(get(t.Context()))
		if !errors.Is(err, want) || (err == nil) != (want == nil) || (resp == nil) != (want != nil) {
			t.Errorf("mode %d: %v, %v", mode, resp, err)
		}
		var limited *LimitedError
		if want != nil && (!errors.As(err, &limited) || !limited.Own) {
			t.Errorf("mode %d: %#v", mode, err)
		}
	}
}

// Neither an error nor a panic of Base keeps others waiting.
func TestFailureOfBase(t *testing.T) {
	bubble(t, func(t *testing.T) {
		// An error, a panic, and an answer that is none, which no Base may give; then all is well.
		fails := []func() (*http.Response, error){
			func() (*http.Response, error) { return nil, errBroken },
			func() (*http.Response, error) { panic(errBroken) },
			func() (*http.Response, error) { return nil, nil },
			func() (*http.Response, error) { return response(200, "", ""), nil },
		}

		// The limit of one shows at once whether a failed request has kept its lease.
		o, n := &events{}, -1
		l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{{Limit: core.MustParseLimit("1 concurrent ttl=1m")}}})
		tr := MustNew(Config{Observer: o, Limiter: l, Base: roundTripper(func(*http.Request) (*http.Response, error) {
			n++
			return fails[n]()
		})})

		begun := time.Now()

		// A panic passes through to the caller.
		for range fails {
			func() {
				defer func() { recover() }()
				tr.RoundTrip(get(t.Context()))
			}()
		}

		// No time was lost, and no key is held up.
		if n != 3 || time.Since(begun) != 0 || tr.gates.idle != 1 {
			t.Errorf("%d requests in %s, %d keys idle", n+1, time.Since(begun), tr.gates.idle)
		}
		want := []string{
			"api.test failed 0 try=0 waited=0s retry=0s err=broken",
			"api.test failed 0 try=0 waited=0s retry=0s err=<nil>",
			"api.test answered 200 try=0 waited=0s retry=0s err=<nil>",
		}
		if !slices.Equal(o.all, want) {
			t.Errorf("observed\n%s", strings.Join(o.all, "\n"))
		}
	})
}

func TestNewReportsEveryMistake(t *testing.T) {
	// Nil pointers in interfaces are the mistakes that are hardest to find later.
	_, err := New(Config{Base: (*http.Transport)(nil), MaxWait: -1, Retries: -1, Pace: 7, MaxKeys: -1,
		Observer: (*events)(nil)})

	want := "the Base is a nil *http.Transport; leave it out for http.DefaultTransport\n" +
		"the Observer is a nil *transport.events; leave it out for none\n" +
		"MaxWait: -1ns is negative\nRetries: -1 is negative\nPace: 7 is not known\nMaxKeys: -1 is negative"
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}

	defer func() {
		if recover() == nil {
			t.Error("MustNew did not panic")
		}
	}()
	MustNew(Config{MaxWait: -1})
}

// net/http's client wraps the error, and its Timeout is a deadline.
func TestClientReturnsTheLimitedError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		client := &http.Client{Transport: MustNew(Config{Base: saying("429 Retry-After: 30", "200")}),
			Timeout: 20 * time.Second}
		resp, err := client.Get("http://api.test/")
		if err != nil || resp.StatusCode != 429 {
			t.Fatal(err)
		}

		resp.Body.Close()

		// The second request is not sent: thirty seconds are more than the twenty of the client.
		_, err = client.Get("http://api.test/")

		var limited *LimitedError
		if !errors.As(err, &limited) || limited.RetryAfter != 30*time.Second || limited.Key != "api.test" ||
			limited.Own {
			t.Errorf("%v", err)
		}
	})
}

// idle counts how often its idle connections are closed.
type idle struct {
	http.RoundTripper
	closed int
}

func (b *idle) CloseIdleConnections() { b.closed++ }

func TestCloseIdleConnectionsReachesBase(t *testing.T) {
	base := &idle{}
	client := &http.Client{Transport: MustNew(Config{Base: base})}
	client.CloseIdleConnections()
	if base.closed != 1 {
		t.Errorf("closed %d times", base.closed)
	}
	(&http.Client{Transport: MustNew(Config{Base: saying("200")})}).CloseIdleConnections() // which has no such method
}
