package limiter_test

import (
	"encoding/json"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

// over is the admission of a request that is over a limit of 1.
func over(t *testing.T, text string) *limiter.Admission {
	t.Helper()
	l := newLimiter(t, newStore(), rule(t, "a", text), rule(t, "b", "1/1h fixed-window"))
	admit(l)
	a := l.Admit(get())
	t.Cleanup(func() { a.Done(429) })
	return a
}

// overOne is that of a request that has to wait for a second.
func overOne(t *testing.T) *limiter.Admission {
	t.Helper()
	l := newLimiter(t, newStore(), rule(t, "a", "1/1s"))
	admit(l)
	a := l.Admit(get())
	t.Cleanup(func() { a.Done(429) })
	return a
}

// tooMuch is that of a request that can never be admitted.
func tooMuch(t *testing.T) *limiter.Admission {
	t.Helper()
	r := rule(t, "a", "1/1h")
	r.Cost = func(core.Request) int64 { return 2 }
	a := newLimiter(t, newStore(), r).Admit(get())
	t.Cleanup(func() { a.Done(429) })
	return a
}

// denied is that of a request that a list denies with the status.
func denied(t *testing.T, status int) *limiter.Admission {
	t.Helper()
	r := listed(t, "a", "1/1h")
	r.DenyStatus = status
	a := newLimiter(t, newStore(), r).Admit(callerFrom("mallory", "192.0.2.1:1"))
	t.Cleanup(func() { a.Done(status) })
	return a
}

// bannedCaller is that of a request of a banned key.
func bannedCaller(t *testing.T) *limiter.Admission {
	t.Helper()
	l := newLimiter(t, newStore(), banning(t, "a", "1/1s fixed-window"))
	useUp(t, l, "k", 3)
	a := l.Admit(keyed("k"))
	t.Cleanup(func() { a.Done(429) })
	return a
}

// failed is that of a request that the store could not decide about.
func failed() *limiter.Admission { return (*limiter.Limiter)(nil).Admit(get()) }

func TestTemplateAnswers(t *testing.T) {
	const plain, object = "text/plain; charset=utf-8", "application/json"
	rows := []struct {
		name       string
		template   limiter.Template
		a          *limiter.Admission
		status     int
		kind, body string
	}{
		// Each form of the text: one second and several, one rule and several, no time, a fault, a
		// denial and a ban.
		{"text", limiter.PlainText, over(t, "9/1s"), 429, plain, "Too many requests. Retry after 3600 seconds.\n"},
		{"text, a second", limiter.PlainText, overOne(t), 429, plain, "Too many requests. Retry after 1 second.\n"},
		{"text, never", limiter.PlainText, tooMuch(t), 429, plain,
			"Too many requests. The request asks for more than the quota can ever hold.\n"},
		{"text, failed", limiter.PlainText, failed(), 503, plain, "Service unavailable.\n"},
		{"JSON", limiter.JSON, over(t, "9/1s"), 429, object,
			`{"error":"too_many_requests","retry_after":3600,"rules":["b"]}`},
		{"JSON, two rules", limiter.JSON, over(t, "1/1s"), 429, object,
			`{"error":"too_many_requests","retry_after":3600,"rules":["a","b"]}`},
		{"JSON, never", limiter.JSON, tooMuch(t), 429, object, `{"error":"too_many_requests","rules":["a"]}`},
		{"text, denied", limiter.PlainText, denied(t, 403), 403, plain, "Forbidden.\n"},
		{"text, denied with 429", limiter.PlainText, denied(t, 429), 429, plain, "Too Many Requests.\n"},
		{"JSON, denied", limiter.JSON, denied(t, 403), 403, object, `{"error":"forbidden","rules":["a"]}`},
		{"JSON, denied with 429", limiter.JSON, denied(t, 429), 429, object,
			`{"error":"too_many_requests","rules":["a"]}`},
		{"text, banned", limiter.PlainText, bannedCaller(t), 429, plain,
			"Abnormal usage detected. Retry after 600 seconds.\n"},
		{"JSON, banned", limiter.JSON, bannedCaller(t), 429, object,
			`{"error":"abnormal_usage_detected","retry_after":600,"rules":["a"]}`},
		{"JSON, failed", limiter.JSON, failed(), 503, object, `{"error":"service_unavailable","retry_after":1}`},
		{"problem", limiter.ProblemJSON, failed(), 503, limiter.ProblemType, string(failed().Problem())},
		{"fixed", limiter.Fixed(limiter.Answer{Status: 200,
			Headers: []limiter.Header{{Name: "Content-Type", Value: plain}}, Body: []byte("x")}),
			failed(), 200, plain, "x"},
	}
	for _, row := range rows {
		got := row.template(row.a)
		if got.Status != row.status || string(got.Body) != row.body ||
			len(got.Headers) != 1 || got.Headers[0] != (limiter.Header{Name: "Content-Type", Value: row.kind}) {
			t.Errorf("%s: %d %v %q", row.name, got.Status, got.Headers, got.Body)
		}
		if row.kind != plain && !json.Valid(got.Body) {
			t.Errorf("%s: not JSON", row.name)
		}
	}
}

func TestRedirectTargets(t *testing.T) {
	// A target is a path of the site itself, or a full URL without a user.
	rows := map[string]string{
		"/busy": "", "/busy?a=b#c": "", "/": "", "https://status.example/x": "", "http://[::1]:80": "",
		"":     "neither a path",
		"busy": "neither a path",
		// A browser reads these as the name of another host.
		"//evil.example":     "neither a path",
		"/\\evil.example":    "the byte 0x5c",
		"ftp://a.example":    "neither a path",
		"javascript:alert()": "neither a path",
		"https:///x":         "neither a path",
		"https://:80":        "neither a path",
		"https://u:p@a/":     "holds a user",
		"/a\r\nX: y":         "the byte 0xd",
		"/a b":               "the byte 0x20",
		"/é":                 "the byte 0xc3",
		"/%zz":               "not a URL",
	}

	for target, want := range rows {
		template, err := limiter.Redirect(target)
		if want != "" {
			if err == nil || template != nil || !contains(err, want) {
				t.Errorf("%q: %v", target, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", target, err)
			continue
		}

		got := template(failed())
		if got.Status != 303 || len(got.Headers) != 1 ||
			got.Headers[0] != (limiter.Header{Name: "Location", Value: target}) || len(got.Body) != 0 {
			t.Errorf("%q: %+v", target, got)
		}
	}

	defer func() {
		if recover() == nil {
			t.Error("MustRedirect took a bad target")
		}
	}()
	limiter.MustRedirect("")
}
