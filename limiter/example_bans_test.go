package limiter_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/store/memstore"
)

// A caller who goes on after refusals is banned, and twice as long the next time.
func ExampleRule_ban() {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	now := start
	login := limiter.Rule{
		Name:  "login",
		Key:   keyfuncs.RemoteIP,
		Limit: core.MustParseLimit("2/1m fixed-window"),
		Ban:   core.MustParseBan("3/5m for 10m max 24h"),
	}
	l := limiter.MustNew(limiter.Config{
		Store: memstore.MustNew(memstore.Options{Clock: func() int64 { return now.UnixMicro() }}),
		Rules: []limiter.Rule{login},
	})
	server := nethttp.New(l)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))

	ask := func(times int, at time.Duration) {
		for range times {
			now = start.Add(at)
			w := httptest.NewRecorder()
			server.ServeHTTP(w, httptest.NewRequest("POST", "/login", nil))
			var problem struct{ Type string }
			_ = json.Unmarshal(w.Body.Bytes(), &problem) // there is no body for a 200
			_, kind, _ := strings.Cut(problem.Type, "#")
			line := fmt.Sprint(now.Format("15:04:05 "), w.Code, " ", w.Header().Get("Retry-After"), " ", kind)
			fmt.Println(strings.TrimSpace(line))
		}
	}

	// The third refusal is the ban. Nine minutes later it holds, and a minute after that it is
	// over.
	ask(5, 0)
	ask(1, 9*time.Minute)
	ask(5, 10*time.Minute)

	banned, err := l.Bans(context.Background())
	for _, b := range banned {
		fmt.Println(b.Rule, b.Key, "until", time.UnixMicro(b.Until).UTC().Format("15:04:05"))
		err = l.Lift(context.Background(), b.Rule, b.Key)
	}
	fmt.Println(err)
	ask(1, 11*time.Minute)
	// Output:
	// 12:00:00 200
	// 12:00:00 200
	// 12:00:00 429 60 quota-exceeded
	// 12:00:00 429 60 quota-exceeded
	// 12:00:00 429 600 abnormal-usage-detected
	// 12:09:00 429 60 abnormal-usage-detected
	// 12:10:00 200
	// 12:10:00 200
	// 12:10:00 429 60 quota-exceeded
	// 12:10:00 429 60 quota-exceeded
	// 12:10:00 429 1200 abnormal-usage-detected
	// login 192.0.2.1 until 12:30:00
	// <nil>
	// 12:11:00 200
}
