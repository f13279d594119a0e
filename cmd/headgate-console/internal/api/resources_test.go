package api

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/publish"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/redissource"
	"github.com/headgate/headgate/policy/stats"
)

func TestAppsAreCreatedDescribedAndDeleted(t *testing.T) {
	w := newWorld(t)
	const path = "/api/apps/team%2Fshop"

	// The name has a slash, which is one part of the path as long as it is escaped.
	w.ask("administrator", "PUT", path, object{"description": "one"}).want(201).wantValue("team/shop", "name").
		wantValue("owner", "role").wantValue(0, "policies")
	w.ask("administrator", "PUT", path, object{"description": "two"}).want(200).wantValue("two", "description")
	w.ask("administrator", "GET", path, nil).want(200).wantValue("two", "description").wantValue("admin", "created_by")

	// An owner of a does not learn that the application is there.
	w.ask("owner", "GET", path, nil).want(404)

	// An application goes only after its last policy.
	w.ask("administrator", "PUT", "/api/policies/x", login(object{"apps": []string{"team/shop"}}), "If-None-Match",
		"*").want(201)
	w.ask("administrator", "DELETE", path, nil).wantField("name")
	w.ask("administrator", "DELETE", "/api/policies/x?version=1", nil).want(204)
	w.ask("administrator", "DELETE", path, nil).want(204)
	w.ask("administrator", "DELETE", path, nil).want(404)

	w.ask("administrator", "PUT", "/api/apps/"+url.PathEscape(" "), object{}).wantField("name")

	// A list has the applications in which one has a role, and everything for administrators.
	for as, want := range map[string][]string{"administrator": {"a", "b", "c"}, "viewer": {"a", "b"}, "spare": {}} {
		if got := w.ask(as, "GET", "/api/apps", nil).want(200).names("apps", "name"); !slices.Equal(got, want) {
			t.Errorf("%s sees %q, want %q", as, got, want)
		}
	}
}

func TestExportIsImported(t *testing.T) {
	for format, media := range map[string]string{"yaml": "application/yaml", "json": "application/json"} {
		w := newWorld(t)
		w.ask("owner", "PUT", "/api/policies/x", login(nil), "If-None-Match", "*").want(201)

		file := w.ask("owner", "GET", "/api/export?format="+format, nil).want(200)
		if got := file.header.Get("Content-Type"); got != media {
			t.Errorf("%s: the media type is %q", format, got)
		}
		if got := file.header.Get("Content-Disposition"); got != `attachment; filename="policies.`+format+`"` {
			t.Errorf("%s: %q", format, got)
		}

		// The owner of a gets no export of b.
		w.ask("owner", "GET", "/api/export?app=b&format="+format, nil).want(404)

		// A file that was not changed changes nothing.
		w.ask("owner", "POST", "/api/import", file.text, "Content-Type", media).want(200).wantValue(2, "counts", "keep")
		changed := strings.Replace(file.text, "5/1m", "6/1m", 1)

		// The plan says what would change, and changes nothing.
		plan := w.ask("owner", "POST", "/api/import/plan", changed, "Content-Type", media).want(200).
			wantValue(1, "counts", "update").wantValue(1, "counts", "keep")
		w.ask("owner", "GET", "/api/policies/x", nil).wantValue("5/1m", "limit")

		// The base of the plan makes sure that what was planned is what is done.
		base := fmt.Sprintf("?base=%v", plan.get("base"))
		w.ask("owner", "POST", "/api/import"+base, changed, "Content-Type", media).want(200).
			wantValue(1, "counts", "update")
		w.ask("owner", "GET", "/api/policies/x", nil).wantValue("6/1m", "limit")

		// After the import the base is of the past.
		for _, old := range []string{base, "?base=0"} {
			w.ask("owner", "POST", "/api/import"+old, `{"policies":[]}`).want(409).wantValue("moved", "code")
		}

		// Nothing is deleted unless it is asked for.
		w.ask("owner", "POST", "/api/import?missing=remove", `{"policies":[]}`).want(200).
			wantValue(2, "counts", "delete")
		w.ask("owner", "GET", "/api/policies", nil).wantValue(0, "total")
		w.ask("owner", "GET", "/api/export", nil).want(200)
	}
}

