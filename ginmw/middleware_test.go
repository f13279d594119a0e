package ginmw_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/ginmw"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

// engine serves /users/:id by handler, with middleware around it.
func engine(handler gin.HandlerFunc, use ...gin.HandlerFunc) *gin.Engine {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.Use(use...)
	e.Any("/users/:id", handler)
	return e
}

func hello(c *gin.Context) { c.String(200, "hello") }

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w
}

func TestWriterHijackHoldsLease(t *testing.T) {
	l := limited(t, "2 concurrent ttl=1h")
	// Gin has a method of its own for it, and net/http's controller finds the same.
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

		// The handler has returned, and the connection holds its lease until it is closed.
		conn := <-taken
		<-returned
		wantLeft(t, l, 1)

		_ = conn.Close()
		wantLeft(t, l, 2)

		_ = client.Close()
		server.Close()
	}
}

func TestRefusalStopsHandlersInside(t *testing.T) {
	var after []int
	l := limited(t, "1/1h")
	e := engine(hello, func(c *gin.Context) { c.Next(); after = append(after, c.Writer.Status()) }, ginmw.New(l))
	get(e, "/users/1")
	get(e, "/users/1")
	if len(after) != 2 || after[0] != 200 || after[1] != 429 {
		t.Errorf("statuses %v", after)
	}
}

// gin.Recovery inside the middleware answers a panic before it reaches the middleware.
// The middleware that answers errors is after the limiter, or around it, where its status is
// not known: but a request with an error is no success.
func TestRefundIfOfAnError(t *testing.T) {
	// The middleware that answers errors sees them once the handlers have returned.
	answer := func(c *gin.Context) {
		c.Next()
		if len(c.Errors) > 0 {
			c.JSON(http.StatusUnauthorized, gin.H{})
		}
	}

	for name, row := range map[string]struct {
		around bool
		status int // that the handler sets, or 0
		want   int
	}{
		// The limiter knows what was sent. Around it an error without a status counts as 500,
		// though the client will get 401.
		"answered after the limiter":       {want: 401},
		"answered around it":               {around: true, want: 500},
		"with a status, around it":         {around: true, status: 403, want: 403},
		"with a status, after the limiter": {status: 403, want: 401},
	} {
		got := 0
		r := rule("1000/1h")
		r.RefundIf = func(status int) bool {
			got = status
			return false
		}

		limit := ginmw.New(limiter.MustNew(limiter.Config{Rules: []limiter.Rule{r}}))
		e := gin.New()
		if row.around {
			e.Use(answer, limit)
		} else {
			e.Use(limit, answer)
		}

		e.GET("/", func(c *gin.Context) {
			if row.status != 0 {
				c.Status(row.status)
			}
			_ = c.Error(errors.New("no"))
		})

		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))

		if got != row.want || w.Code != 401 {
			t.Errorf("%s: RefundIf got %d, want %d; the client got %d", name, got, row.want, w.Code)
		}
	}
}

func TestRefundIfRecoveryInside(t *testing.T) {
	r := rule("5/1m fixed-window")
	// Panics that Recovery answers inside are a 500 for the limiter too.
	r.RefundIf = func(status int) bool { return status >= 500 }
	l := newLimiter(t, limiter.Config{Rules: []limiter.Rule{r}})

	e := engine(func(c *gin.Context) {
		switch c.Param("id") {
		case "panic":
			panic("boom")
		case "bad":
			c.Status(502)
		default:
			c.Status(404)
		}
	}, ginmw.New(l), gin.RecoveryWithWriter(io.Discard))

	for _, row := range []struct {
		// Only an answer that is no fault keeps its unit.
		path string
		left int64
	}{{"/users/1", 4}, {"/users/bad", 4}, {"/users/panic", 4}, {"/users/2", 3}} {
		get(e, row.path)
		wantLeft(t, l, row.left)
	}
}

