package api

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// scripts returns 200 texts that run in a page that does not escape them.
func scripts() []string {
	return vary([]string{
		`<script>alert(%d)</script>`, `"><img src=x onerror=alert(%d)>`, `'><svg/onload=alert(%d)>`,
		`javascript:alert(%d)`,
		`<a href="javascript:alert(%d)">x</a>`, `{{constructor.constructor('alert(%d)')()}}`,
		"</title><script>alert(%d)</script>",
		`<iframe srcdoc="<script>alert(%d)</script>">`, "<math><mtext></mtext><mglyph><style></math>%d",
		`<body onload=alert(%d)>`,
		"`-alert(%d)-`", `\x3cscript\x3ealert(%d)\x3c/script\x3e`, "<scr\u0000ipt>alert(%d)</script>",
		`&#60;script&#62;alert(%d)`,
		`<input autofocus onfocus=alert(%d)>`, `<details open ontoggle=alert(%d)>`, "\u202ealert(%d)", `"]}<!--%d-->`,
		`<x contenteditable onblur=alert(%d)>`, `]]><script>%d</script>`,
	})
}

// injections returns 300 texts that change a statement that is concatenated from texts.
func injections() []string {
	return vary([]string{
		`' OR %d=1 --`, `'; DROP TABLE policies; -- %d`, `" OR ""="%d`, `\' OR %d=1 #`,
		`') UNION SELECT password FROM users -- %d`, `%%27%d`,
		"' AND SLEEP(%d) -- ", `1; UPDATE users SET administrator=%d`, `'||(SELECT %d)||'`, `%d' LIKE '%%`, `%d!%%`,
		`_%d_`, `\\%d\`, "'\x00%d", "\xbf' OR %d=1 --",
		`/*!%d DROP*/`, `0x27%d`, `${jndi:%d}`, `'; ATTACH DATABASE 'x%d' AS x; --`,
		`') ON DUPLICATE KEY UPDATE name='%d`, `?%d`, `:name%d`, `@@version%d`,
		`'; PRAGMA writable_schema=%d; --`, "`%d`; --", `%d); DELETE FROM audit; --`,
		`' COLLATE utf8mb4_general_ci = '%d`, "😀'%d", "a\r\n%d", "\u2019 OR %d=1",
	})
}

// vary returns ten texts for each body.
func vary(bodies []string) []string {
	var list []string
	for _, body := range bodies {
		for i := range 10 {
			text := fmt.Sprintf(body, i)

			// Letters in capitals, spaces at either end and repetitions get past lists of forbidden
			// words.
			switch i % 5 {
			case 1:
				text = strings.ToUpper(text)
			case 2:
				text += strings.Repeat(" ", i)
			case 3:
				text = strings.Repeat(text, 5)
			case 4:
				text = " " + text
			}
			list = append(list, text)
		}
	}
	return list
}

