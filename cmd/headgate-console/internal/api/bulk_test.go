package api

import (
	"testing"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

func TestBulkChangesAllOrNothing(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"one", "two"} {
		w.ask("owner", "PUT", "/api/policies/"+name, login(nil), "If-None-Match", "*").want(201)
	}

	both := []object{{"name": "one", "version": 1}, {"name": "two", "version": 1}}
	done := w.ask("owner", "PATCH", "/api/policies", object{"policies": both, "mode": "off"}).want(200)
	if list := done.json.(object)["changed"].([]any); len(list) != 2 || list[0].(object)["version"] != 2.0 ||
		list[1].(object)["name"] != "two" {
		t.Errorf("changed were %v", list)
	}

	// The same request again, with the versions of before, finds nothing to do.
	again := w.ask("owner", "PATCH", "/api/policies", object{"policies": both, "mode": "off"}).want(200)
	if n := len(again.json.(object)["unchanged"].([]any)); n != 2 {
		t.Errorf("%d are unchanged, want 2", n)
	}

	// The version of two is stale, so one stays as it is as well.
	stale := []object{{"name": "one", "version": 2}, {"name": "two", "version": 1}}
	got := w.ask("owner", "PATCH", "/api/policies", object{"policies": stale, "mode": "shadow"}).want(409).
		wantValue("stale", "code")
	if list := got.json.(object)["errors"].([]any); len(list) != 1 || list[0].(object)["policy"] != "two" ||
		list[0].(object)["message"] != "it has version 2" {
		t.Errorf("the errors are %v", list)
	}

	w.ask("owner", "GET", "/api/policies/one", nil).want(200).wantValue("off", "mode")

	w.ask("owner", "PATCH", "/api/policies", object{"policies": both, "mode": "none"}).want(422).wantField("mode")
	w.ask("owner", "PATCH", "/api/policies", object{"policies": []object{}, "mode": "off"}).want(422).
		wantField("policies")
	w.ask("owner", "PATCH", "/api/policies",
		object{"policies": []object{{"name": "one", "version": 2}}, "remove_app": "a"}).want(422).wantField("apps")

	// The filters of the list are those of the pages.
	w.ask("owner", "GET", "/api/policies?mode=off&changed=day&sort=-share", nil).want(200).wantValue(2, "total")
	w.ask("owner", "GET", "/api/policies?refusing=now", nil).want(200).wantValue(0, "total")
	w.ask("owner", "GET", "/api/policies?refusing=yes&changed=x", nil).want(422).wantField("refusing")
}

func TestBulkChangeIsUndone(t *testing.T) {
	w := newWorld(t)
	w.ask("owner", "PUT", "/api/policies/one", login(nil), "If-None-Match", "*").want(201)
	w.ask("owner", "PUT", "/api/policies/two", login(nil), "If-None-Match", "*").want(201)

	both := []object{{"name": "one", "version": 1}, {"name": "two", "version": 1}}
	done := w.ask("owner", "PATCH", "/api/policies",
		object{"policies": both, "mode": "off", "comment": "for the fair"}).want(200)
	w.ask("owner", "GET", "/api/policies/one/history/2", nil).want(200).wantValue("for the fair", "comment")

	// An undo names the versions that the change has made, not those before it.
	w.ask("owner", "POST", "/api/policies/undo", object{"policies": both}).want(409).wantValue("stale", "code")
	w.ask("owner", "GET", "/api/policies/one", nil).want(200).wantValue("off", "mode")

	// What the change answered is what the undo takes.
	undone := w.ask("owner", "POST", "/api/policies/undo",
		object{"policies": done.get("changed"), "comment": "over"}).want(200)
	if list := undone.get("changed").([]any); len(list) != 2 || at(list[0], "version") != 3. ||
		at(list[1], "name") != "two" {
		t.Errorf("undone were %v", list)
	}

	w.ask("owner", "GET", "/api/policies/one", nil).want(200).wantValue("enforce", "mode")
	w.ask("owner", "GET", "/api/policies/two/history/3", nil).want(200).wantValue("over", "comment")
	w.ask("owner", "POST", "/api/policies/undo", object{"policies": []object{}}).want(422).wantField("policies")
}

func TestFiltersAreSavedAndDeleted(t *testing.T) {
	w := newWorld(t)

	// A name may hold what a page has to escape.
	w.ask("owner", "PUT", "/api/filters/my%20%3Cb%3E", object{"mode": "shadow", "refusing": "now", "sort": "-share"}).
		want(204)

	w.ask("owner", "PUT", "/api/filters/x", object{"mode": "on", "sort": "size"}).want(422).wantField("sort")
	w.ask("owner", "PUT", "/api/filters/x", object{"refusing": "later"}).want(422).wantField("refusing")

	got := w.ask("owner", "GET", "/api/filters", nil).want(200).json.(object)
	own, built := got["filters"].([]any), got["built_in"].([]any)
	if len(own) != 1 || own[0].(object)["name"] != "my <b>" || own[0].(object)["refusing"] != "now" ||
		len(built) != len(service.BuiltInFilters()) {
		t.Errorf("the filters are %v", got)
	}

	// A filter is of the user who saved it.
	if n := len(w.ask("viewer", "GET", "/api/filters", nil).want(200).json.(object)["filters"].([]any)); n != 0 {
		t.Errorf("another user has %d filters", n)
	}

	w.ask("owner", "DELETE", "/api/filters/my%20%3Cb%3E", nil).want(204)
	w.ask("owner", "DELETE", "/api/filters/my%20%3Cb%3E", nil).want(404)
}
