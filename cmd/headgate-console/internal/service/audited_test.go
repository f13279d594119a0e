package service

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/oidc"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// A look-up is in the audit log before the key is looked up, and without a key that may be a
// credential.
func TestLookUpIsInTheAuditLogFirst(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		w.create(sample("p", "a"))

		// The keys of q may be credentials, so the log has their digest.
		secret := sample("q", "a")
		secret.Key = "api-key"
		w.create(secret)
		viewer := w.person("viewer", map[string]Role{"a": Viewer})

		// The look-up fails, and was in the log before.
		away := errors.New("away")
		w.asked(away, func(op core.Op) {
			want := map[string]string{"p": `{"key":"192.0.2.7"}`,
				"q": `{"key_sha256":"` + auth.Digest("192.0.2.7") + `"}`}
			if list := w.entries(AuditQuery{Action: "key.look-up", Object: "policy:" + op.Rule}); len(list) != 1 ||
				list[0].After != want[op.Rule] || list[0].Actor != "viewer" {
				t.Errorf("%s: the audit log has %+v", op.Rule, list)
			}
		})
		for _, name := range []string{"p", "q"} {
			wantErr(t, "the look-up", errOf(w.LookUp(t.Context(), viewer, name, "192.0.2.7")), away)
		}

		stranger := w.person("stranger", map[string]Role{"b": Owner})
		asked := w.asked(nil, nil)
		wantErr(t, "a stranger's look-up", errOf(w.LookUp(t.Context(), stranger, "p", "x")), ErrNotFound)
		equal(t, "what Redis is asked of a hidden policy", *asked, []string{})
	})
}

// eve is how every policy counts the key.
func eve(policy.Policy) string { return "eve" }

// A look-up under several policies has one row with their names, which is written first. It
// leaves out what is hidden.
func TestLookUpEachIsInTheAuditLogFirst(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		for _, name := range []string{"p3", "p1", "p2"} {
			w.create(sample(name, "a"))
		}

		// p4 has keys that may be credentials, and q is hidden from the viewer.
		secret := sample("p4", "a")
		secret.Key = "api-key"
		w.create(secret)
		w.create(sample("q", "b"))

		viewer := w.person("viewer", map[string]Role{"a": Viewer})
		digest := `{"key_sha256":"` + auth.Digest("eve") + `"`

		for _, row := range []struct {
			most    int
			not     string
			peeked  string
			more    bool
			written string
		}{
			{1, "p2", "p1", true, `{"key":"eve","policies":["p1"]}`},
			{3, "p4", "p1 p2 p3", false, `{"key":"eve","policies":["p1","p2","p3"]}`},
			{9, "p2", "p1 p3 p4", false, digest + `,"policies":["p1","p3","p4"]}`},
		} {
			before := len(w.entries(AuditQuery{Action: "key.look-up"}))

			var peeked []string
			w.asked(nil, func(op core.Op) {
				list := w.entries(AuditQuery{Action: "key.look-up"})
				if len(list) != before+1 || list[0].After != row.written || list[0].Actor != "viewer" ||
					list[0].Object != "policies" || op.Key != "eve" {
					t.Errorf("at %s the audit log has %+v", op.Rule, list[0])
				}
				peeked = append(peeked, op.Rule)
			})
			_, more, err := w.LookUpEach(t.Context(), viewer, "eve", row.most,
				func(p policy.Policy) bool { return p.Name != row.not }, eve)

			w.must(err)
			if got := strings.Join(peeked, " "); got != row.peeked || more != row.more {
				t.Errorf("at most %d but %s: %s, %v", row.most, row.not, got, more)
			}
		}

		// What looks nothing up writes nothing.
		every := func(policy.Policy) bool { return true }
		asked, before := w.asked(nil, nil), len(w.entries(AuditQuery{}))
		_, _, err := w.LookUpEach(t.Context(), viewer, "eve", 9, func(policy.Policy) bool { return false }, eve)
		w.must(err)
		_, _, err = w.LookUpEach(t.Context(), viewer, strings.Repeat("x", MaxKey+1), 9, every, eve)
		wantFault(t, "a long key", err, "key")
		if n := len(w.entries(AuditQuery{})); n != before || len(*asked) != 0 {
			t.Errorf("%d rows without a look-up, and Redis is asked %q", n-before, *asked)
		}

		// After a failure the other policies are not asked: Redis would fail for them, too.
		away := errors.New("away")
		asked = w.asked(away, nil)
		_, _, err = w.LookUpEach(t.Context(), viewer, "eve", 9, every, eve)
		if wantErr(t, "an outage", err, away); len(*asked) != 1 {
			t.Errorf("%d calls after the first failed", len(*asked))
		}
	})
}