func TestImportErrorsNameEveryMistake(t *testing.T) {
	// Each policy has a mistake in another field, and the answer names both.
	w := newWorld(t)
	const text = `{"policies":[{"name":"x","apps":["a"],"limit":"none","key":"ip"},{"name":"y","apps":["a"],"limit":"1/1s","key":"none"}]}`

	a := w.ask("owner", "POST", "/api/import", text).want(422)
	want := []any{"x limit", "y key"}
	var got []any
	for _, f := range a.get("errors").([]any) {
		got = append(got, at(f, "policy").(string)+" "+at(f, "field").(string))
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}

	// A viewer of a learns in which field the permission is missing.
	denied := w.ask("viewer", "POST", "/api/import",
		`{"policies":[{"name":"x","apps":["a"],"limit":"1/1s","key":"ip"}]}`).want(403).wantValue("denied", "code")
	if got := denied.fields(); !slices.Equal(got, []string{"apps"}) {
		t.Errorf("%q", got)
	}

	w.ask("owner", "POST", "/api/import?missing=x", `{"policies":[]}`).wantField("missing")
	w.ask("owner", "GET", "/api/export?format=toml", nil).wantField("format")
}

func TestPublishingProgress(t *testing.T) {
	w := newWorld(t)
	w.ask("viewer", "GET", "/api/publishing", nil).want(200).wantValue(false, "redis").wantValue(true, "pending").
		wantValue(1, "version").wantValue(0, "published")
	status := publish.Status{Err: errors.New("dial 10.0.0.1: refused"), Failures: 3, Since: noon}
	w = newWorld(t, func(o *Options) { o.Publishing = func() publish.Status { return status } })
	w.ask("viewer", "GET", "/api/publishing", nil).want(200).wantValue(true, "redis").wantValue(3, "failures").
		wantValue(nil, "error").wantValue("2026-03-01T12:00:00Z", "failed_since")
	w.ask("administrator's token", "GET", "/api/publishing", nil).want(200).wantValue(nil, "error")
	w.ask("administrator", "GET", "/api/publishing", nil).want(200).wantValue("dial 10.0.0.1: refused", "error")
}

// The answer to a change says that it is not published, and why, without the name of a host.
func TestAnswersToChangesSayWhatKeepsThem(t *testing.T) {
	status := publish.Status{}
	w := newWorld(t, func(o *Options) { o.Publishing = func() publish.Status { return status } })
	save := func(n int) answer {
		return w.ask("owner", "PUT", "/api/policies/p", login(object{"limit": fmt.Sprintf("%d/1m", n), "version": n}),
			"If-Match", fmt.Sprintf(`"%d"`, n)).want(200)
	}
	save(1).wantValue(nil, "pending").wantValue(nil, "pending_reason").wantValue(nil, "warnings")

	status.Err = errors.New("dial 10.0.0.1: refused")
	save(2).wantValue(true, "pending").wantValue("publishing fails at the moment, and is tried again", "pending_reason")

	// What the console adds may be sent back.
	const reason = "Redis has the policies of another database"
	status.Err = &publish.ForeignError{Published: redissource.Published{Version: "1.x",
		Origin: redissource.Origin{Database: "theirs"}}}
	save(3).wantValue(true, "pending").wantValue(reason, "pending_reason")
	w.ask("owner", "PUT", "/api/policies/p", login(object{"pending": true, "pending_reason": reason,
		"warnings": []string{}}), "If-Match", `"4"`).want(200)
	w.ask("viewer", "GET", "/api/publishing", nil).want(200).wantValue(reason, "foreign")

	for _, change := range []answer{
		w.ask("owner", "POST", "/api/import", "policies: []\n", "Content-Type", "application/yaml"),
		w.ask("owner", "DELETE", "/api/policies/p", nil, "If-Match", `"5"`),
	} {
		change.want(200).wantValue(true, "pending").wantValue(reason, "pending_reason")
	}
}

