package refusal

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

// admission returns the admission of a request that the rules refuse.
func admission(t *testing.T, rules ...limiter.Rule) (a *limiter.Admission, end func()) {
	t.Helper()
	l, err := limiter.New(limiter.Config{Rules: rules, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	r := nethttp.Request(httptest.NewRequest("GET", "/", nil))
	l.Admit(r).Done(200)
	a = l.Admit(r)
	return a, func() { a.Done(429); l.Close() }
}

// rule admits one request an hour.
func rule(name string) limiter.Rule {
	return limiter.Rule{Name: name, Limit: core.MustParseLimit("1/1h fixed-window"),
		Key: func(core.Request) (string, bool) { return "", true }}
}

func TestAnswersAreThoseOfThePolicyOrOfAll(t *testing.T) {
	b, err := New([]Options{
		{Policy: "login", Status: 503, Type: "application/json", Body: `{"retry":{{retry_after}},"by":"{{ policy }}"}`},
		{Status: 420, Body: "{{status}} {{title}} {{policy}}", Headers: map[string]string{"x-by": "<{{policy}}>"}},
	})

	if err != nil {
		t.Fatal(err)
	}

	rows := []struct {
		rules  []limiter.Rule
		status int
		kind   string
		body   string
		by     string
	}{
		{[]limiter.Rule{rule("login")}, 503, "application/json", `{"retry":3600,"by":"login"}`, ""},
		{[]limiter.Rule{rule("other")}, 420, "text/plain; charset=utf-8", "420  other", "<other>"},

		// Of two policies that refuse, the one with an answer of its own decides.
		{[]limiter.Rule{rule("other"), rule("login")}, 503, "application/json", `{"retry":3600,"by":"login"}`, ""},
	}

	for _, row := range rows {
		var got limiter.Answer
		// In the bubble no time passes, so the seconds are exact.
		synctest.Test(t, func(t *testing.T) {
			a, end := admission(t, row.rules...)
			defer end()
			got, _ = b.Answer(a)
		})

		if got.Status != row.status || got.Headers[0].Value != row.kind || string(got.Body) != row.body {
			t.Errorf("%d %v %q, want %d %s %q", got.Status, got.Headers, got.Body, row.status, row.kind, row.body)
		}
		if row.by != "" && (len(got.Headers) != 2 || got.Headers[1] != limiter.Header{Name: "X-By", Value: row.by}) {
			t.Errorf("headers %v", got.Headers)
		}
	}

	if _, ok := (*Book)(nil).Answer(nil); ok {
		t.Error("no book answers")
	}
}

func TestMistakesAreNamedByTheirField(t *testing.T) {
	for _, row := range []struct {
		o    Options
		want string
	}{
		{Options{Status: 200}, "status: 200 is not within 400 to 599"},
		{Options{Status: 600}, "status: 600"},
		{Options{Body: strings.Repeat("x", MaxBody+1)}, "body: 65537 bytes are more"},
		{Options{Body: "{{retry-after}}"}, "body: {{retry-after is none of {{policy}}, {{retry_after}}"},
		{Options{Body: "{{status"}, "body: {{status is none of"},
		{Options{Type: "a\r\nX-Evil: 1"}, "type: "},
		{Options{Headers: map[string]string{"X-A": "a\r\nX-Evil: 1"}}, "headers.X-A: the value has a byte"},
		{Options{Headers: map[string]string{"X A": "a"}}, `headers.X A: "X A" is not the name`},
		{Options{Headers: map[string]string{"content-length": "1"}}, "headers.content-length: it is of the connection"},
		{Options{Headers: map[string]string{"Retry-After": "1"}}, "headers.Retry-After: the limiter sends it"},
		{Options{Headers: map[string]string{"X-A": "{{host}}"}}, "headers.X-A: {{host is none of"},
	} {
		if _, err := New([]Options{row.o}); err == nil || !strings.Contains(err.Error(), row.want) ||
			strings.Contains(err.Error(), "\r") {
			t.Errorf("%.100v: %v, want %q", row.o, err, row.want)
		}
	}

	// An answer that is never given is a mistake too.
	_, err := New([]Options{{}, {Policy: "a"}, {Policy: "a"}, {}})
	if err == nil || strings.Count(err.Error(), "policy: another refusal is for it too") != 2 {
		t.Errorf("two for one: %v", err)
	}

	if _, err := New(make([]Options, MaxRefusals+1)); err == nil || !strings.Contains(err.Error(), "1001 refusals") {
		t.Errorf("too many: %v", err)
	}
}

// No placeholder has what a client sent, so no request writes a header.
func TestNoRequestWritesAHeader(t *testing.T) {
	b, err := New([]Options{{Body: "x", Headers: map[string]string{
		"X-A": "{{policy}} {{status}} {{title}} {{retry_after}}"}}})
	if err != nil {
		t.Fatal(err)
	}

	l, err := limiter.New(limiter.Config{Rules: []limiter.Rule{rule("all")}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}

	defer l.Close()
	// The request has line ends wherever a client can put some.
	r := httptest.NewRequest("GET", "/%0d%0aX-Evil:%201", nil)
	r.Header = http.Header{"X-A": {"evil"}, "Host": {"evil"}}
	r.Host = "evil\r\nX-Evil: 1"
	l.Admit(nethttp.Request(r)).Done(200)
	a := l.Admit(nethttp.Request(r))
	defer a.Done(429)

	got, _ := b.Answer(a)
	if text := got.Headers[1].Value; !strings.HasPrefix(text, "all 429 Too Many Requests 3") ||
		strings.ContainsAny(text, "\r\n") || strings.Contains(text, "evil") {
		t.Errorf("%q", text)
	}
}