// However many policies count a key, Redis is asked once, and once more for the ends of all bans.
func TestLookUpEachAsksRedisOnce(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		end := w.clock.now().Add(time.Hour)
		for i := range 20 {
			p := banning(fmt.Sprintf("p%02d", i), "a")
			w.create(p)
			w.fleet.banned = append(w.fleet.banned, core.Banned{Rule: p.Name, Key: "eve", Until: end.UnixMicro()})
		}
		every := func(policy.Policy) bool { return true }

		for _, banned := range []bool{false, true} {
			w.fleet.calls = 0
			w.fleet.op = func(op core.Op) (core.Decision, error) {
				var n int64
				_, err := fmt.Sscanf(op.Rule, "p%d", &n)
				return core.Decision{Remaining: n, Banned: banned && n != 7, RetryAfter: 2 * time.Hour}, err
			}
			uses, _, err := w.LookUpEach(t.Context(), w.admin, "eve", 50, every, eve)
			w.must(err)

			want := map[bool]int{false: 1, true: 2}[banned]
			if w.fleet.calls != want || len(uses) != 20 {
				t.Errorf("%d calls for %d policies, want %d", w.fleet.calls, len(uses), want)
			}
			for i, u := range uses {
				ends := u.BannedUntil.Equal(time.UnixMicro(end.UnixMicro()))
				if u.Policy.Name != fmt.Sprintf("p%02d", i) || u.Remaining != int64(i) || ends != (banned && i != 7) {
					t.Errorf("use %d is %+v", i, u)
				}
			}
		}
	})
}

func TestExportIsInTheAuditLog(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	w.create(sample("p", "a"))
	must(w.Export(t.Context(), w.admin, JSON, "a"))
	list := w.entries(AuditQuery{Action: "policy.export"})
	if len(list) != 1 || list[0].Object != "app:a" || list[0].After != `{"format":"json","policies":1}` {
		t.Errorf("the audit log has %+v", list)
	}
}

// The export has every entry of the filter, over many pages, and no formula.
func TestAuditCSVHasEveryEntryOnce(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		const more = 2*MaxPerPage + 3

		// Two full pages and three entries.
		for range more {
			w.Refuse(t.Context(), w.admin, "x.probe", "=HYPERLINK(1)", "+1")
		}

		// A page and its size in the query do not cut the file.
		var b bytes.Buffer
		w.must(w.AuditCSV(t.Context(), w.admin, AuditQuery{Action: "x.probe", Before: 3, Limit: 1}, &b))

		rows := must(csv.NewReader(&b).ReadAll())

		seen := map[string]bool{}
		for _, r := range rows[1:] {
			seen[r[0]] = true
			if r[5] != "'=HYPERLINK(1)" || r[11] != "'+1" || r[2] != FirstUser {
				t.Fatalf("a row is %q", r)
			}
		}

		if len(rows) != more+1 || len(seen) != more {
			t.Errorf("%d rows of %d entries, want %d", len(rows)-1, len(seen), more)
		}

		equal(t, "exports in the audit log", len(w.entries(AuditQuery{Action: "audit.export"})), 1)
	})
}

// The audit log has log-ins, failures, limits and log-outs, and a filter on the beginning of
// an action selects them all.
func TestAuditOfLogins(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.person("x", nil)
		from := Meta{Address: "192.0.2.9:1"}

		// The rows of this test alone are between two instants.
		w.clock.pass(time.Microsecond)
		since := w.clock.now()

		// Five wrong passwords, and one that is not looked at any more.
		for range 6 {
			w.Login(ctx, "x", "wrong", from)
		}

		s := must(w.Login(ctx, "x", userPassword, Meta{}))
		x := w.actor(s)
		s, err := w.LoginByProvider(ctx, oidc.Identity{Issuer: "https://idp.example", Subject: "1", User: "x"}, x,
			Meta{})
		w.must(err)

		w.must(w.Logout(ctx, x))
		w.must(w.Logout(ctx, w.actor(s)))
		w.RefuseProvider(ctx, errors.New("the state is another"), Meta{})

		// The newest comes first.
		want := []string{
			"session.login refused oidc", "session.logout done oidc", "session.logout done session",
			"session.login done oidc", "session.login done session",
			"session.login refused session", "session.login refused session", "session.login refused session",
			"session.login refused session",
			"session.login refused session", "session.login refused session",
		}

		w.clock.pass(time.Microsecond)
		until := w.clock.now()

		var got []string
		for _, e := range w.entries(AuditQuery{Action: "session.", Since: since, Until: until}) {
			got = append(got, e.Action+" "+string(e.Outcome)+" "+e.Via)
		}
		if !slices.Equal(got, want) {
			t.Errorf("the audit log has\n%q\nwant\n%q", got, want)
		}

		if e := w.entries(AuditQuery{Object: "user:x", Outcome: Refused})[0]; e.Note != tooMany ||
			e.Address != from.Address {
			t.Errorf("the sixth failure is %+v", e)
		}

		// Beginnings that are none, another actor, other times: none of them selects a log-in.
		for _, q := range []AuditQuery{
			{Action: "session"}, {Action: "session.", Actor: "nobody"},
			{Action: "session.", Since: since, Until: since}, {Action: "sessio."},
			{Action: "session.", Since: until}, {Action: "session.", Outcome: "x"},
			{Action: "session.", Object: "user:"}, {Action: "."},
		} {
			if list := w.entries(q); len(list) > 0 {
				t.Errorf("%+v selects %d entries", q, len(list))
			}
		}

		var b bytes.Buffer
		w.must(w.AuditCSV(ctx, w.admin, AuditQuery{Action: "session.", Since: since, Until: until}, &b))
		if rows, err := csv.NewReader(&b).ReadAll(); err != nil || len(rows) != len(want)+1 {
			t.Errorf("the file has %d rows %v, want %d", len(rows), err, len(want)+1)
		}
	})
}