// A change that an instance does not carry out, or will not, is made, and its answer says so.
func TestAnswersToChangesWarn(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Publishing = func() publish.Status { return publish.Status{} } })
	const noUser = `key: "user" cannot be used here: the program does not set Bindings.User`
	fleet := w.redis
	fleet.list = []policy.Instance{{ID: "i1\n", App: "a", Can: &policy.Abilities{}}}
	change := func(key, tag, want string) {
		t.Helper()
		got := w.ask("owner", "PUT", "/api/policies/p", login(object{"key": key}), "If-Match", tag).want(200).get("warnings")
		if list, _ := got.([]any); want == "" && got != nil || want != "" && (len(list) != 1 || list[0] != want) {
			t.Errorf("the warnings are %v, want %q", got, want)
		}
	}

	change("user", `"1"`, "version 2 of p is not in force in i1? (a): "+noUser)
	change("ip", `"2"`, "")

	fleet.list[0].Can, fleet.list[0].LeftOut = nil, []policy.LeftOut{
		{Policy: "p", Version: 5, Reason: noUser, Kept: true, InForce: 3}, {Policy: "other", Version: 1, Reason: "x"}}
	change("global", `"3"`, "version 5 of p is not in force in i1? (a), and version 3 stays: "+noUser)
	w.ask("viewer", "GET", "/api/instances", nil).want(200)
}

func TestInstancesAreOfTheActorsApps(t *testing.T) {
	w := newWorld(t, withRedis)

	// An instance is of one application, so it is seen by those who have a role there.
	for as, want := range map[string][]string{"administrator": {"one", "two"}, "owner": {"one"}, "stranger": {"two"},
		"viewer": {"one", "two"}, "token for c": {}} {
		if got := w.ask(as, "GET", "/api/instances", nil).want(200).names("instances", "id"); !slices.Equal(got, want) {
			t.Errorf("%s sees %q, want %q", as, got, want)
		}
	}

	first := w.ask("owner", "GET", "/api/instances", nil).get("instances").([]any)[0]
	if want := any(object{"id": "one", "process": "x", "app": "a", "version": "7",
		"store": "local", "age_ms": 1500.0, "clock_offset_ms": -90000.0,
	}); !reflect.DeepEqual(any(first), want) {
		t.Errorf("%v", first)
	}
}

// countsWith returns counts of which these are not 0.
func countsWith(pairs ...any) object {
	v := object{}
	for verdict := range events.Verdict(events.Verdicts) {
		v[verdict.String()] = 0.0
	}
	for i := 0; i < len(pairs); i += 2 {
		v[pairs[i].(string)] = float64(pairs[i+1].(int))
	}
	return v
}

