package ginmw_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/ginmw"
	"github.com/headgate/headgate/limiter"
)

// engine has the middleware before handler, which serves /users/:id.
func engine(handler gin.HandlerFunc, use ...gin.HandlerFunc) *gin.Engine {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.Use(use...)
	e.Any("/users/:id", handler)
	return e
}

func hello(c *gin.Context) {
	if limiter.Degraded(c.Request.Context()) {
		c.String(200, "cheap")
		return
	}
	c.String(200, "hello")
}

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w
}

func TestOptionsReplaceTheAnswersAndSkip(t *testing.T) {
	own := func(c *gin.Context, a *limiter.Admission) { c.String(418, a.Outcome().String()) }
	opts := []ginmw.Option{ginmw.WithRefused(own), ginmw.WithFailed(own),
		ginmw.WithSkip(func(c *gin.Context) bool { return c.Param("id") == "health" })}
	l := limited(t, "1/1m fixed-window")
	e := engine(hello, ginmw.New(l, opts...))
	for range 5 {
		if w := get(e, "/users/health"); w.Code != 200 || len(w.Header()["Ratelimit"]) != 0 {
			t.Errorf("%d %v", w.Code, w.Header())
		}
	}
	wantLeft(t, l, 1)
	get(e, "/users/1")
	if w := get(e, "/users/1"); w.Code != 418 || w.Body.String() != "refused" || w.Header().Get("Retry-After") != "60" {
		t.Errorf("%d %q %v", w.Code, w.Body, w.Header())
	}
	down := newLimiter(t, limiter.Config{Store: downStore{}, Rules: []limiter.Rule{rule(t, "1/1s")}, OnStoreError: limiter.FailClosed})
	if w := get(engine(hello, ginmw.New(down, opts...)), "/users/1"); w.Code != 418 || w.Body.String() != "failed" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}

func TestRulesSeeTheRequestAsItIsAndNoForgedAddress(t *testing.T) {
	var got []string
	spy := rule(t, "9/1m")
	spy.Key = func(r core.Request) (string, bool) {
		got = append([]string{r.Method(), r.Path(), r.Route(), r.RemoteAddr()}, r.Header("Host")...)
		got = append(got, r.Header("X-Forwarded-For")...)
		return "", r.Context() != nil
	}
	e := engine(hello, ginmw.New(newLimiter(t, limiter.Config{Rules: []limiter.Rule{spy}})))
	r := httptest.NewRequest("GET", "http://api.example/users/%37", nil)
	r.Header["X-Forwarded-For"] = []string{"6.6.6.6", "7.7.7.7"}
	e.ServeHTTP(httptest.NewRecorder(), r)
	want := []string{"GET", "/users/7", "/users/:id", "192.0.2.1:1234", "api.example", "6.6.6.6", "7.7.7.7"}
	if len(got) != len(want) {
		t.Fatalf("got %q", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %q, want %q", got[i], want[i])
		}
	}
}

func TestAKeyFunctionMayKnowTheContext(t *testing.T) {
	r := rule(t, "1/1m")
	r.Key = ginmw.Key(func(c *gin.Context) (string, bool) { return c.Param("id"), true })
	e := engine(hello, ginmw.New(newLimiter(t, limiter.Config{Rules: []limiter.Rule{r}})))
	for i, want := range []int{200, 200, 429} {
		if w := get(e, []string{"/users/1", "/users/2", "/users/1"}[i]); w.Code != want {
			t.Errorf("request %d: %d, want %d", i, w.Code, want)
		}
	}
	if key, ok := r.Key(nil); key != "" || !ok {
		t.Errorf("another framework's request: %q, %t", key, ok)
	}
}

func TestUnitsAreGivenBackByStatus(t *testing.T) {
	for _, recovery := range []string{"outside", "inside"} {
		r := rule(t, "5/1m fixed-window")
		r.RefundIf = func(status int) bool { return status >= 500 }
		l := newLimiter(t, limiter.Config{Rules: []limiter.Rule{r}})
		recovers := gin.RecoveryWithWriter(io.Discard)
		use := []gin.HandlerFunc{recovers, ginmw.New(l)}
		if recovery == "inside" {
			use = []gin.HandlerFunc{ginmw.New(l), recovers}
		}
		e := engine(func(c *gin.Context) {
			switch c.Param("id") {
			case "panic":
				panic("boom")
			case "bad":
				c.Status(502)
			default:
				c.Status(404)
			}
		}, use...)
		for _, row := range []struct {
			path string
			left int64
		}{{"/users/1", 4}, {"/users/bad", 4}, {"/users/panic", 4}, {"/users/2", 3}} {
			get(e, row.path)
			wantLeft(t, l, row.left)
		}
	}
}

func TestALeaseEndsWithItsRequestHoweverItEnds(t *testing.T) {
	l := limited(t, "2 concurrent ttl=1h")
	e := engine(func(c *gin.Context) {
		wantLeft(t, l, 1)
		if limiter.FromContext(c.Request.Context()) == nil {
			t.Error("the handler cannot renew")
		}
		if c.Param("id") == "panic" {
			panic(http.ErrAbortHandler)
		}
	}, ginmw.New(l))
	for range 5 {
		get(e, "/users/1")
		func() {
			defer func() {
				if got := recover(); got != http.ErrAbortHandler {
					t.Errorf("recovered %v", got)
				}
			}()
			get(e, "/users/panic")
		}()
		wantLeft(t, l, 2)
	}
}

func TestAHijackedConnectionHoldsItsLeaseUntilItIsClosed(t *testing.T) {
	l := limited(t, "2 concurrent ttl=1h")
	for _, take := range []func(*gin.Context) (net.Conn, error){
		func(c *gin.Context) (net.Conn, error) { conn, _, err := c.Writer.Hijack(); return conn, err },
		func(c *gin.Context) (net.Conn, error) {
			conn, _, err := http.NewResponseController(c.Writer).Hijack()
			return conn, err
		},
	} {
		taken, returned := make(chan net.Conn, 1), make(chan struct{})
		e := engine(func(c *gin.Context) {
			conn, err := take(c)
			if err != nil {
				t.Error(err)
			}
			taken <- conn
		}, ginmw.New(l))
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(returned)
			e.ServeHTTP(w, r)
		}))
		client, err := net.DialTimeout("tcp", server.Listener.Addr().String(), 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(client, "GET /users/1 HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		conn := <-taken
		<-returned
		wantLeft(t, l, 1)
		_ = conn.Close()
		wantLeft(t, l, 2)
		_ = client.Close()
		server.Close()
	}
}

func TestARefusalStopsTheChainButNotWhatWrapsIt(t *testing.T) {
	var after []int
	l := limited(t, "1/1h")
	e := engine(hello, func(c *gin.Context) { c.Next(); after = append(after, c.Writer.Status()) }, ginmw.New(l))
	get(e, "/users/1")
	get(e, "/users/1")
	if len(after) != 2 || after[0] != 200 || after[1] != 429 {
		t.Errorf("statuses %v", after)
	}
}

func TestAClientThatLeftIsNoticed(t *testing.T) {
	var seen error
	spy := rule(t, "9/1m")
	spy.Key = func(r core.Request) (string, bool) { seen = r.Context().Err(); return "", true }
	ctx, leave := context.WithCancel(context.Background())
	leave()
	e := engine(hello, ginmw.New(newLimiter(t, limiter.Config{Rules: []limiter.Rule{spy}})))
	e.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/users/1", nil).WithContext(ctx))
	if seen != context.Canceled {
		t.Errorf("%v", seen)
	}
}
