package nethttp_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

// written is a logger and what it was told.
func written() (*slog.Logger, *bytes.Buffer) {
	var b bytes.Buffer
	return slog.New(slog.NewTextHandler(&b, nil)), &b
}

func TestALimiterThatIsMetTwiceCountsOnce(t *testing.T) {
	shadow := rule(t, "5/1m fixed-window")
	shadow.OnLimit = limiter.Shadow
	lease := rule(t, "5 concurrent ttl=1m")
	lease.RefundIf = func(int) bool { return false }
	down := limiter.Config{Store: downStore{}, Rules: []limiter.Rule{rule(t, "5/1m")}}
	rows := []struct {
		name   string
		config limiter.Config
		during int64 // units left
	}{
		{"default", limiter.Config{Rules: []limiter.Rule{rule(t, "5/1m fixed-window")}}, 4},
		{"no headers", limiter.Config{Rules: []limiter.Rule{rule(t, "5/1m fixed-window")}, Headers: limiter.NoHeaders}, 4},
		{"shadow", limiter.Config{Rules: []limiter.Rule{shadow}}, 4},
		{"leases", limiter.Config{Rules: []limiter.Rule{lease}}, 4},
		{"failing open", down, -1},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			logger, log := written()
			row.config.Logger = logger
			faults := 0
			row.config.OnError = func(context.Context, error) { faults++ }
			l := newLimiter(t, row.config)
			limit, calls := nethttp.New(l), 0
			h := limit(limit(limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				calls++
				if row.during < 0 {
					return
				}
				wantLeft(t, l, row.during)
			}))))
			get(h, "/")
			if calls != 1 || strings.Count(log.String(), "code=HG004") != 1 {
				t.Errorf("%d calls, told\n%s", calls, log)
			}
			if want := 0; row.during >= 0 && faults != want || row.during < 0 && faults != 1 {
				t.Errorf("%d errors", faults)
			}
		})
	}
}

func TestALimiterMetOnceOnEachOfManyRequestsIsNoMistake(t *testing.T) {
	logger, log := written()
	l := newLimiter(t, limiter.Config{Rules: []limiter.Rule{rule(t, "5/1m fixed-window")}, Logger: logger})
	h := nethttp.New(l)(http.HandlerFunc(hello))
	for range 4 {
		get(h, "/")
	}
	wantLeft(t, l, 1)
	if log.Len() > 0 {
		t.Errorf("told\n%s", log)
	}
}

func TestDifferentLimitersAroundOneAnotherBothCount(t *testing.T) {
	for _, style := range []limiter.HeaderStyle{0, limiter.NoHeaders} {
		a := newLimiter(t, limiter.Config{Rules: []limiter.Rule{rule(t, "5/1m fixed-window")}, Headers: style})
		b := newLimiter(t, limiter.Config{Rules: []limiter.Rule{rule(t, "9/1m fixed-window")}})
		c := newLimiter(t, limiter.Config{Rules: []limiter.Rule{rule(t, "7/1m fixed-window")}})
		A, B, C := nethttp.New(a), nethttp.New(b), nethttp.New(c)
		get(A(B(A(C(B(C(A(http.HandlerFunc(hello)))))))), "/")
		wantLeft(t, a, 4)
		wantLeft(t, b, 8)
		wantLeft(t, c, 6)
	}
}

func TestARefusalIsNoMarkAndASkippedRequestIsCountedInside(t *testing.T) {
	l := limited(t, "1/1m fixed-window")
	skipping := nethttp.New(l, nethttp.WithSkip(func(*http.Request) bool { return true }))
	h := skipping(nethttp.New(l)(http.HandlerFunc(hello)))
	if w := get(h, "/"); w.Code != 200 {
		t.Errorf("%d", w.Code)
	}
	wantLeft(t, l, 0)
	w := get(h, "/")
	if w.Code != 429 || markIn(w.Header()) != "" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

// markIn is the name that no header can have.
func markIn(h http.Header) string {
	for name := range h {
		if strings.Contains(name, " ") {
			return name
		}
	}
	return ""
}

func TestEveryEntryOfTheHeadersHasAValue(t *testing.T) {
	h := nethttp.New(limited(t, "2/1m fixed-window"))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		marks := 0
		for name, values := range w.Header() {
			if len(values) != 1 {
				t.Errorf("%q has %d values", name, len(values))
			}
			if strings.Contains(name, " ") {
				marks++
			}
		}
		if marks != 1 {
			t.Errorf("%d marks", marks)
		}
	}))
	get(h, "/")
}

func TestAFallbackWorksWhereverItIsMounted(t *testing.T) {
	soft := rule(t, "1/1m fixed-window")
	soft.OnLimit = limiter.Degrade
	l := newLimiter(t, limiter.Config{Rules: []limiter.Rule{soft}})
	spare := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Spare", "1")
		w.WriteHeader(203)
		_, _ = io.WriteString(w, "spare")
	})
	h := nethttp.New(l)(nethttp.New(l, nethttp.WithDegraded(spare))(http.HandlerFunc(hello)))
	if w := get(h, "/"); w.Body.String() != "hello" {
		t.Errorf("%q", w.Body)
	}
	if w := get(h, "/"); w.Code != 203 || w.Body.String() != "spare" || w.Header().Get("X-Spare") != "1" {
		t.Errorf("%d %q %v", w.Code, w.Body, w.Header())
	}
}

// The mark is not sent back, and a request that has its name in its headers, which
// no server lets in, is counted all the same.
func TestNoClientCanForgeOrSeeTheMark(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		l, mark := limited(t, "2/1m fixed-window"), ""
		h := nethttp.New(l)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mark = markIn(w.Header())
			hello(w, r)
		}))
		server := httptest.NewUnstartedServer(h)
		server.EnableHTTP2 = http2
		server.StartTLS()
		defer server.Close()
		for i, want := range []int{200, 200, 429} {
			answer, err := server.Client().Get(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
			if mark == "" || markIn(answer.Header) != "" || answer.StatusCode != want || (answer.ProtoMajor == 2) != http2 {
				t.Errorf("request %d: %s %d %v", i, answer.Proto, answer.StatusCode, answer.Header)
			}
			for name := range answer.Header {
				if strings.Contains(strings.ToLower(name), "headgate") {
					t.Errorf("sent %q", name)
				}
			}
		}
		r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
		r.Header[mark] = []string{""}
		if h.ServeHTTP(w, r); w.Code != 429 {
			t.Errorf("forged: %d", w.Code)
		}
	}
}