func TestTraffic(t *testing.T) {
	w := newWorld(t)

	// The minute is an hour ago, so all its counts have arrived.
	at := noon.Add(-time.Hour)
	c := stats.Counts{events.Allowed: 7, events.ShadowRefused: 2}
	err := w.Ledger().Record(t.Context(), "a", stats.Minute{Start: at, Requests: c, Lost: 1,
		Policies: map[string]stats.Counts{"p": c, "=x": {events.Banned: 1}}})
	if err != nil {
		t.Fatal(err)
	}

	// Three minutes, with the one that has counts in the middle.
	from := "&from=" + at.Add(-time.Minute).Format(time.RFC3339) + "&to=" + at.Add(2*time.Minute).Format(time.RFC3339)
	for _, path := range []string{"/api/traffic?app=a", "/api/traffic?policy=p"} {
		a := w.ask("viewer", "GET", path+from, nil).want(200)

		// What was lost is of no policy, so it shows for the application only.
		points := a.get("points").([]any)
		want := any(object{"at": at.Format(time.RFC3339), "counts": countsWith("allowed", 7, "shadow_refused", 2),
			"lost": 1.0})
		if path != "/api/traffic?app=a" {
			want.(object)["lost"] = 0.0
		}
		if len(points) != 3 || !reflect.DeepEqual(points[1], want) || a.get("late") != false || a.get("step") != 60.0 {
			t.Errorf("%s: %s", path, a.text)
		}
	}

	// What counts as no policy of today is listed by the name that it has in the counts.
	sums := w.ask("viewer", "GET", "/api/traffic/policies?app=a"+from, nil).want(200).get("sums")
	if want := any([]any{object{"app": "a", "policy": "p",
		"counts": countsWith("allowed", 7, "shadow_refused", 2), "lost": 0.0},
		object{"app": "a", "policy": "=x", "counts": countsWith("banned", 1),
			"lost": 0.0}}); !reflect.DeepEqual(sums, want) {
		t.Errorf("%v", sums)
	}

	// An application without requests has a row of nothing.
	sums = w.ask("viewer", "GET", "/api/traffic/apps?"+from[1:], nil).want(200).get("sums")
	if want := any([]any{object{"app": "a", "policy": "",
		"counts": countsWith("allowed", 7, "shadow_refused", 2), "lost": 1.0},
		object{"app": "b", "policy": "", "counts": countsWith(), "lost": 0.0}}); !reflect.DeepEqual(sums, want) {
		t.Errorf("%v", sums)
	}

	// A program for tables would take =x for a formula, so it stands behind an apostrophe.
	file := w.ask("viewer", "GET", "/api/traffic/csv?app=a"+from, nil).want(200)
	when := at.Format(time.RFC3339)
	want := "time,minutes,application,counted,policy,allowed,waited,degraded,shadow_refused,failed_open,refused,banned,impossible,denied,queue_full,canceled,failed_closed,overruled,lost\n" +
		when + ",1,a,requests,,7,0,0,2,0,0,0,0,0,0,0,0,0,1\n" + when + ",1,a,decisions,'=x,0,0,0,0,0,0,1,0,0,0,0,0,0,0\n" + when + ",1,a,decisions,p,7,0,0,2,0,0,0,0,0,0,0,0,0,0\n"

	if file.text != want || file.header.Get("Content-Disposition") != `attachment; filename="traffic.csv"` {
		t.Errorf("%s, want\n%s", file.text, want)
	}

	// Without an application the file has the requests of all, and no decisions of policies.
	head, requests, _ := strings.Cut(want, "\n")
	requests, _, _ = strings.Cut(requests, "\n")
	if all := w.ask("viewer", "GET", "/api/traffic/csv?"+from[1:], nil).want(200).text; all != head+"\n"+requests+"\n" {
		t.Errorf("of all applications: %s", all)
	}

	// Steps, times and parameters that are not known, too many points, and a time from and to the
	// same instant.
	for _, path := range []string{"/api/traffic?step=2m", "/api/traffic?from=yesterday",
		"/api/traffic?from=0001-01-01T00:00:00Z", "/api/traffic/policies",
		"/api/traffic/csv?from=" + when + "&to=" + when, "/api/traffic?from=" + when + "&to=" + when,
		"/api/traffic/apps?app=a", "/api/traffic?step=1m&from=" + at.AddDate(0, -1, 0).Format(time.RFC3339)} {
		w.ask("viewer", "GET", path, nil).want(422)
	}

	w.ask("viewer", "GET", "/api/traffic?app=a&policy=%0a", nil).want(404)
}

