package nethttp_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

func TestMarkNotOfRefusal(t *testing.T) {
	h := nethttp.New(limited(t, "1/1m fixed-window"))(http.HandlerFunc(hello))
	get(h, "/")
	w := get(h, "/")
	if w.Code != 429 || markIn(w.Header()) != "" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

// markIn returns the mark, a name that no header can have.
func markIn(h http.Header) string {
	for name := range h {
		if strings.Contains(name, " ") {
			return name
		}
	}
	return ""
}

// Servers other than those of net/http send every value in the header map, whatever its
// name is. The mark has none.
func TestMarkHasNoValue(t *testing.T) {
	marks := 0
	inner := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for name, values := range w.Header() {
			if strings.Contains(name, " ") {
				marks++
				if len(values) != 0 {
					t.Errorf("%q has %q", name, values)
				}
			}
		}
		w.WriteHeader(204)
	})
	h := nethttp.New(limited(t, "2/1m fixed-window"))(nethttp.New(limited(t, "2/1m fixed-window"))(inner))
	if get(h, "/"); marks != 1 {
		t.Errorf("%d marks", marks)
	}
}

// The mark is not sent to the client. A request with the mark in its headers, which
// servers reject, is counted too.
func TestMarkNeitherSentNorForged(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		l, mark := limited(t, "2/1m fixed-window"), ""
		h := nethttp.New(l)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mark = markIn(w.Header())
			hello(w, r)
		}))

		server := httptest.NewUnstartedServer(h)
		// HTTP/2 has another way to send headers, which the mark must not take either.
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
			if mark == "" || markIn(answer.Header) != "" ||
				answer.StatusCode != want || (answer.ProtoMajor == 2) != http2 {
				t.Errorf("request %d: %s %d %v", i, answer.Proto, answer.StatusCode, answer.Header)
			}

			for name := range answer.Header {
				if strings.Contains(strings.ToLower(name), "headgate") {
					t.Errorf("sent %q", name)
				}
			}
		}

		// The request has the mark that the limiter left in the map, and is counted all the same.
		r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
		r.Header[mark] = []string{""}
		if h.ServeHTTP(w, r); w.Code != 429 {
			t.Errorf("forged: %d", w.Code)
		}
	}
}

// foreign is the writer of a server that may send every entry of the header map, as adapters to
// the events of a platform do.
type foreign struct{ http.ResponseWriter }

// Nothing of the library's own is in such a map, and a request that meets a limiter twice is
// counted once all the same; the headers of two limiters are merged.
func TestMarkIsNotLeftToOtherServers(t *testing.T) {
	outer, inner := limited(t, "9/1m fixed-window"), limited(t, "2/1h fixed-window")
	var headers []http.Header
	h := http.Handler(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { headers = append(headers, w.Header().Clone()) }))
	// The request meets each limiter twice, in turn.
	for _, l := range []*limiter.Limiter{inner, outer, inner, outer} {
		h = nethttp.New(l)(h)
	}

	statuses := []int{}
	for range 3 {
		w := httptest.NewRecorder()
		h.ServeHTTP(foreign{w}, httptest.NewRequest("GET", "/", nil))
		statuses = append(statuses, w.Code)

		if name := markIn(w.Header()); name != "" {
			t.Errorf("the answer has %q", name)
		}
	}

	if !slices.Equal(statuses, []int{200, 200, 429}) || len(headers) != 2 {
		t.Fatalf("%v, %d requests passed", statuses, len(headers))
	}

	// Each request took one unit of the two, and the headers are those of the smaller limit.
	for i, got := range headers {
		if limit, left := got.Get("X-RateLimit-Limit"),
			got.Get("X-RateLimit-Remaining"); limit != "2" || left != fmt.Sprint(1-i) {
			t.Errorf("%s of %s left", left, limit)
		}
		if n := strings.Count(got.Get("RateLimit"), ";r="); n != 1 { // both have the name default
			t.Errorf("RateLimit %s", got.Get("RateLimit"))
		}
	}
}
