package main

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

// The documentation has the files as they are.
func TestFilesAreThoseOfTheDocumentation(t *testing.T) {
	for file, page := range map[string]string{"tokens.yaml": "tokens.md", "costs.yaml": "policies.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		// The block has the whole file.
		docs, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(docs), "```yaml\n"+string(text)+"```\n") {
			t.Errorf("docs/%s does not have %s", page, file)
		}
	}
}

// gate is the program before an API.
type gate struct {
	*testing.T
	limiter *limiter.Limiter
	url     string
}

// open starts the program with the policies of a file, which trusts this machine or none.
func open(t *testing.T, file string, proxies []string, api http.HandlerFunc) *gate {
	t.Helper()
	up := httptest.NewServer(api)
	t.Cleanup(up.Close)
	target, err := url.Parse(up.URL)
	if err != nil {
		t.Fatal(err)
	}

	// The limits are those of the file, in memory.
	l := limiter.MustNew(limiter.Config{Logger: slog.New(slog.DiscardHandler)})

	follower, err := follow(l, file, proxies)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { follower.Close() })

	// The gate ends before what it needs.
	s := httptest.NewServer(newHandler(l, target))
	t.Cleanup(s.Close)
	return &gate{t, l, s.URL}
}

// ask sends a request, reads its answer, and returns how many units each policy has left for it.
func (g *gate) ask(path, body string, headers ...string) string {
	g.Helper()
	r, err := http.NewRequestWithContext(g.Context(), "POST", g.url+path, strings.NewReader(body))
	if err != nil {
		g.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}

	res, err := http.DefaultClient.Do(r)
	if err != nil {
		g.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		g.Fatal(err)
	}

	// The limiter of a memory settles before the answer ends.
	r.RemoteAddr = "127.0.0.1:1"
	list, err := g.limiter.PeekRequest(nethttp.Request(r))
	if err != nil {
		g.Fatal(err)
	}

	text := fmt.Sprint(res.StatusCode)
	for _, d := range list {
		text += fmt.Sprintf(" %s %d", d.Rule, d.Decision.Remaining)
	}
	return text
}

func TestBudgetsOfTokens(t *testing.T) {
	g := open(t, "tokens.yaml", []string{"127.0.0.1"}, func(w http.ResponseWriter, r *http.Request) {
		// An answer of unknown length ends after its settlement.
		if r.URL.Path == "/wrong" {
			w.WriteHeader(http.StatusBadRequest)
		}
		w.(http.Flusher).Flush()

		switch r.URL.Path {
		case "/stream":
			io.WriteString(w, "data: {\"model\": \"gpt-5\", \"choices\": []}\n\n")
			io.WriteString(w, `data: {"usage": {"prompt_tokens": 800, "completion_tokens": 200}, "choices": []}`+"\n\n")
		case "/silent":
			io.WriteString(w, `{"model": "gpt-5"}`)
		}
	})

	for _, row := range []struct{ path, body, want string }{
		// 800 tokens at 1.25 and 200 at 10 are 3000 millionths of a dollar.
		{"/stream", `{"model": "gpt-5", "stream": true}`, "200 dollars 19997000 tokens 99000"},
		// An answer that fails costs nothing, and one without a usage what the request may use: 7
		// tokens of the prompt and 500 of the answer, of a model without a price of its own.
		{"/wrong", `{}`, "400 dollars 19997000 tokens 99000"},
		{"/silent", `{"max_output_tokens": 500  }`, "200 dollars 19959395 tokens 98493"},
	} {
		// The key is that of the header.
		if got := g.ask(row.path, row.body, "Authorization", "Bearer a"); got != row.want {
			t.Errorf("%s: %s, want %s", row.path, got, row.want)
		}
	}
}

func TestCostsOfHeaders(t *testing.T) {
	// The answer ends after its settlement, as its length is not known.
	api := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Cost", r.Header.Get("X-Say"))
		w.(http.Flusher).Flush()
	}

	for _, row := range []struct {
		proxies             []string
		path, header, value string
		want                string
	}{
		{[]string{"127.0.0.1"}, "/export", "X-Rows", "40", "200 exports 960"},
		{[]string{"127.0.0.1"}, "/export", "X-Rows", "4000", "200 exports 500"},
		{[]string{"127.0.0.1"}, "/export", "X-Rows", "-4", "200 exports 999"},
		{[]string{"10.0.0.0/8"}, "/export", "X-Rows", "40", "200 exports 999"},
		{[]string{"10.0.0.0/8"}, "/query", "X-Say", "3", "200 queries 9997"},
		{[]string{"10.0.0.0/8"}, "/query", "X-Say", "many", "200 queries 9990"},
	} {
		// Each row has limits of its own.
		if got := open(t, "costs.yaml", row.proxies, api).ask(row.path, "", row.header, row.value); got != row.want {
			t.Errorf("%+v: %s", row, got)
		}
	}
}