func TestShadow(t *testing.T) {
	w := newWorld(t)

	// Three kinds of decisions, of which ShadowRefused alone would have been refusals.
	w.ask("owner", "PUT", "/api/policies/watched", login(object{"apps": []string{"a"}, "mode": "shadow"}),
		"If-None-Match", "*").want(201)
	err := w.Ledger().Record(t.Context(), "a",
		stats.Minute{Start: noon, Policies: map[string]stats.Counts{"watched": {events.Allowed: 7,
			events.Overruled: 1, events.ShadowRefused: 2}}})
	if err != nil {
		t.Fatal(err)
	}

	seen := w.ask("viewer", "GET", "/api/policies/watched/shadow", nil).want(200)
	want := object{"since": noon.Format(time.RFC3339Nano), "seen": 10.0, "over": 2.0,
		"counts": countsWith("allowed", 7, "overruled", 1, "shadow_refused", 2), "late": false}
	if !reflect.DeepEqual(any(seen.json), any(want)) {
		t.Errorf("%s, want %v", seen.text, want)
	}

	// A policy in force is no longer watched, so nothing was seen.
	w.ask("owner", "PUT", "/api/policies/watched/mode", object{"mode": "enforce", "version": 1}).want(200)
	w.ask("viewer", "GET", "/api/policies/watched/shadow", nil).want(200).wantValue(nil, "since").wantValue(0.0, "seen")
}

func TestKeyIsLookedUpAndReset(t *testing.T) {
	w := newWorld(t)

	// The figures are those of reporting: 10 is the length of the policy's name and of the key.
	w.ask("viewer", "POST", "/api/policies/p/key", object{"key": "192.0.2.1"}).want(200).
		wantValue(false, "allowed").wantValue(10, "remaining").wantValue(1500, "retry_after_ms").
		wantValue(60000, "reset_after_ms")

	// None of these reaches Redis.
	asked := w.asked(nil)
	w.ask("viewer", "POST", "/api/policies/p/key/reset", object{"key": "192.0.2.1"}).want(403)
	w.ask("read token", "POST", "/api/policies/p/key/reset", object{"key": "192.0.2.1"}).want(403)
	w.ask("owner", "POST", "/api/policies/none/key/reset", object{"key": "192.0.2.1"}).want(404)
	w.ask("owner", "POST", "/api/policies/p/key", object{"key": strings.Repeat("x", service.MaxKey+1)}).wantField("key")
	if len(*asked) > 0 {
		t.Errorf("%q was asked", *asked)
	}

	w.ask("owner", "POST", "/api/policies/p/key/reset", object{"key": "192.0.2.1"}).want(204)
	if !slices.Equal(*asked, []string{"reset p 192.0.2.1"}) {
		t.Errorf("%q was asked", *asked)
	}

	log := w.audit(service.AuditQuery{Action: "key.reset", Outcome: service.Done})
	if len(log) != 1 || log[0].Actor != "owner" {
		t.Errorf("of who reset a key the audit log says %+v", log)
	}

	// A key that is never admitted has no time to wait, and JSON has no number for that.
	if v := countOf(service.KeyUse{Decision: core.Decision{RetryAfter: core.Never}}); v.RetryAfter != -1 {
		t.Errorf("never is %d", v.RetryAfter)
	}
}

func TestBansAreListedAndLifted(t *testing.T) {
	w := newWorld(t)
	asked := w.asked(nil)

	list, _ := w.ask("viewer", "GET", "/api/policies/p/bans", nil).want(200).get("bans").([]any)
	if len(list) != 1 || at(list[0], "key") != "<b>\x00\n" || at(list[0], "until") != noon.Format(time.RFC3339) {
		t.Errorf("the bans are %v", list)
	}

	// The key goes back as it came, with its zero byte and its line end.
	body := object{"key": at(list[0], "key")}
	w.ask("viewer", "POST", "/api/policies/p/bans/lift", body).want(403)
	w.ask("read token", "POST", "/api/policies/p/bans/lift", body).want(403)
	w.ask("owner", "POST", "/api/policies/none/bans/lift", body).want(404)

	if len(*asked) > 0 {
		t.Errorf("%q was asked", *asked)
	}

	w.ask("owner", "POST", "/api/policies/p/bans/lift", body).want(204)
	if !slices.Equal(*asked, []string{"lift p <b>\x00\n"}) {
		t.Errorf("%q was asked", *asked)
	}

	log := w.audit(service.AuditQuery{Action: "ban.lift", Outcome: service.Done})
	if len(log) != 1 || log[0].Actor != "owner" {
		t.Errorf("of who lifted a ban the audit log says %+v", log)
	}
}

