package requestlog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/accesslog"
	"github.com/headgate/headgate/internal/quietlog"
	"github.com/headgate/headgate/internal/test"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

// begin opens a log in a file of the test, and a switch that has it.
func begin(t *testing.T, o Options) (s *Switch, l *Log, told *test.Log) {
	t.Helper()
	told = new(test.Log)
	o.Events = quietlog.New(slog.New(slog.NewTextHandler(told, nil)))
	t.Cleanup(o.Events.Close)
	if o.Path == "" {
		o.Path = filepath.Join(t.TempDir(), "access.log")
	}

	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { l.Close() })
	s = &Switch{}
	s.Set(l)
	return s, l, told
}

// text closes a log and returns what it has written.
func text(t *testing.T, l *Log) string {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(l.options.Path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func peer(r *http.Request) string { return "192.0.2.7" }

// answered handles requests as the proxy does.
func answered(w http.ResponseWriter, r *http.Request) {
	x := Of(r.Context())
	x.Upstream, x.Attempts = "api 10.0.0.1:80", 2
	if r.URL.Path == "/refused" {
		x.Upstream, x.Attempts, x.Policy = "", 0, "login"
		w.WriteHeader(429)
	}
	io.WriteString(w, "hello")
}

func TestLineHasWhatIsKnownOfARequest(t *testing.T) {
	s, l, _ := begin(t, Options{Headers: []string{"User-Agent"}})
	h := s.Handler(http.HandlerFunc(answered), peer)
	for _, path := range []string{"/a%2Fb?token=s3cret", "/refused"} {
		r := httptest.NewRequest("GET", path, nil)
		r.Header = http.Header{"User-Agent": {"test"}, "Authorization": {"s3cret"}, RequestID: {"id-1"}}
		h.ServeHTTP(httptest.NewRecorder(), r)
	}

	// The time and the duration are the machine's, the rest is known.
	var got []string

	for line := range strings.Lines(text(t, l)) {
		var o map[string]any
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if o["time"] == "" || o["duration"].(float64) < 0 {
			t.Errorf("%v", o)
		}
		delete(o, "time")
		delete(o, "duration")
		rest, _ := json.Marshal(o) // of texts and numbers
		got = append(got, string(rest))
	}

	want := []string{
		`{"attempts":2,"bytes":5,"client_ip":"192.0.2.7","host":"example.com","method":"GET","path":"/a%2Fb",` +
			`"request_id":"id-1","status":200,"upstream":"api 10.0.0.1:80","user_agent":"test"}`,
		`{"bytes":5,"client_ip":"192.0.2.7","host":"example.com","method":"GET","path":"/refused",` +
			`"policy":"login","request_id":"id-1","status":429,"user_agent":"test"}`,
	}

	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the lines are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What is written is what the reader of logs reads, whatever a client sends.
func TestTheReaderOfLogsReadsTheLines(t *testing.T) {
	targets := []string{"/", "/a%2Fb%22", "/é", `/a"b\c`, "/x?q=1", "/\u2028", "/\xff", "/[28/Nov/2026:07:37:17"}
	const agent = "curl \"8\"\\ é\t\x7f"
	for _, combined := range []bool{false, true} {
		s, l, _ := begin(t, Options{Combined: combined, Query: true, Headers: []string{"User-Agent", "Referer"}})
		h := s.Handler(http.HandlerFunc(answered), peer)
		for _, target := range targets {
			r := &http.Request{Method: "GET", RequestURI: target, URL: &url.URL{Path: target}, Host: "shop.example",
				Proto: "HTTP/1.1", Header: http.Header{"User-Agent": {agent}, "Referer": {"http://a/\n"}}}
			h.ServeHTTP(httptest.NewRecorder(), r)
		}

		// The file is whole before it is read.
		written := text(t, l)

		if n := strings.Count(written, "\n"); n != len(targets) || !utf8.ValidString(written) {
			t.Errorf("combined %v: %d lines for %d requests", combined, n, len(targets))
		}
		reader, err := accesslog.New("access.log", strings.NewReader(written), accesslog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, target := range targets {
			e, err := reader.Next()
			if err != nil {
				t.Fatalf("combined %v: %v\n%s", combined, err, written)
			}

			// All but one come back as they were.
			want := target
			if !combined && target == "/\xff" {
				want = "/ÿ" // JSON has no bytes
			}
			read := []string{e.Method, e.Target, e.Address, e.Agent, e.Referer, e.Forwarded, fmt.Sprint(e.Status)}
			if !slices.Equal(read, []string{"GET", want, "192.0.2.7", agent, "http://a/\n", "", "200"}) || e.At == 0 {
				t.Errorf("combined %v: %q is read as %+v", combined, target, e)
			}
		}
		if broken := reader.Stats().Broken; broken != 0 {
			t.Errorf("combined %v: %d lines cannot be read", combined, broken)
		}
	}
}

func TestLinesAreBounded(t *testing.T) {
	long := strings.Repeat("\x00", 100_000)
	for _, combined := range []bool{false, true} {
		headers := []string{"A", "B", "C", "D", "E", "F", "G", "User-Agent"}

		// All that a client can write is as long as it can be, and needs the longest escapes.
		_, l, _ := begin(t, Options{Combined: combined, Query: true, Headers: headers})
		r := &http.Request{Method: long, Host: long, Proto: "HTTP/1.1", Header: http.Header{}}
		for _, name := range headers {
			r.Header[name] = []string{long}
		}

		x := &Record{target: long, address: long, id: long[:64], Upstream: long, Attempts: 9, Policy: long}
		line := l.appendLine(nil, x, r, 0)
		if len(line) > MaxLine || bytes.Count(line, []byte("\n")) != 1 || !combined && !json.Valid(line) {
			t.Errorf("combined %v: a line of %d bytes, want at most %d:\n%s", combined, len(line), MaxLine, line)
		}
	}
}

// A file that takes nothing holds no request: what does not fit in the queue is dropped, counted
// and told.
func TestASlowFileHoldsNoRequest(t *testing.T) {
	// Nothing takes lines from the queue of this log.
	o := Options{Path: "slow"}
	told := new(test.Log)
	o.Events = quietlog.New(slog.New(slog.NewTextHandler(told, nil)))
	l := &Log{options: o, queue: make(chan *[]byte, 3), files: make(chan *os.File, 1), ended: make(chan struct{})}
	s := &Switch{}
	s.Set(l)
	h := s.Handler(http.HandlerFunc(answered), peer)

	for range 10 {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	}

	o.Events.Close()
	if text := told.String(); len(l.queue) != 3 || strings.Count(text, "was dropped") != 2 ||
		!strings.Contains(text, "count=6") {
		t.Errorf("%d lines wait, and of 7 dropped it is told\n%s", len(l.queue), text)
	}
}

// After the file was renamed, the next lines are in a new one, and none is lost.
func TestReopenAfterARename(t *testing.T) {
	s, l, _ := begin(t, Options{})
	h := s.Handler(http.HandlerFunc(answered), peer)
	for i := range 100 {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", fmt.Sprint("/", i), nil))
		if i == 49 {
			if err := os.Rename(l.options.Path, l.options.Path+".1"); err != nil {
				t.Fatal(err)
			}
			if err := l.Reopen(); err != nil {
				t.Fatal(err)
			}
		}
	}

	// All lines are in one of both.
	second := text(t, l)

	first, err := os.ReadFile(l.options.Path + ".1")
	if err != nil || second == "" || strings.Count(string(first)+second, "\n") != 100 {
		t.Errorf("%d and %d lines, %v", strings.Count(string(first), "\n"), strings.Count(second, "\n"), err)
	}

	// A folder that is gone leaves the former file in use.
	if err := l.Reopen(); err == nil {
		t.Error("a log that was closed is opened")
	}
}

// A line of a request that ends after the change of the log is in the new one.
func TestAnotherLogTakesTheLinesOfRequestsUnderWay(t *testing.T) {
	s, first, _ := begin(t, Options{})
	_, second, _ := begin(t, Options{})
	h := s.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Set(second)
		if err := first.Close(); err != nil {
			t.Error(err)
		}
	}), peer)
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))

	if a, b := text(t, first), text(t, second); a != "" || strings.Count(b, "\n") != 1 {
		t.Errorf("%q and %q", a, b)
	}

	// Without a log there are no records.
	s.Set(nil)
	s.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if Of(r.Context()) != nil {
			t.Error("a record of no log")
		}
	}), peer).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
}

