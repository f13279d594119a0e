package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// drain is what the engine is to a server.
type drain struct {
	mu              sync.Mutex
	began, deadline time.Time
}

func (d *drain) Shutdown(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.began = time.Now()
	d.deadline, _ = ctx.Deadline()
	return nil
}

// times returns when the shutdown began and by when it has to end.
func (d *drain) times() (began, deadline time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.began, d.deadline
}

// gateway is a server on pipes, in a synctest bubble.
type gateway struct {
	data, admin *pipes
	soft, hard  context.CancelFunc
	drain       drain
	ended       chan error
	begun       time.Time
}

func start(t *testing.T, h http.HandlerFunc, o Options) *gateway {
	t.Helper()
	g := &gateway{data: newPipes(), admin: newPipes(), ended: make(chan error, 1), begun: time.Now()}

	soft, cancelSoft := context.WithCancel(t.Context())
	hard, cancelHard := context.WithCancel(t.Context())
	g.soft, g.hard = cancelSoft, cancelHard

	o.Health = NewHealth(func() error { return nil }, nil)
	o.Drain, o.Logger = &g.drain, slog.New(slog.DiscardHandler)
	o.Ports = []Port{
		{Name: "data", Address: "data", Service: NewHTTP(Bound(h, bounds()), bounds())},
		{Name: "admin", Address: "admin", Service: NewHTTP(o.Health.Handler(), bounds()), Admin: true},
	}

	// The addresses are only names here: each leads to its pipes.
	o.Listen = func(address string) (net.Listener, error) {
		if address == "admin" {
			return g.admin, nil
		}
		return g.data, nil
	}

	go func() { g.ended <- Run(soft, hard, o) }()
	synctest.Wait()
	return g
}

// get asks on a new connection, and returns 0 if that is refused or broken off.
func get(t *testing.T, l *pipes, path string) (int, string) {
	t.Helper()
	c, err := l.dial()
	if err != nil {
		return 0, ""
	}
	defer c.Close()

	send(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, ""
	}
	body, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(body)
}

func TestRunShutsDownInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := start(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				time.Sleep(10 * time.Second)
			}
			io.WriteString(w, "done")
		}, Options{Times: times(4*time.Second, 30*time.Second)})

		check := func(when, path string, l *pipes, want int) {
			t.Helper()
			if status, body := get(t, l, path); status != want {
				t.Errorf("%s: %s is answered with %d %q, want %d", when, path, status, body, want)
			}
		}

		check("before", "/readyz", g.admin, 200)
		check("before", "/healthz", g.admin, 200)
		check("before", "/", g.admin, 404)
		check("before", "/", g.data, 200)

		slow := make(chan int)
		go func() {
			status, _ := get(t, g.data, "/slow")
			slow <- status
		}()
		synctest.Wait()

		// The signal comes while a request is under way.
		g.soft()
		synctest.Wait()

		// In the delay balancers learn that the gateway goes, and it still answers what they send.
		check("in the delay", "/readyz", g.admin, 503)
		check("in the delay", "/healthz", g.admin, 200)
		check("in the delay", "/", g.data, 200)

		if began, _ := g.drain.times(); !began.IsZero() {
			t.Error("waits were ended in the delay")
		}

		time.Sleep(5 * time.Second)
		synctest.Wait()

		check("after the delay", "/", g.data, 0)
		check("after the delay", "/readyz", g.admin, 503)
		check("after the delay", "/healthz", g.admin, 200)

		began, deadline := g.drain.times()
		if d := began.Sub(g.begun); d != 4*time.Second {
			t.Errorf("waits were ended after %v, want 4s", d)
		}

		// Of the 30 s, two are kept for the store, whose last counts are sent after all else.
		if d := deadline.Sub(g.begun); d != 28*time.Second {
			t.Errorf("waits have until %v, want 28s", d)
		}

		if status := <-slow; status != 200 {
			t.Errorf("a request that was under way is answered with %d", status)
		}
		if err := <-g.ended; err != nil {
			t.Error(err)
		}
		// http.Server.Shutdown looks for idle connections at growing intervals of up to
		// half a second.
		if d := time.Since(g.begun); d < 10*time.Second || d > 11*time.Second {
			t.Errorf("it ended after %v, want 10s", d)
		}

		check("after the end", "/healthz", g.admin, 0)
	})
}

