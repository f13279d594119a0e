package service

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/policy"
)

// scripts returns 200 texts that run in a page that does not escape them.
func scripts() []string {
	bodies := []string{
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
	}
	return vary(bodies, 10)
}

// injections returns 300 texts that change a statement that is concatenated from texts.
func injections() []string {
	bodies := []string{
		`' OR %d=1 --`, `'; DROP TABLE policies; -- %d`, `" OR ""="%d`, `\' OR %d=1 #`,
		`') UNION SELECT password FROM users -- %d`, `%%27%d`,
		"' AND SLEEP(%d) -- ", `1; UPDATE users SET administrator=%d`, `'||(SELECT %d)||'`, `%d' LIKE '%%`, `%d!%%`,
		`_%d_`, `\\%d\`, "'\x00%d", "\xbf' OR %d=1 --",
		`/*!%d DROP*/`, `0x27%d`, `${jndi:%d}`, `'; ATTACH DATABASE 'x%d' AS x; --`,
		`') ON DUPLICATE KEY UPDATE name='%d`, `?%d`, `:name%d`, `@@version%d`,
		`'; PRAGMA writable_schema=%d; --`, "`%d`; --", `%d); DELETE FROM audit; --`,
		`' COLLATE utf8mb4_general_ci = '%d`, "😀'%d", "a\r\n%d", "\u2019 OR %d=1",
	}
	return vary(bodies, 10)
}

func vary(bodies []string, times int) []string {
	var list []string
	for _, body := range bodies {
		for i := range times {
			text := fmt.Sprintf(body, i)
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

// isAnswer reports whether the service may return the error to a user who is logged
// in, because it is not an error of the database.
func isAnswer(err error) bool {
	var invalid *InvalidError
	return err == nil || errors.As(err, &invalid) || errors.Is(err, ErrNotFound)
}

func TestHostilePolicyTextsAreStoredOrRefused(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		texts := append(scripts(), injections()...)
		if len(texts) != 500 {
			t.Fatalf("%d texts, want 500", len(texts))
		}

		// Each text in each field of one policy: what is stored is read back as it is, and what is
		// not is a mistake that the person may see.
		p := w.create(sample("p", "a"))
		stored := 0

		texts = w.dealt(texts)
		for _, text := range texts {
			for name, set := range policyTexts() {
				changed := p
				set(&changed, text)

				saved, err := w.UpdatePolicy(t.Context(), w.admin, changed)
				if err != nil {
					if !isAnswer(err) {
						t.Fatalf("%s %q: %v", name, text, err)
					}
					continue
				}

				p = saved
				stored++

				got, err := w.Policy(t.Context(), w.admin, saved.Name)
				if err != nil || !reflect.DeepEqual(got, saved) || len(Diff(got, changed)) != 0 {
					t.Fatalf("%s %q became %+v (%v)", name, text, got, err)
				}
			}
		}

		// Most texts are possible in some field. Without a bound the test would pass if all were
		// refused.
		if stored < len(texts)*8/10 {
			t.Errorf("%d texts were stored", stored)
		}

		w.unharmed()
	})
}

// policyTexts returns functions that set a text field of a policy, by its name.
func policyTexts() map[string]func(*policy.Policy, string) {
	return map[string]func(*policy.Policy, string){
		"name":           func(p *policy.Policy, s string) { p.Name = s },
		"description":    func(p *policy.Policy, s string) { p.Description = s },
		"apps":           func(p *policy.Policy, s string) { p.Apps = []string{s} },
		"key":            func(p *policy.Policy, s string) { p.Key = s },
		"match.methods":  func(p *policy.Policy, s string) { p.Match.Methods = []string{s} },
		"match.host":     func(p *policy.Policy, s string) { p.Match.Host = s },
		"match.path":     func(p *policy.Policy, s string) { p.Match.Path = "/" + s },
		"on_limit":       func(p *policy.Policy, s string) { p.OnLimit = s },
		"on_store_error": func(p *policy.Policy, s string) { p.OnStoreError = s },
	}
}

func TestHostileTextsElsewhereAreStoredOrRefused(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		for _, text := range w.dealt(append(scripts(), injections()...)) {
			// Whatever takes a text from a person, be it a name to look for or one to store.
			for name, call := range map[string]func() error{
				"app":         func() error { return w.CreateApp(ctx, w.admin, text, "") },
				"description": func() error { return w.described(text) },
				"app to go":   func() error { return w.DeleteApp(ctx, w.admin, text) },
				"user":        func() error { return w.DisableUser(ctx, w.admin, text) },
				"reset":       func() error { _, err := w.User(ctx, w.admin, text); return err },
				"role":        func() error { return w.SetRole(ctx, w.admin, FirstUser, text, Role(text)) },
				"search":      func() error { _, err := w.Policies(ctx, w.admin, Query{Search: text}); return err },
				"sort":        func() error { _, err := w.Policies(ctx, w.admin, Query{Sort: text}); return err },
				"changed":     func() error { _, err := w.Policies(ctx, w.admin, Query{Changed: text}); return err },
				"bulk": func() error {
					_, err := w.SwitchPolicies(ctx, w.admin, []PolicyVersion{{text, 1}}, policy.Off)
					return err
				},
				"policy":  func() error { _, err := w.Policy(ctx, w.admin, text); return err },
				"history": func() error { _, err := w.History(ctx, w.admin, text, 0, 0); return err },
				"audit": func() error {
					_, err := w.Audit(ctx, w.admin, AuditQuery{Actor: text, Object: text})
					return err
				},
				"session": func() error { return w.RevokeSession(ctx, w.admin, text) },
				"token":   func() error { return w.RevokeToken(ctx, w.admin, text) },
				"token's apps": func() error {
					_, _, err := w.CreateToken(ctx, w.admin, TokenDraft{Label: text, Apps: []string{text}})
					return err
				},
				"import": func() error {
					_, err := w.Import(ctx, w.admin, Import{Data: []byte(text), Format: YAML})
					return err
				},
			} {
				if err := call(); !isAnswer(err) {
					t.Fatalf("%s %q: %v", name, text, err)
				}
			}

			// A log-in has no answer of its own for a strange name.
			if _, err := w.Login(ctx, text, text, Meta{Address: text, Agent: text, RequestID: text}); err == nil ||
				!isLogin(err) {
				t.Fatalf("log-in %q: %v", text, err)
			}
		}

		w.unharmed()
	})
}