func TestIDsOfRequests(t *testing.T) {
	s, _, _ := begin(t, Options{})
	for id, kept := range map[string]bool{
		"abc-1_2.3=/+:": true, "": false, "a b": false, "a\"": false, strings.Repeat("x", 65): false, "[x]": false,
	} {
		got := ""
		h := s.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			got = r.Header.Get(RequestID)
		}), peer)
		r := httptest.NewRequest("GET", "/", nil)
		r.Header[RequestID] = []string{id}
		h.ServeHTTP(httptest.NewRecorder(), r)
		// What is not kept is replaced by one that would be.
		if kept != (got == id) || !isID(got) {
			t.Errorf("%q becomes %q", id, got)
		}
	}
}

// Upgrades, flushes and interim answers go through, and a handler that panics is logged.
func TestAnswersGoThroughTheLog(t *testing.T) {
	s, l, _ := begin(t, Options{})
	logged := s.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/upgrade":
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nhello\n")
			rw.Flush()
		case "/hint":
			w.WriteHeader(103)
			w.WriteHeader(204)
		case "/broken":
			w.WriteHeader(502)
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case "/silent":
			panic(http.ErrAbortHandler)
		}
	}), peer)

	// A server does not wait for the handler of a connection that was taken from it.
	var handlers sync.WaitGroup
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handlers.Add(1)
		defer handlers.Done()
		logged.ServeHTTP(w, r)
	}))

	// The last has no answer.
	if res, err := server.Client().Get(server.URL + "/silent"); err == nil {
		t.Errorf("a handler that panicked has answered %s", res.Status)
	}
	for _, path := range []string{"/upgrade", "/hint", "/broken"} {
		// The answer of the upgrade has a body that ends with the connection.
		conn, err := http.NewRequest("GET", server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := server.Client().Do(conn)
		if err != nil {
			t.Fatal(err)
		}
		if path == "/upgrade" {
			if line, err := bufio.NewReader(res.Body).ReadString('\n'); line != "hello\n" {
				t.Errorf("%q %v", line, err)
			}
		}
		res.Body.Close()
	}

	server.Close()
	handlers.Wait()

	// Each has the status that the client saw, if it saw one.
	written := text(t, l)
	for _, want := range []string{`"path":"/upgrade","status":101`, `"path":"/hint","status":204`,
		`"path":"/broken","status":502`, `"path":"/silent","status":500`} {
		if !strings.Contains(written, want) {
			t.Errorf("no %s in\n%s", want, written)
		}
	}
}