func TestRunBreaksOffWhatDoesNotEnd(t *testing.T) {
	hangs := func(cause chan error) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/taken" {
				// What was taken over is no longer known to net/http, and has to end all the same.
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					panic(err)
				}
				defer conn.Close()
			}

			<-r.Context().Done()
			cause <- context.Cause(r.Context())
		}
	}

	for _, path := range []string{"/", "/taken"} {
		for _, second := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				cause := make(chan error, 1)
				g := start(t, hangs(cause), Options{Times: times(0, 5*time.Second)})

				go get(t, g.data, path)
				synctest.Wait()

				g.soft()
				want := 4 * time.Second // a fifth of the time-out is for the store

				// The second signal does not wait for the time-out.
				if second {
					time.Sleep(time.Second)
					g.hard()
					want = time.Second
				}

				if err := <-g.ended; !errors.Is(err, ErrCutOff) {
					t.Errorf("%s: %v", path, err)
				}

				if d := time.Since(g.begun); d != want {
					t.Errorf("%s, a second signal is %v: it ended after %v, want %v", path, second, d, want)
				}

				if err := <-cause; !errors.Is(err, errEnd) {
					t.Errorf("%s: the request ended with %v", path, err)
				}
			})
		}
	}
}

func TestRunBoundsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		few := limitConnections(l, 2)
		accepted := make(chan net.Conn)
		go func() {
			defer close(accepted)
			for {
				c, err := few.Accept()
				if err != nil {
					return
				}
				accepted <- c
			}
		}()

		go func() {
			for range 3 {
				if _, err := l.dial(); err != nil {
					t.Error(err)
				}
			}
		}()

		one := <-accepted
		<-accepted

		// The third waits in the listener until one of the two ends.
		synctest.Wait()

		select {
		case <-accepted:
			t.Error("a third connection was accepted")
		default:
		}

		// Closed twice, it leaves one place and not two.
		if err := errors.Join(one.Close(), one.Close()); err != nil {
			t.Error(err)
		}
		<-accepted

		few.Close()
		if _, open := <-accepted; open {
			t.Error("a connection was accepted after Close")
		}
	})
}

// broken is a service that fails.
type broken struct{}

func (broken) Serve(net.Listener) error       { return errors.New("it broke") }
func (broken) Shutdown(context.Context) error { return nil }

func TestRunEndsIfAServiceFails(t *testing.T) {
	err := Run(t.Context(), t.Context(), Options{
		Ports: []Port{{Name: "envoy", Address: "127.0.0.1:0", Service: broken{}}}, Times: times(0, time.Second),
		Logger: slog.New(slog.DiscardHandler),
	})
	if err == nil || err.Error() != "envoy: it broke" {
		t.Error(err)
	}
}

func TestRunServesNothingIfAPortIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	served := false
	s := NewHTTP(http.NotFoundHandler(), bounds())

	err = Run(t.Context(), t.Context(), Options{
		Ports: []Port{{Name: "proxy", Address: "127.0.0.1:0", Service: s},
			{Name: "admin", Address: l.Addr().String(), Service: s}},
		Times: times(0, time.Second), Logger: slog.New(slog.DiscardHandler), Started: func([]string) { served = true },
	})

	if err == nil || !strings.HasPrefix(err.Error(), "admin: ") || served {
		t.Errorf("%v, served is %v", err, served)
	}
}

func TestHealthIsReadyOnceAllPortsListen(t *testing.T) {
	var ready error
	reloaded := ""
	h := NewHealth(func() error { return ready }, func() string { return reloaded })
	check := func(path string, want int, text string) {
		t.Helper()
		w := httptest.NewRecorder()
		h.Handler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != want || w.Body.String() != text {
			t.Errorf("%s: %d %q, want %d %q", path, w.Code, w.Body, want, text)
		}
	}

	check("/readyz", 503, "starting\n")
	check("/healthz", 200, "ok\n")

	h.start()
	check("/readyz", 200, "ok\n")
	reloaded = "reload\n"
	check("/readyz", 200, "ok\nreload\n")

	// What is wrong with the policies is for the log: a client that can ask for readiness need not
	// learn it.
	ready = errors.New("secret")
	check("/readyz", 503, "no policies are in force\n")

	ready = nil

	// A start that comes late does not undo the end.
	h.end()
	h.start()
	check("/readyz", 503, "shutting down\n")
	check("/healthz", 200, "ok\n")
}

// times returns a function that returns the times.
func times(delay, timeout time.Duration) func() (time.Duration, time.Duration) {
	return func() (time.Duration, time.Duration) { return delay, timeout }
}