// The ban of a policy is saved and shown, and its mistakes are in its fields.
func TestBanOfAPolicyIsSaved(t *testing.T) {
	w := newWorld(t, withRedis)
	for i, ban := range []any{"20/1m for 10m max 24h", object{"after": "20/1m", "for": "10m", "max": "24h"}} {
		path := fmt.Sprintf("/api/policies/new%d", i)
		w.ask("owner", "PUT", path, login(object{"ban": ban}), "If-None-Match", "*").want(201)
		w.ask("owner", "GET", path, nil).want(200).wantValue("20/1m for 10m max 24h", "ban")
	}
	for _, ban := range []any{
		"20/1m", "20/1m for 25h max 24h", 7, object{"for": "10m", "max": "24h"},
		object{"after": "20/1m", "for": "soon", "max": "24h"}, object{"after": 7}, object{"more": "1"},
	} {
		w.ask("owner", "PUT", "/api/policies/other", login(object{"ban": ban}), "If-None-Match", "*").wantField("ban")
	}
}

func TestRedisMissingGets503(t *testing.T) {
	w := newWorld(t)
	w.api.o.Service, w.api.o.Fleet = newService(w.db, nil), nil
	ask := func() answer {
		return w.ask("administrator", "GET", "/api/instances", nil).want(503).wantValue("unavailable", "code")
	}

	if a := ask(); !strings.Contains(a.text, "started without Redis") {
		t.Errorf("without Redis: %s", a.text)
	}
	w.ask("owner", "POST", "/api/policies/p/key", object{"key": "x"}).want(503)
	w.ask("owner", "POST", "/api/policies/p/key/reset", object{"key": "x"}).want(503)
	w.ask("owner", "GET", "/api/policies/p/bans", nil).want(503)
	w.ask("owner", "POST", "/api/policies/p/bans", object{"key": "192.0.2.1", "for": "10m"}).want(503)
	w.ask("owner", "POST", "/api/policies/p/bans/lift", object{"key": "x"}).want(503)
	w.ask("owner", "POST", "/api/policies/p/key/grant", object{"key": "::1", "units": 1,
		"until": "2030-01-31T09:00:00Z"}).want(503)
	w.ask("owner", "POST", "/api/policies/p/key/revoke", object{"key": "::1"}).want(503)
	w.ask("owner", "POST", "/api/policies/p/key/debit", object{"key": "::1", "units": 1}).want(503)

	// Redis is there and does not answer: the error has an address, which belongs into the log.
	w = newWorld(t)
	w.redis.err = errors.New("dial 10.0.0.1: refused")
	for _, a := range []answer{ask(),
		w.ask("administrator", "GET", "/api/policies/p/bans", nil).want(503).wantValue("unavailable", "code")} {
		if strings.Contains(a.text, "10.0.0.1") || a.header.Get("Retry-After") != "2" {
			t.Errorf("%s %v", a.text, a.header)
		}
	}

	if n := strings.Count(w.log.String(), "Redis did not answer"); n != 2 {
		t.Errorf("%d lines in the log, want 2: %s", n, w.log)
	}
}

