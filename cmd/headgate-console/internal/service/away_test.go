package service

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/policy"
)

func TestDatabaseOutageLosesNothing(t *testing.T) {
	server := fragile.Server(t)
	w := newWorld(t, server.Database(t))
	ctx := t.Context()
	p := w.create(sample("p", "a"))

	// Whatever is asked for meanwhile is unavailable, not missing and not wrong.
	server.Kill()
	p.Priority = 1
	for name, call := range map[string]func() error{
		"read":   func() error { _, err := w.Policy(ctx, w.admin, "p"); return err },
		"list":   func() error { _, err := w.Policies(ctx, w.admin, Query{}); return err },
		"write":  func() error { _, err := w.UpdatePolicy(ctx, w.admin, p); return err },
		"log-in": func() error { _, err := w.Login(ctx, FirstUser, adminPassword, Meta{}); return err },
		"ping":   func() error { return w.db.Ping(ctx) },
	} {
		wantErr(t, name, call(), ErrUnavailable)
	}

	// Nothing was half done: the version is the one from before, and the change can be made now.
	server.Restart(t)
	now, err := w.Policy(ctx, w.admin, "p")
	if err != nil || now.Version != 1 {
		t.Fatalf("%+v %v", now, err)
	}

	if now, err = w.UpdatePolicy(ctx, w.admin, p); err != nil || now.Version != 2 {
		t.Errorf("%+v %v", now, err)
	}

	must(w.Login(ctx, FirstUser, adminPassword, Meta{}))
}

func TestDatabaseFrozenIsUnavailableInTime(t *testing.T) {
	server := fragile.Server(t)
	w := newWorld(t, server.Database(t))
	p := w.create(sample("p", "a"))

	// A server that takes connections and never answers: the deadline of the request ends the
	// wait.
	server.Freeze(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := w.UpdatePolicy(ctx, w.admin, policy.Policy{Name: "p", Apps: p.Apps, Limit: p.Limit, Key: "global",
		Version: 1})
	wantErr(t, "a frozen database", err, ErrUnavailable)

	server.Thaw()
	now, err := w.Policy(t.Context(), w.admin, "p")
	if err != nil || now.Version != 1 {
		t.Errorf("%+v %v", now, err)
	}
}

func TestDatabaseKilledWriterLeavesNothing(t *testing.T) {
	server := fragile.Server(t)
	w := newWorld(t, server.Database(t))
	ctx := t.Context()
	w.create(sample("p", "a"))

	// The server dies between the deletion and the end of its transaction.
	_, err := w.change(ctx, w.admin, deleted, "p", func(a *action) (p policy.Policy, err error) {
		if err := a.remove("p", 1, deleted); err != nil {
			return p, err
		}
		server.Restart(t)
		return p, nil
	})

	wantErr(t, "the deletion", err, ErrUnavailable)
	if p, err := w.Policy(ctx, w.admin, "p"); err != nil || p.Version != 1 {
		t.Errorf("%+v %v", p, err)
	}

	if rows := w.entries(AuditQuery{Action: "policy.delete"}); len(rows) != 0 {
		t.Errorf("%+v", rows)
	}

	w.must(w.DeletePolicy(ctx, w.admin, "p", 1))
}

func TestDatabaseLockedIsUnavailable(t *testing.T) {
	w := newWorld(t, "sqlite://"+filepath.Join(t.TempDir(), "x.db"))
	p := w.create(sample("p", "a"))

	// Another connection holds the lock of writers, as a backup may.
	db := raw(t, w.url)
	defer db.Close()
	conn := must(db.Conn(t.Context()))
	defer conn.Close()
	must(conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"))

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()

	p.Priority = 1
	began := time.Now()
	_, err := w.UpdatePolicy(ctx, w.admin, p)

	test.AtMost(t, "a change that may take 300 ms, of a locked database", time.Since(began), time.Second)
	wantErr(t, "a locked database", err, ErrUnavailable)

	if _, err := w.Policy(t.Context(), w.admin, "p"); err != nil {
		t.Errorf("a reader waits for the writer: %v", err)
	}

	must(conn.ExecContext(t.Context(), "ROLLBACK"))
	must(w.UpdatePolicy(t.Context(), w.admin, p))
}