// dealt returns the texts that are tried on the database: all on SQLite, and every third on
// MariaDB, which takes ten times as long and is given them by the same code.
func (w *world) dealt(texts []string) (list []string) {
	for i, text := range texts {
		if i%3 == 0 || strings.HasPrefix(w.url, "sqlite:") {
			list = append(list, text)
		}
	}
	return list
}

// described stores a text as a description and reads it back.
func (w *world) described(text string) error {
	ctx := w.t.Context()
	if err := w.DescribeApp(ctx, w.admin, "a", text); err != nil {
		return err
	}

	list, err := w.Apps(ctx, w.admin)
	if err != nil {
		return err
	}

	if i := slices.IndexFunc(list, func(a App) bool { return a.Name == "a" }); list[i].Description != text {
		return fmt.Errorf("it became %q", list[i].Description)
	}
	return nil
}

func isLogin(err error) bool {
	var limited *LimitedError
	return errors.Is(err, ErrCredentials) || errors.As(err, &limited)
}

// unharmed checks that the other users and applications still exist.
func (w *world) unharmed() {
	w.t.Helper()
	users, err := w.Users(w.t.Context(), w.admin)
	if err != nil || len(users) != 1 || !users[0].Administrator {
		w.t.Errorf("%+v %v", users, err)
	}
	apps, err := w.Apps(w.t.Context(), w.admin)
	if err != nil || !slices.ContainsFunc(apps, func(a App) bool { return a.Name == "a" }) {
		w.t.Errorf("%+v %v", apps, err)
	}
}

func TestRefusalOfHostileNameIsInTheAuditLog(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		x := w.person("x", nil)

		// A refusal is noted whatever the name is: no text, too long, or too long in bytes alone.
		for _, name := range []string{"\xff\x00'", strings.Repeat("x", 1<<20), strings.Repeat("é", 200)} {
			before := w.refusals()
			wantErr(t, "users", errOf(w.Users(t.Context(), x)), ErrDenied)
			wantErr(t, "an application", w.CreateApp(t.Context(), x, name, name), ErrDenied)

			equal(t, fmt.Sprintf("%.10q: the audit log has refusals", name), w.refusals()-before, 2)
		}
	})
}

func TestOversizedTextsAreRefused(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		long := strings.Repeat("x", 1<<20)

		for name, set := range policyTexts() {
			p := sample("new", "a")
			set(&p, long)
			wantFault(t, name, errOf(w.CreatePolicy(ctx, w.admin, p)), name)
		}

		wantFault(t, "app", w.CreateApp(ctx, w.admin, long, ""), "name")
		wantFault(t, "description", w.CreateApp(ctx, w.admin, "x", long), "description")
		wantFault(t, "user", errOf(w.CreateUser(ctx, w.admin, long)), "name")
	})
}
