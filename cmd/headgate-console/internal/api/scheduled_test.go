package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

func TestScheduleListAndCancel(t *testing.T) {
	w := newWorld(t)

	// The time has an offset and is answered in UTC.
	one := w.ask("owner", "POST", "/api/policies/p/scheduled", object{"at": "2026-03-02T14:00:00+01:00",
		"mode": "shadow", "comment": "<b>"}, "If-Match", `"1"`).want(http.StatusCreated)
	one.wantValue("2026-03-02T13:00:00Z", "at").wantValue("p", "policy").wantValue(1, "version").
		wantValue("owner", "by").wantValue("<b>", "comment")

	// The second is earlier, and a whole policy instead of a mode.
	two := w.ask("owner", "POST", "/api/policies/p/scheduled", object{"at": "2026-03-01T13:00:00Z",
		"policy": login(object{"limit": "7/1m"}), "version": 1}).want(http.StatusCreated)

	// The list is in the order of time, so the second is the first.
	list := w.ask("viewer", "GET", "/api/scheduled", nil).want(http.StatusOK)
	if got := list.names("scheduled", "id"); len(got) != 2 || got[0] != two.get("id") || got[1] != one.get("id") {
		t.Errorf("%q", got)
	}

	if got := w.ask("stranger", "GET", "/api/scheduled", nil).names("scheduled", "id"); len(got) != 0 {
		t.Errorf("a stranger sees %q", got)
	}

	// Who sees it without a right gets a 403, and who does not see it a 404. It is canceled once.
	path := "/api/scheduled/" + one.get("id").(string)
	w.ask("viewer", "DELETE", path, nil).want(http.StatusForbidden)
	w.ask("stranger", "DELETE", path, nil).want(http.StatusNotFound)
	w.ask("owner", "DELETE", path, nil).want(http.StatusNoContent)
	w.ask("owner", "DELETE", path, nil).want(http.StatusUnprocessableEntity)

	if got := w.ask("owner", "GET", "/api/policies/p/scheduled", nil).want(http.StatusOK).
		names("scheduled", "id"); len(got) != 1 {
		t.Errorf("%q", got)
	}
}

func TestScheduleRefusesMistakes(t *testing.T) {
	w := newWorld(t)
	// It is noon on 1 March 2026, so the fourth row is not in the future, and the fifth is more
	// than a year ahead.
	for _, c := range []struct {
		body  object
		field string
	}{
		{object{"mode": "off"}, "at"},
		{object{"mode": "off", "at": "2026-03-02T14:00:00Z", "for": 60}, "at"},
		{object{"mode": "off", "at": "2026-03-02T14:00:00"}, "at"}, // no zone
		{object{"mode": "off", "at": "2026-03-01T12:00:00Z"}, "at"},
		{object{"mode": "off", "at": "2027-03-03T12:00:00Z"}, "at"},
		{object{"mode": "off", "for": 59}, "for"},
		{object{"mode": "off", "for": -1}, "for"},
		{object{"mode": "off", "for": 1 << 60}, "for"},
		{object{"for": 60}, "mode"},
		{object{"mode": "off", "policy": login(nil), "for": 60}, "mode"},
		{object{"mode": "never", "for": 60}, "mode"},
		{object{"policy": login(object{"limit": "often", "surprise": 1}), "for": 60}, "surprise"},
		{object{"policy": login(object{"name": "q"}), "for": 60}, "name"},
		{object{"mode": "off", "for": 60, "comment": strings.Repeat("x", service.MaxComment+1)}, "comment"},
	} {
		w.ask("owner", "POST", "/api/policies/p/scheduled", c.body, "If-Match", `"1"`).wantField(c.field)
	}

	w.ask("owner", "POST", "/api/policies/p/scheduled", object{"mode": "off", "for": 60}, "If-Match", `"7"`).
		want(http.StatusPreconditionFailed)
	w.ask("owner", "POST", "/api/policies/p/scheduled", object{"mode": "off", "for": 60}).
		want(http.StatusPreconditionRequired)

	w.ask("owner", "GET", "/api/policies/p", nil).wantValue(1, "version")
}

