package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

// A body of many mistakes gets a short answer.
func TestMistakesOfABodyAreBounded(t *testing.T) {
	w := newWorld(t)
	const changes = "/api/policies/p/overrides"
	list := func(n int) string { return `{"changes":[0` + strings.Repeat(",0", n-1) + "]}" }

	most := w.ask("owner", "POST", changes, list(service.MaxOverrideChanges)).want(422).fields()
	if n := len(most); n != maxFaults+1 || most[99] != "changes[99]" || most[maxFaults] != "" {
		t.Errorf("%d mistakes: %q", n, most)
	}
	more := w.ask("owner", "POST", changes, list(1_000_000)).want(422)
	if !strings.Contains(more.text, "it has more than 1000 items") || len(more.fields()) != 1 {
		t.Errorf("%.300s", more.text)
	}

	// Names that are repeated or unknown are such mistakes too.
	for _, path := range []string{changes, "/api/overrides/plan"} {
		for _, field := range []string{`"overrides":{}`, `"x":0`} {
			body := "{" + strings.Repeat(field+",", 50_000) + field + "}"
			if n := len(w.ask("owner", "POST", path, body).want(422).fields()); n != maxFaults+1 {
				t.Errorf("%s: %s: %d mistakes", path, field, n)
			}
		}
	}
}

// A token for backups is refused before a large body is looked at.
func TestLargeBodyOfABackupTokenIsNotRead(t *testing.T) {
	w := newWorld(t)
	w.ask("backup token", "POST", "/api/policies/p/overrides", `{"changes":[0]}`).want(403)
}

// A null deletes nothing.
func TestNullIsAMistake(t *testing.T) {
	w := newWorld(t)
	byUser(w)
	w.ask("owner", "PUT", "/api/policies/p/overrides/k", object{"limit": "5/1m"}).want(200)
	for _, c := range []struct{ path, body, field string }{
		{"/api/overrides?missing=remove", `{"overrides":{"p":null}}`, "overrides.p"},
		{"/api/overrides?missing=remove", `{"overrides":null}`, "overrides"},
		{"/api/overrides?missing=remove", `{"overrides":{"p":{"k":null}}}`, "overrides"},
		{"/api/policies/p/overrides", `{"changes":[{"key":"k","limit":null}]}`, "changes[0].limit"},
		{"/api/policies/p/overrides", `{"changes":[null]}`, "changes[0]"},
		{"/api/policies/p/overrides", `{"changes":null}`, "changes"},
		{"/api/validate", `{"name":"p","apps":["a"],"limit":"5/1m","key":"ip","mode":null}`, "mode"},
	} {
		w.ask("owner", "POST", c.path, c.body).want(422).wantField(c.field)
	}
	w.ask("owner", "DELETE", "/api/policies/p/overrides/k", nil).want(204)
}

// atEnd calls f when all of a body is read.
type atEnd struct {
	io.Reader
	f func()
}

func (a atEnd) Read(b []byte) (n int, err error) {
	if n, err = a.Reader.Read(b); err == io.EOF {
		a.f()
	}
	return n, err
}

// The texts of imports are parsed one by one: one that waits when its time ends is not looked at.
func TestImportsAreParsedOneByOne(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"/api/import/plan", "/api/overrides/plan"} {
		ask := func(ctx context.Context, end func()) answer {
			r := request{"POST", path, nil, []string{"Content-Type", "application/json"}}.build(w.cast["owner"])
			r.Body = io.NopCloser(atEnd{strings.NewReader(`{"x":0}`), end})
			return w.send(r.WithContext(ctx))
		}
		_ = w.Parsing(t.Context(), func() error {
			ctx, cancel := context.WithCancelCause(t.Context())
			ask(ctx, func() { cancel(context.DeadlineExceeded) }).want(503)
			return nil
		})
		ask(t.Context(), func() {}).want(422)
	}
}

// What was read of an import of overrides is written before the next text is read: the place of the
// one that is parsed is taken until then.
func TestImportOfOverridesHoldsItsPlaceUntilItIsWritten(t *testing.T) {
	w := newWorld(t)
	byUser(w)
	written := false
	o := service.Options{DB: w.db, Clock: func() time.Time { return noon }, Logger: slog.New(slog.DiscardHandler)}
	var s *service.Service
	o.Changed = func() {
		written = true
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if err := s.Parsing(ctx, func() error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("another may be parsed: %v", err)
		}
	}
	s, err := service.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if w.api, err = New(Options{Service: s, Cookie: cookieName}); err != nil {
		t.Fatal(err)
	}

	w.ask("owner", "POST", "/api/overrides", object{"overrides": object{"p": object{"k": "5/1m"}}}).want(200)
	if !written {
		t.Error("nothing was written")
	}
	if err := s.Parsing(t.Context(), func() error { return nil }); err != nil {
		t.Errorf("the place is not given back: %v", err)
	}
}

// A file of overrides names no more than a console has.
func TestOverridesOfAFileAreBounded(t *testing.T) {
	w := newWorld(t)
	list := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, ","+format, i)
		}
		return "{" + b.String()[1:] + "}"
	}
	for _, row := range []struct {
		as, body, field, message string
		status                   int
	}{
		{"owner", `{"overrides":` + list(policy.MaxPolicies, `"%d":{}`) + "}", "", "and 9900 more", 422},
		{"owner", `{"overrides":` + list(policy.MaxPolicies+1, `"%d":{}`) + "}", "overrides",
			"it names more than 10000 policies", 422},
		{"owner", `{"overrides":{"p":` + list(policy.MaxOverridesBeside+1, `"%d":0`) + "}}", "overrides.p",
			"it has more than 100000 overrides", 422},
		{"owner", list(policy.MaxOverridesBeside+1, `"%d":0`), "", "it has more than 100000 fields", 422},

		// Nothing is read of an actor without a role, whatever the text is.
		{"spare", "{", "", "", 403},
	} {
		a := w.ask(row.as, "POST", "/api/overrides/plan?compare=yes", row.body).want(row.status)
		if fields := a.fields(); row.status == 422 && (fields[len(fields)-1] != row.field ||
			!strings.Contains(a.text, row.message)) {
			t.Errorf("%.40s: %.300s", row.body, a.text)
		}
	}
}

// A variable of a script that is not set does not widen an import.
func TestEmptyBoundOfAnImportIsAMistake(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"/api/import", "/api/import/plan", "/api/overrides", "/api/overrides/plan"} {
		for _, name := range []string{"apps", "base"} {
			w.ask("owner", "POST", path+"?missing=remove&"+name+"=", object{}).want(422).wantField(name)
		}
	}
}

func TestClaimsKeepTheirDigits(t *testing.T) {
	w := newWorld(t)
	w.ask("owner", "PUT", "/api/policies/p",
		login(object{"match": object{"claims": object{"id": []string{"9007199254740993"}}}, "version": 1})).want(200)
	for id, n := range map[string]int{"9007199254740993": 1, "9007199254740992": 0} {
		a := w.ask("owner", "POST", "/api/test", `{"path":"/login","method":"POST","app":"a","claims":{"id":`+id+`}}`)
		if list, _ := a.want(200).get("policies").([]any); len(list) != n {
			t.Errorf("%s: %d policies, want %d", id, len(list), n)
		}
	}
}
