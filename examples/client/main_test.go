package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

// gitHub answers as GitHub does: 60 requests an hour, 10 searches a minute, and 90 requests of
// either kind a minute, which is the secondary limit. A refusal is a 403.
type gitHub struct {
	core, search, secondary *limiter.Limiter

	mu       sync.Mutex
	statuses map[string]int
}

func newGitHub(primary string) *gitHub {
	return &gitHub{
		core:   limit(primary, "core"),
		search: limit("10/1m fixed-window", "search"), secondary: limit("90/1m fixed-window", ""),
		statuses: map[string]int{},
	}
}

// limit returns a limiter whose headers are GitHub's, for a resource, or nothing but Retry-After.
func limit(text, resource string) *limiter.Limiter {
	message := "API rate limit exceeded"
	c := limiter.Config{
		Rules:   []limiter.Rule{{Key: keyfuncs.Global, Limit: core.MustParseLimit(text)}},
		Headers: limiter.XRateLimit,
		CustomHeaders: func([]limiter.RuleDecision) []limiter.Header {
			return []limiter.Header{{Name: "X-Ratelimit-Resource", Value: resource}}
		},
	}

	// The secondary limit is one that no header tells of, as at GitHub.
	if resource == "" {
		message = "You have exceeded a secondary rate limit."
		c.Headers, c.CustomHeaders = limiter.NoHeaders, nil
	}

	// It refuses with a status and a text of its own, by which clients know it.
	c.Refused = limiter.Fixed(limiter.Answer{
		Status:  http.StatusForbidden,
		Headers: []limiter.Header{{Name: "Content-Type", Value: "application/json"}},
		Body:    fmt.Appendf(nil, `{"message": %q}`, message),
	})

	return limiter.MustNew(c)
}

func (g *gitHub) RoundTrip(r *http.Request) (*http.Response, error) {
	// A request is 10 ms on its way, and so is the answer: requests overlap.
	time.Sleep(10 * time.Millisecond)
	primary := g.core
	if strings.HasPrefix(r.URL.Path, "/search/") {
		primary = g.search
	}

	w := httptest.NewRecorder()
	w.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat))

	// The secondary limit counts first, since it counts every request.
	h := nethttp.New(g.secondary)(nethttp.New(primary)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	h.ServeHTTP(w, r)

	g.mu.Lock()
	g.statuses[fmt.Sprint(r.URL.Path, " ", w.Code)]++
	g.mu.Unlock()

	time.Sleep(10 * time.Millisecond)
	return w.Result(), nil
}

var hour = regexp.MustCompile(`(?m)^([0-9]{2}):[0-9]{2}:[0-9]{2} [0-9]+ 200 OK$`)

// byHour counts the pages of the output by the hour in which they came.
func byHour(out string) map[string]int {
	n := map[string]int{}
	for _, m := range hour.FindAllStringSubmatch(out, -1) {
		n[m[1]]++
	}
	return n
}

func TestPrimaryLimitIsNeverMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		server := newGitHub("60/1h fixed-window")
		fetch(&http.Client{Transport: pace(server, 3*time.Hour)}, "http://api.test/", 150, &out)
		if got := fmt.Sprint(byHour(out.String())); got != "map[00:60 01:60 02:30]" {
			t.Errorf("%s\n%s", got, out.String())
		}
		if got := fmt.Sprint(server.statuses); got != "map[/ 200:150]" {
			t.Error(got)
		}
	})
}

func TestSecondaryLimitIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		server := newGitHub("5000/1h fixed-window")
		fetch(&http.Client{Transport: pace(server, 3*time.Hour)}, "http://api.test/", 200, &out)
		// No field tells of this limit, so the requests that were sent at the same time meet it.
		if got := fmt.Sprint(server.statuses); got != "map[/ 200:200 / 403:130]" {
			t.Errorf("%s\n%s", got, out.String())
		}
	})
}

func TestSearchHasALimitOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newGitHub("60/1h fixed-window")
		client := &http.Client{Transport: pace(server, 2*time.Minute)}
		begun := time.Now()

		// The second ten searches have to wait for the next minute.
		var out bytes.Buffer
		fetch(client, "http://api.test/search/code", 20, &out)
		if took := time.Since(begun); took < time.Minute || took > 70*time.Second {
			t.Errorf("20 searches took %s", took)
		}

		// Requests of the other resource do not wait for those of the first.
		fetch(client, "http://api.test/", 60, io.Discard)
		if took := time.Since(begun); took > 80*time.Second {
			t.Errorf("60 other requests after %s", took)
		}

		if got := fmt.Sprint(server.statuses); got != "map[/ 200:60 /search/code 200:20]" {
			t.Error(got)
		}
	})
}

func TestClientSaysHowLongTheWaitWouldBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		fetch(&http.Client{Transport: pace(newGitHub("60/1h fixed-window"), time.Minute)}, "http://api.test/", 61, &out)
		limited := regexp.MustCompile(`was not sent, by what the server said: .*; retry after (1h|59m)`)
		if n := len(limited.FindAllString(out.String(), -1)); n != 1 || byHour(out.String())["00"] != 60 {
			t.Errorf("%d requests were not sent\n%s", n, out.String())
		}
	})
}