func TestScheduleBoundOfAUser(t *testing.T) {
	w := newWorld(t)

	at := func(minute int) string { return noon.Add(time.Duration(minute+1) * time.Minute).Format(time.RFC3339) }

	// A policy may have fewer changes than a user, so several are needed.
	for i := range service.MaxScheduledUser {
		path := fmt.Sprint("/api/policies/p", i/service.MaxScheduledPolicy)
		if i%service.MaxScheduledPolicy == 0 {
			w.ask("owner", "PUT", path, login(nil), "If-None-Match", "*").want(http.StatusCreated)
		}
		w.ask("write token", "POST", path+"/scheduled", object{"at": at(i), "mode": "off", "version": 1}).
			want(http.StatusCreated)
	}

	const full = "200 changes that you scheduled wait, and at most 200 may: cancel some first"
	// A change for a time needs a place for its end, and a token counts as its user.
	for _, body := range []object{{"at": at(0), "mode": "off", "version": 1},
		{"for": 60, "mode": "off", "version": 1}} {
		for _, as := range []string{"owner", "write token"} {
			if got := w.ask(as, "POST", "/api/policies/p/scheduled", body).
				wantField(""); !strings.Contains(got.text, full) {
				t.Errorf("%s is told %s", as, got.text)
			}
		}
	}

	// The bound is of the user, not of the policy.
	w.ask("administrator", "POST", "/api/policies/p/scheduled", object{"at": at(0), "mode": "off", "version": 1}).
		want(http.StatusCreated)
	w.ask("owner", "GET", "/api/policies/p", nil).wantValue(1, "version")
}

// The policy q was of b alone when its change was scheduled, and is of a and b now.
func TestScheduledChangeHidesWhatTheHistoryHides(t *testing.T) {
	w := newWorld(t)

	w.ask("stranger", "PUT", "/api/policies/q", login(object{"apps": []string{"b"}}), "If-None-Match", "*").
		want(http.StatusCreated)
	w.ask("stranger", "POST", "/api/policies/q/scheduled",
		object{"at": "2026-03-02T14:00:00Z", "policy": login(object{"apps": []string{"b"}, "limit": "4711/1h"}),
			"version": 1, "comment": "on the quiet"}).want(http.StatusCreated)
	w.ask("administrator", "PUT", "/api/policies/q", login(object{"apps": []string{"a", "b"}}), "If-Match", `"1"`).
		want(http.StatusOK)

	const sees, knows, nothing = "all of it", "that it waits", "nothing"

	// The comment and the limit are what the other application has written.
	for i, want := range []string{sees, knows, sees, sees, knows, knows, nothing, sees} { // in the order of the columns
		as := columns[i]
		for _, path := range []string{"/api/scheduled", "/api/policies/q/scheduled"} {
			if want == nothing && path != "/api/scheduled" {
				w.ask(as, "GET", path, nil).want(http.StatusNotFound)
				continue
			}

			got, is := w.ask(as, "GET", path, nil).want(http.StatusOK), nothing
			if list := got.get("scheduled").([]any); len(list) == 1 {
				is = sees
				if at(list[0], "hidden") == true && len(at(list[0], "changes").([]any)) == 0 &&
					at(list[0], "comment") == "" {
					is = knows
				}
			}

			if is != want || strings.Contains(got.text, "4711/1h") != (want == sees) ||
				strings.Contains(got.text, "on the quiet") != (want == sees) {
				t.Errorf("%s: %s learns %s, want %s\n%s", path, as, is, want, got.text)
			}
		}

		// A user who sees the change sees the version before, too.
		if code := map[string]int{sees: http.StatusOK, knows: http.StatusNotFound,
			nothing: http.StatusNotFound}[want]; code != w.ask(as, "GET", "/api/policies/q/history/1", nil).status {
			t.Errorf("the history answers %s otherwise", as)
		}
	}
}

func TestUndoAndComments(t *testing.T) {
	w := newWorld(t)

	w.ask("owner", "PUT", "/api/policies/p/mode", object{"mode": "off", "version": 1, "comment": "repair"}).
		want(http.StatusOK)
	w.ask("owner", "GET", "/api/policies/p/history/2", nil).wantValue("repair", "comment")

	// An undo takes back the newest version only.
	w.ask("owner", "POST", "/api/policies/p/undo", object{"version": 1}).want(http.StatusConflict)
	w.ask("owner", "POST", "/api/policies/p/undo", object{"version": 2, "comment": "done"}).want(http.StatusOK).
		wantValue("enforce", "mode").wantValue(3, "version")
	w.ask("owner", "GET", "/api/policies/p/history/3", nil).wantValue("done", "comment").wantValue("undo", "action").
		wantValue("of version 2", "note")

	// A deletion is undone by a creation, and that again by a deletion.
	w.ask("owner", "DELETE", "/api/policies/p?version=3&comment=gone", nil).want(http.StatusNoContent)
	w.ask("owner", "GET", "/api/policies/p/history/4", nil).wantValue("gone", "comment")
	w.ask("owner", "POST", "/api/policies/p/undo", object{"version": 4}).want(http.StatusOK).wantValue(5, "version")
	w.ask("owner", "POST", "/api/policies/p/undo", object{"version": 5}).want(http.StatusNoContent)
	w.ask("owner", "GET", "/api/policies/p", nil).want(http.StatusNotFound)
}