func TestDatabaseLockedGets503(t *testing.T) {
	w := newWorld(t)

	// Another connection holds the lock of a writer, as a backup or a second process might.
	db, err := sql.Open("sqlite", w.file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	lock := func(statement string) {
		t.Helper()
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}

	save := func(ctx context.Context) answer {
		return w.send(request{"PUT", "/api/policies/p", login(nil),
			[]string{"If-Match", `"1"`}}.build(w.cast["write token"]).WithContext(ctx))
	}

	// 200 ms are far below the patience of the database, so it is the request that gives up.
	lock("BEGIN IMMEDIATE")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	a := save(ctx).want(503).wantValue("unavailable", "code")
	if a.header.Get("Retry-After") != "2" {
		t.Errorf("Retry-After is %q", a.header.Get("Retry-After"))
	}

	// Readers do not wait for writers, and the save that failed has changed nothing.
	w.ask("owner", "GET", "/api/policies/p", nil).want(200).wantValue(1, "version")

	lock("ROLLBACK")
	save(t.Context()).want(200).wantValue(2, "version")
}

func TestRequestTimeoutGets503(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	w.send(request{"GET", "/api/policies", nil, nil}.build(w.cast["owner"]).WithContext(ctx)).want(503)
	if w.log.Len() > 0 {
		t.Errorf("the log has %s", w.log)
	}
}

func TestFaultsAreOnlyLogged(t *testing.T) {
	w := newWorld(t)
	recorder := httptest.NewRecorder()
	r := request{"GET", "/api/policies", nil, nil}.build(w.cast["owner"])
	(&call{API: w.api, w: recorder, r: r}).fail(errors.New("the secret of the database"))
	if recorder.Code != 500 || strings.Contains(recorder.Body.String(), "secret") ||
		!strings.Contains(recorder.Body.String(), `"code":"internal"`) {
		t.Errorf("%d %s", recorder.Code, recorder.Body)
	}
	if !strings.Contains(w.log.String(), "the secret of the database") {
		t.Errorf("the log has %s", w.log)
	}
}

func TestNewNeedsAService(t *testing.T) {
	if _, err := New(Options{}); err == nil || err.Error() != "api: Service is nil" {
		t.Error(err)
	}
}

func TestWholeSecondsRoundsUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{0: 1, time.Millisecond: 1, time.Second: 1, time.Second + 1: 2,
		1500 * time.Millisecond: 2, time.Minute: 60} {
		if got := wholeSeconds(d); got != want {
			t.Errorf("%s: %d seconds, want %d", d, got, want)
		}
	}
}

func TestImportWithinApplicationsWithANote(t *testing.T) {
	w := newWorld(t)
	admin := "administrator's token"

	// Three policies: p in a, r in b, and q in both.
	for name, apps := range map[string]string{"q": `["a","b"]`, "r": `["b"]`} {
		w.ask(admin, "PUT", "/api/policies/"+name, `{"name":"`+name+`","apps":`+apps+`,"limit":"1/1s","key":"ip"}`,
			"If-None-Match", "*").want(201)
	}

	none := `{"policies":[]}`
	plan := w.ask(admin, "POST", "/api/import/plan?missing=remove&apps=a", none).want(200).
		wantValue(1, "counts", "delete")

	// An import into a alone deletes p, and leaves q, which b still has.
	if left := fmt.Sprint(plan.get("left")); !slices.Equal(plan.names("steps", "name"), []string{"p"}) ||
		left != "[q]" {
		t.Errorf("%q are deleted and %s left", plan.names("steps", "name"), left)
	}

	w.ask(admin, "POST", "/api/import/plan?missing=remove&apps=a,b", none).want(200).wantValue(3, "counts", "delete")

	// Each mistake has its field: an empty name, apps without a deletion, and so on.
	w.ask(admin, "POST", "/api/import/plan?missing=remove&apps=a,", none).wantField("apps")
	w.ask(admin, "POST", "/api/import/plan?apps=a", none).wantField("apps")
	w.ask(admin, "POST", "/api/import?comment="+strings.Repeat("x", service.MaxComment+1), none).wantField("comment")
	w.ask(admin, "POST", "/api/import?compare=yes", none).wantField("compare")
	w.ask(admin, "POST", "/api/import/plan?compare=perhaps", none).wantField("compare")

	// To compare is to read, so a token for reading may.
	w.ask("read token", "POST", "/api/import/plan?missing=remove&apps=a", none).want(403)
	w.ask("read token", "POST", "/api/import/plan?missing=remove&apps=a&compare=yes", none).want(200).
		wantValue(1, "counts", "delete")

	w.ask(admin, "POST", "/api/import?missing=remove&apps=a&comment=commit+0a1b", none).want(200)
	if notes := w.ask("owner", "GET", "/api/policies/p/history", nil).want(200).
		names("revisions", "comment"); notes[0] != "commit 0a1b" {
		t.Errorf("the notes are %q", notes)
	}
}