// raw returns a text as JSON. It keeps bytes that are not UTF-8.
func raw(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ':
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// textField is a field of a policy that takes a text.
type textField struct {
	name, before, after string   // the body is before, the text, after
	path                []string // of the text in the answer
}

func textFields() []textField {
	const rest = `"apps":["a"],"limit":"1/1s","key":"ip"`

	// Before and after surround the text, which is written byte by byte, with whatever is no UTF-8.
	return []textField{
		{"description", "{" + rest + `,"description":`, "}", []string{"description"}},
		{"name", "{" + rest + `,"name":`, "}", []string{"name"}},
		{"apps", `{"limit":"1/1s","key":"ip","apps":[`, "]}", nil},
		{"limit", `{"apps":["a"],"key":"ip","limit":`, "}", []string{"limit"}},
		{"key", `{"apps":["a"],"limit":"1/1s","key":`, "}", []string{"key"}},
		{"match.methods", "{" + rest + `,"match":{"methods":[`, "]}}", nil},
		{"match.host", "{" + rest + `,"match":{"host":`, "}}", []string{"match", "host"}},
		{"match.path", "{" + rest + `,"match":{"path":`, "}}", []string{"match", "path"}},
		{"on_limit", "{" + rest + `,"on_limit":`, "}", []string{"on_limit"}},
		{"on_store_error", "{" + rest + `,"on_store_error":`, "}", []string{"on_store_error"}},
		{"ban", "{" + rest + `,"ban":`, "}", []string{"ban"}},
		{"mode", "{" + rest + `,"mode":`, "}", []string{"mode"}},
	}
}

func TestHostilePolicyTextsComeBackOrAreRefused(t *testing.T) {
	w := newWorld(t)

	texts := append(scripts(), injections()...)
	if len(texts) != 500 {
		t.Fatalf("%d texts, want 500", len(texts))
	}

	stored, version := map[string]int{}, int64(1)
	for _, f := range textFields() {
		for _, text := range texts {
			// A path without the slash would be refused for that alone.
			if f.name == "match.path" {
				text = "/" + text
			}

			a := w.ask("administrator", "PUT", "/api/policies/p", f.before+raw(text)+f.after, "If-Match", tag(version))

			// A text is no UTF-8 and refused, a mistake of its own field, or kept to the byte.
			switch {
			case !utf8.ValidString(text):
				a.want(400)
			case a.status == 422:
				if !slices.ContainsFunc(a.fields(), func(field string) bool { return field == f.name }) {
					t.Fatalf("%s %q: %s", f.name, text, a.text)
				}
			default:
				a.want(200)
				version = int64(a.get("version").(float64))
				stored[f.name]++
				if f.path != nil && a.get(f.path...) != text {
					t.Fatalf("%s %q became %q", f.name, text, a.get(f.path...))
				}

				if again := w.ask("viewer", "GET", "/api/policies/p", nil).want(200); again.text != a.text {
					t.Fatalf("%s %q became %s", f.name, text, again.text)
				}
			}
		}
	}

	// A console that refuses everything would pass the rest of the test.
	if stored["description"] < 400 {
		t.Errorf("%v texts were stored", stored)
	}
	w.unharmed()
}

// places returns requests that have a text anywhere but in a policy.
func places(text string) []request {
	// The text is a part of paths, queries, names, bodies and files.
	in, q := url.PathEscape(text), url.QueryEscape(text)
	return []request{
		{"GET", "/api/policies/" + in, nil, nil},
		{"PUT", "/api/policies/" + in, login(nil), []string{"If-None-Match", "*"}},
		{"DELETE", "/api/policies/" + in + "?version=1", nil, nil},
		{"GET", "/api/policies/" + in + "/history", nil, nil},
		{"GET", "/api/policies/" + in + "/shadow", nil, nil},
		{"GET", "/api/policies/p/history/" + in, nil, nil},
		{"POST", "/api/policies/" + in + "/rollback", object{"to": 1, "version": 1}, nil},
		{"GET", "/api/policies?search=" + q, nil, nil},
		{"GET", "/api/policies?sort=" + q, nil, nil},
		{"GET", "/api/policies?app=" + q + "&mode=" + q, nil, nil},
		{"GET", "/api/policies?page=" + q, nil, nil},
		{"GET", "/api/policies?" + q + "=1", nil, nil},
		{"PUT", "/api/apps/" + in, object{"description": text}, nil},
		{"PUT", "/api/apps/b", `{"description":` + raw(text) + "}", nil},
		{"GET", "/api/apps/" + in, nil, nil},
		{"DELETE", "/api/apps/" + in, nil, nil},
		{"POST", "/api/test",
			`{"path":"/","method":` + raw(text) + `,"host":` + raw(text) + `,"route":` + raw(text) + "}", nil},
		{"POST", "/api/import", text, []string{"Content-Type", "application/yaml"}},
		{"POST", "/api/import?missing=" + q, `{"policies":[]}`, nil},
		{"GET", "/api/export?format=" + q, nil, nil},
	}
}

func TestHostileTextsElsewhereDoNoHarm(t *testing.T) {
	w := newWorld(t)
	for _, text := range append(scripts(), injections()...) {
		for _, r := range places(text) {
			a := w.send(r.build(w.cast["administrator"]))
			if !slices.Contains([]int{200, 201, 204, 400, 404, 422}, a.status) {
				t.Fatalf("%s %q: %d %s", r.method, r.path, a.status, a.text)
			}
		}

		// The description of b is the one text that is kept, and shows what is.
		b := w.ask("administrator", "GET", "/api/apps/b", nil).want(200)
		if utf8.ValidString(text) && !strings.ContainsAny(text, "\x00\r") && b.get("description") != text {
			t.Fatalf("%q became %q", text, b.get("description"))
		}
	}
	w.unharmed()
}

// unharmed checks that the other users and applications still exist, and that the log
// is empty.
func (w *world) unharmed() {
	w.t.Helper()
	for _, name := range []string{"admin", "disabled", "newcomer", "owner", "spare", "stranger", "viewer"} {
		if _, err := w.User(w.t.Context(), w.actor("administrator"), name); err != nil {
			w.t.Errorf("the user %s: %v", name, err)
		}
	}

	apps := w.ask("administrator", "GET", "/api/apps", nil).want(200).names("apps", "name")
	for _, name := range []string{"a", "b", "c"} {
		if !slices.Contains(apps, name) {
			w.t.Errorf("the applications are %q", apps)
		}
	}

	if w.log.Len() > 0 {
		w.t.Errorf("the log has %s", w.log)
	}
}
