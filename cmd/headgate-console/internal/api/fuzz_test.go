package api

import (
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// queries returns the names of the parameters of the query that an operation is described with.
func (op operation) queries() (names []string) {
	list, _ := op.object["parameters"].([]any)
	for _, p := range list {
		if at(p, "in") == "query" {
			names = append(names, at(p, "name").(string))
		}
	}
	return names
}

// pathOf returns the path of an operation with a value in the place of each wildcard.
func (op operation) pathOf(value func(name string) string) string {
	_, path, _ := strings.Cut(op.pattern, " ")
	return wildcard.ReplaceAllStringFunc(path, func(s string) string { return url.PathEscape(value(s)) })
}

// usual are values of wildcards for which there is something.
func usual(wildcard string) string {
	return map[string]string{"{name}": "p", "{app}": "a", "{version}": "1", "{key}": "192.0.2.1"}[wildcard]
}

func TestQueryIsAsDescribed(t *testing.T) {
	w, known := newWorld(t, withRedis), 0
	for _, op := range operations() {
		method, _, _ := strings.Cut(op.pattern, " ")
		path := op.pathOf(usual)
		refused := func(query, field, message string) {
			t.Helper()
			a := w.ask("administrator", method, path+"?"+query, nil, "Content-Type", mediaJSON).wantField(field)
			if !strings.Contains(a.text, message) {
				t.Errorf("%s?%s: %s", op.pattern, query, a.text)
			}
		}

		// Each parameter that is described is known, and no other is.
		refused("unknown=1", "unknown", "the parameter is not known")
		for _, name := range op.queries() {
			known++
			refused(name+"=&"+name+"=", name, "it is repeated")
		}
	}
	if known < 30 {
		t.Errorf("%d parameters were tried", known)
	}
}

// Whatever a GET asks for, the answer is as it is described, and the console does not fail.
func TestFuzzedGet(t *testing.T) {
	w := newWorld(t, withRedis)
	random := rand.New(rand.NewPCG(1, 2))
	texts := []string{`<script>alert(1)</script>`, "<scr\x00ipt>", `' OR 1=1 --`, `'; DROP TABLE policies; --`,
		`%27`, `a%`, `_`,
		`\'`, "\xbf'", "a\r\nb", "\u202e", `{{.}}`, strings.Repeat("x", 5000)}
	texts = append(texts, "p", "a", "1", "0", "-1", "99999999999999999999", "1.5", "null", "true", "yaml", "json", "1m",
		"2026-03-01T11:00:00Z", "0001-01-01T00:00:00Z", "2026-03-01T11:00:00+25:00", "", "\xff", "../p", "a,b", "[]")
	value := func(wildcard string) string {
		if random.IntN(3) > 0 {
			return usual(wildcard)
		}
		return texts[random.IntN(len(texts))]
	}

	tried := map[int]int{}
	for _, op := range operations() {
		if !strings.HasPrefix(op.pattern, "GET ") {
			continue
		}
		for range 60 {
			query := url.Values{}
			for _, name := range op.queries() {
				if random.IntN(2) == 0 {
					query.Set(name, texts[random.IntN(len(texts))])
				}
			}

			path := op.pathOf(value)
			as := []string{"administrator", "viewer", "stranger", "read token"}[random.IntN(4)]
			a := w.ask(as, "GET", path+"?"+query.Encode(), nil)
			if !slices.Contains([]int{200, 404, 422, 503}, a.status) ||
				a.status == 503 && !strings.Contains(a.text, "Redis did not answer") {
				t.Errorf("%s %s?%s: %d %s", as, path, query.Encode(), a.status, a.text)
			}
			tried[a.status]++
		}
	}

	if tried[200] < 100 || tried[404] < 100 || tried[422] < 100 {
		t.Errorf("the answers are %v", tried)
	}
	if strings.Contains(w.log.String(), "a request failed") {
		t.Errorf("the log has %s", w.log)
	}
}
