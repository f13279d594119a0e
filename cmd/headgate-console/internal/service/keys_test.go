package service

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// asked has Redis fail with an error, or not, and call see, unless it is nil, for each operation.
// It returns what Redis is asked from then on.
func (w *world) asked(fail error, see func(core.Op)) *[]string {
	asked := &[]string{}
	w.fleet.op = func(op core.Op) (core.Decision, error) {
		*asked = append(*asked, fmt.Sprint(op.Verb, " ", op.Rule, " ", op.Key))
		if see != nil {
			see(op)
		}
		return core.Decision{Allowed: true, Taken: op.Cost}, fail
	}
	return asked
}

func TestResetKeyWritesTheAuditLogFirst(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		w.create(sample("p", "a"))
		owner := w.person("x", map[string]Role{"a": Owner})

		asked := w.asked(nil, func(core.Op) {
			rows := w.entries(AuditQuery{Action: "key.reset"})
			if len(rows) != 1 || rows[0].Actor != "x" || rows[0].Object != "policy:p" || rows[0].Outcome != Done ||
				rows[0].After != `{"key":"192.0.2.1"}` {
				t.Errorf("at the reset the audit log has %+v", rows)
			}
		})
		w.must(w.ResetKey(t.Context(), owner, "p", "192.0.2.1"))
		equal(t, "what Redis is asked", *asked, []string{"reset p 192.0.2.1"})
		equal(t, "rows", len(w.entries(AuditQuery{Action: "key.reset"})), 1)

		// A failure is a row of its own.
		away := errors.New("away")
		w.asked(away, nil)
		wantErr(t, "the reset", w.ResetKey(t.Context(), w.admin, "p", "k"), away)
		rows := w.entries(AuditQuery{Action: "key.reset"})
		if len(rows) != 3 || rows[0].Outcome != Refused || !strings.Contains(rows[0].Note, "failed") ||
			rows[1].Outcome != Done {
			t.Errorf("%+v", rows)
		}
	})
}

func TestResetKeyNeedsTheAuditLog(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	w.create(sample("p", "a"))
	asked := w.asked(nil, nil)

	wantErr(t, "no policy", w.ResetKey(t.Context(), w.admin, "none", "k"), ErrNotFound)
	wantFault(t, "a long key", w.ResetKey(t.Context(), w.admin, "p", strings.Repeat("x", MaxKey+1)), "key")

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	wantErr(t, "a context that ended", w.ResetKey(ended, w.admin, "p", "k"), context.Canceled)

	// Without a database nothing can be noted, so nothing is reset.
	w.must(w.db.Close())
	if err := w.ResetKey(t.Context(), w.admin, "p", "k"); err == nil {
		t.Error("without a database there is no error")
	}
	if len(*asked) > 0 {
		t.Errorf("%q was asked", *asked)
	}
}

func TestAuditHoldsNoSecretKey(t *testing.T) {
	w := newWorld(t, sqliteURL(t))

	// One part of a key that may be a credential makes the whole key one.
	for recipe, secret := range map[string]bool{
		"ip": false, "ip/56+route": false, "user": false, "global": false, "host+path+method": false,
		"api-key": true, "basic-auth": true, "header:X-Key": true, "cookie:sid": true, "ip+cookie:sid": true,
	} {
		want := `{"key":"s3cret"}`
		if secret {
			want = `{"key_sha256":"` + auth.Digest("s3cret") + `"}`
		}

		if got := keyText("s3cret", policy.Policy{Key: recipe}); got != want {
			t.Errorf("%s: %s, want %s", recipe, got, want)
		}
	}

	p := sample("p", "a")
	p.Key = "api-key"
	w.create(p)
	w.must(w.ResetKey(t.Context(), w.admin, "p", "s3cret"))

	// The digest stands for the key in every column.
	w.must(w.db.View(t.Context(), func(t2 *store.Tx) error {
		rows, err := t2.FindAudit(store.AuditQuery{Limit: 100})
		for _, row := range rows {
			if strings.Contains(row.Before+row.After+row.Note+row.Object, "s3cret") {
				t.Errorf("the audit log holds the key: %+v", row)
			}
		}
		return err
	}))
}
