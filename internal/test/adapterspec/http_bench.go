package adapterspec

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

// overHTTP is the transport of HTTP.
type overHTTP struct {
	t *testing.T
	HTTPFramework
	client *http.Client
	addr   string // of the server that was started last
}

// newHTTP returns a transport whose client uses one connection as long as it sends one
// request after another.
func newHTTP(t *testing.T, f HTTPFramework) *overHTTP {
	connections := &http.Transport{DisableCompression: true}
	t.Cleanup(connections.CloseIdleConnections)
	return &overHTTP{t: t, HTTPFramework: f, client: &http.Client{
		Transport:     connections,
		Timeout:       patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// An httpBench is a bench for the promises that only HTTP has.
type httpBench struct {
	*bench
	*overHTTP
}

// onHTTP returns a promise that only HTTP has.
func onHTTP(hold func(*httpBench)) func(*bench) {
	return func(b *bench) { hold(&httpBench{b, b.transport.(*overHTTP)}) }
}

// row runs f as a subtest, on a bench of its own.
func (h *httpBench) row(name string, f func(*httpBench)) {
	h.Helper()
	h.bench.row(name, onHTTP(f))
}

// serve starts the app. Without a handler it answers "ok".
func (h *httpBench) serve(a HTTPApp) {
	h.Helper()
	h.listen(a)
}

func (o *overHTTP) listen(a HTTPApp) {
	o.t.Helper()
	if a.Handler == nil {
		a.Handler = func(x Exchange) error { return x.Reply(200, "ok") }
	}
	o.addr = o.Serve(o.t, a)
}

func (o *overHTTP) start(a app) {
	o.t.Helper()
	o.listen(httpApp(a))
}

// httpApp returns the app in terms of HTTP.
func httpApp(a app) HTTPApp {
	own := func(f func(turn, *limiter.Admission) error) func(Exchange, *limiter.Admission) error {
		if f == nil {
			return nil
		}
		return func(x Exchange, admission *limiter.Admission) error { return f(httpTurn{x}, admission) }
	}

	h := HTTPApp{Limiter: a.limiter, Skip: a.skip, Refused: own(a.refused), Failed: own(a.failed),
		SecondConfig: a.secondConfig, Recovered: a.recovered}
	if a.handler != nil {
		h.Handler = func(x Exchange) error { return a.handler(httpTurn{x}) }
	}

	// Those around have no handler of their own, as requests only pass through them.
	for _, around := range a.around {
		h.Around = append(h.Around, httpApp(around))
	}
	return h
}

// An httpTurn is an exchange as a turn.
type httpTurn struct{ Exchange }

func (h httpTurn) say(text string) error { return h.Reply(200, text) }

func (h httpTurn) answer(o ownAnswer, text string) error { return h.Reply(ownStatuses[o], text) }

var ownStatuses = map[ownAnswer]int{ownRefused: 420, ownFailed: 521}

// ask sends a request, GET / unless the first line is another method and path. The lines after
// it are headers.
func (o *overHTTP) ask(ctx context.Context, text string) Answer {
	o.t.Helper()
	got, err := o.exchange(o.request(text).WithContext(ctx))
	if err != nil && ctx.Err() == nil {
		o.t.Error(err)
	}
	return got
}

func (o *overHTTP) forms() []form {
	ask := func(method string) func(string) Answer {
		return func(fields string) Answer { return o.ask(o.t.Context(), method+" /\n"+fields) }
	}
	return []form{
		{name: "GET", as: func(a Answer) Answer { return a }, ask: ask("GET"), ownErrors: true},
		{name: "HEAD", as: Answer.forHEAD, ask: ask("HEAD")},
	}
}

func (o *overHTTP) openEndless(l *limiter.Limiter, end func(context.Context)) (leave func()) {
	o.t.Helper()
	o.listen(HTTPApp{Limiter: l, Handler: func(x Exchange) error {
		if len(x.Request().Header("X-Stream")) == 0 {
			return x.Reply(200, "ok")
		}

		// The stream may outlive the handler, and the exchange does not.
		ctx := x.Context()
		return x.Stream("text/event-stream", func(send func(string) error) error {
			if end != nil {
				defer end(ctx)
			}
			for {
				if err := send("data: 1\n\n"); err != nil {
					return nil
				}
			}
		})
	}})

	response := o.get("GET /\nX-Stream: 1")
	if _, err := response.Body.Read(make([]byte, 1)); err != nil {
		o.t.Fatal(err)
	}
	return func() { response.Body.Close() }
}

// request returns a request for the text "METHOD /path", with a header in each line
// after the first, or for GET / with a header in each line.
func (o *overHTTP) request(text string) *http.Request {
	o.t.Helper()
	first, lines, _ := strings.Cut(text, "\n")
	method, path, _ := strings.Cut(first, " ")

	// Without a first line of its own the text has headers alone.
	if text == "" || strings.HasSuffix(method, ":") {
		method, path, lines = "GET", "/", text
	}
	r, err := http.NewRequest(method, "http://"+o.addr+path, nil)
	if err != nil {
		o.t.Fatal(err)
	}

	list := fieldsOf(o.t, lines)
	for i := 0; i < len(list); i += 2 {
		r.Header.Add(list[i], list[i+1])
	}
	return r
}

// fieldsOf returns the names and values of lines in turns.
func fieldsOf(t testing.TB, lines string) (list []string) {
	t.Helper()
	for line := range strings.Lines(lines) {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if !ok {
			t.Fatalf("%q is not a field", line)
		}
		list = append(list, name, value)
	}
	return list
}

func (o *overHTTP) exchange(r *http.Request) (Answer, error) {
	response, err := o.client.Do(r)
	if err != nil {
		return Answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answerOf(response, string(body)), err
}

func answerOf(response *http.Response, body string) Answer {
	a := Answer{Status: response.StatusCode, Header: map[string]string{}, Body: body}
	for name, lines := range maps.All(response.Header) {
		a.Header[name] = strings.Join(lines, " | ")
	}
	delete(a.Header, "Date")
	return a
}

// get sends a request and returns its answer before its body has been read.
func (o *overHTTP) get(text string) *http.Response {
	o.t.Helper()
	response, err := o.client.Do(o.request(text))
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { response.Body.Close() })
	return response
}

// dial connects to the server.
func (o *overHTTP) dial() net.Conn {
	o.t.Helper()
	conn, err := net.Dial("tcp", o.addr)
	if err != nil {
		o.t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { conn.Close() })
	return conn
}

func (o *overHTTP) pkg() string             { return o.Package }
func (o *overHTTP) userKey() core.KeyFunc   { return o.User }
func (o *overHTTP) noRequest() core.Request { return o.NoRequest }
func (o *overHTTP) blindToLeaving() bool    { return o.BlindToLeaving }
