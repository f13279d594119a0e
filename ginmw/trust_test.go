package ginmw_test

import (
	"bytes"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/ginmw"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
)

// written returns a logger and its output.
func written() (*slog.Logger, *bytes.Buffer) {
	var b bytes.Buffer
	return slog.New(slog.NewTextHandler(&b, nil)), &b
}

func TestTrustWarnsOnceOfForgeableKey(t *testing.T) {
	clientIP := ginmw.Key(func(c *gin.Context) (string, bool) { return c.ClientIP(), true })
	remoteIP := ginmw.Key(func(c *gin.Context) (string, bool) { return c.RemoteIP(), true })
	byParam := ginmw.Key(func(c *gin.Context) (string, bool) { return c.Param("id"), true })
	right := keyfuncs.MustForwardedIP(keyfuncs.Proxies{Trusted: []string{"192.0.2.0/24"}})

	all, one := []string{"0.0.0.0/0", "::/0"}, []string{"192.0.2.0/24"}
	// A client that sends the header chooses the key if Gin trusts every peer.
	rows := []struct {
		name    string
		trusted []string
		key     core.KeyFunc
		header  string
		want    int
	}{
		{"all proxies are trusted", all, clientIP, "X-Forwarded-For", 1},
		{"all proxies are trusted, another header", all, clientIP, "X-Real-Ip", 1},
		{"as part of a key", all, keyfuncs.Join(keyfuncs.Route, clientIP), "X-Forwarded-For", 1},
		// No warning: nothing to be trusted came, or the key does not follow the header.
		{"no header", all, clientIP, "X-Other", 0},
		{"proxies are named", one, clientIP, "X-Forwarded-For", 0},
		{"no proxy is trusted", nil, clientIP, "X-Forwarded-For", 0},
		{"the key is the peer", all, remoteIP, "X-Forwarded-For", 0},
		{"the key is something else", all, byParam, "X-Forwarded-For", 0},
		{"the key does not ask Gin", all, right, "X-Forwarded-For", 0},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			logger, log := written()
			r := rule("100/1m")
			r.Key = row.key

			e := engine(hello, ginmw.New(newLimiter(t, limiter.Config{Rules: []limiter.Rule{r}, Logger: logger})))
			if row.header == "X-Real-Ip" {
				e.RemoteIPHeaders = []string{row.header}
			}
			if err := e.SetTrustedProxies(row.trusted); err != nil {
				t.Fatal(err)
			}

			for range 3 {
				// The warning comes once, and has no address of a client.
				request := httptest.NewRequest("GET", "/users/1", nil)
				request.Header.Set(row.header, "198.51.100.77")
				e.ServeHTTP(httptest.NewRecorder(), request)
			}

			if got := strings.Count(log.String(), "code=HG002"); got != row.want ||
				strings.Contains(log.String(), "198.51") {
				t.Errorf("warned %d times, want %d:\n%s", got, row.want, log)
			}
		})
	}
}

func TestTrustChecksThousandRequests(t *testing.T) {
	for quiet, want := range map[int]int{999: 1, 1000: 0} {
		logger, log := written()
		r := rule("100/1m")
		r.Key = ginmw.Key(func(c *gin.Context) (string, bool) { return c.ClientIP(), true })
		e := engine(hello, ginmw.New(newLimiter(t, limiter.Config{Rules: []limiter.Rule{r}, Logger: logger})))
		// Only the first thousand requests are examined.
		for range quiet {
			get(e, "/users/1")
		}

		request := httptest.NewRequest("GET", "/users/1", nil)
		request.Header.Set("X-Forwarded-For", "198.51.100.77")
		e.ServeHTTP(httptest.NewRecorder(), request)

		if got := strings.Count(log.String(), "code=HG002"); got != want {
			t.Errorf("after %d: warned %d times, want %d", quiet, got, want)
		}
	}
}