func TestRoute(t *testing.T) {
	var routes []string
	spy := rule("9/1m")
	spy.Key = func(r core.Request) (string, bool) {
		routes = append(routes, r.Route())
		return "", true
	}

	e := engine(hello, ginmw.New(newLimiter(t, limiter.Config{Rules: []limiter.Rule{spy}})))
	get(e, "/users/7")
	get(e, "/elsewhere")

	if want := []string{"/users/:id", ""}; !slices.Equal(routes, want) {
		t.Errorf("got %q, want %q", routes, want)
	}
}

func TestMiddlewareAroundAndInsideEngine(t *testing.T) {
	l := limited(t, "5/1m fixed-window")
	get(nethttp.New(l)(engine(hello, ginmw.New(l))), "/users/1")
	wantLeft(t, l, 4)
}

// The headers of a limiter around the engine and of one inside it are merged.
func TestHeadersAroundAndInsideEngine(t *testing.T) {
	for _, limits := range [][2]string{{"9/1m fixed-window", "2/1m fixed-window"},
		{"2/1m fixed-window", "9/1m fixed-window"}} {
		// Either one may be the smaller. Clients see that of 2 in any case.
		inside := engine(hello, ginmw.New(limited(t, limits[1])))
		around := nethttp.New(limited(t, limits[0]))(inside)

		for _, want := range []string{"1", "0", "0"} {
			w := get(around, "/users/7")
			if limit, left := w.Header().Get("X-RateLimit-Limit"),
				w.Header().Get("X-RateLimit-Remaining"); limit != "2" || left != want {
				t.Errorf("%s: %d, limit %s, %s left, want %s", limits, w.Code, limit, left, want)
			}
		}
	}
}

// lateGzip decides by the first Write whether it compresses, as gin-contrib/gzip does.
type lateGzip struct{ gin.ResponseWriter }

func (w lateGzip) Write(p []byte) (int, error) {
	if w.Status() >= 400 {
		w.Header().Del("Content-Encoding")
	}
	return w.ResponseWriter.Write(p)
}

func TestRefusalInsideACompressor(t *testing.T) {
	e := gin.New()
	// Where the compressor decides with the first byte, the refusal has to have its status by then.
	e.Use(func(c *gin.Context) {
		c.Header("Content-Encoding", "gzip")
		c.Writer = lateGzip{c.Writer}
	}, ginmw.New(newLimiter(t, limiter.Config{Rules: []limiter.Rule{rule("1/1h")}})))

	e.GET("/", func(c *gin.Context) { c.Status(204) })
	for _, want := range []struct {
		status   int
		encoding string
	}{{204, "gzip"}, {429, ""}} {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))

		if got := w.Result().Header.Get("Content-Encoding"); w.Code != want.status || got != want.encoding {
			t.Errorf("%d with the encoding %q, want %v", w.Code, got, want)
		}
	}
}

// buffering keeps the body until the handlers have returned, as a writer that makes an ETag does.
type buffering struct {
	gin.ResponseWriter
	body []byte
	now  int // calls of WriteHeaderNow before the body
}

func (w *buffering) Write(p []byte) (int, error) {
	w.body = append(w.body, p...)
	return len(p), nil
}

func (w *buffering) WriteHeaderNow() { w.now++ }

// A writer that buffers sends its own header before the body of a refusal.
func TestRefusalInsideABuffer(t *testing.T) {
	e := gin.New()
	e.Use(func(c *gin.Context) {
		w := &buffering{ResponseWriter: c.Writer}
		c.Writer = w
		c.Next()
		// To send the header now would be too early for the Etag.
		if w.now > 0 {
			t.Errorf("the header was sent %d times before the body", w.now)
		}

		w.Header().Set("Etag", `"1"`)
		_, _ = w.ResponseWriter.Write(w.body)
	}, ginmw.New(newLimiter(t, limiter.Config{Rules: []limiter.Rule{rule("1/1h")}})))

	e.GET("/", func(c *gin.Context) { c.String(200, "hello") })
	// A refusal is written as an answer of the handler is.
	for _, want := range []int{200, 429} {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))

		if w.Code != want || w.Header().Get("Etag") != `"1"` || w.Body.Len() == 0 {
			t.Errorf("%d with %v, want %d", w.Code, w.Header(), want)
		}
	}
}
