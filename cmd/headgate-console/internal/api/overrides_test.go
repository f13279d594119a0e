package api

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/headgate-console/internal/publish"
)

const friday = "2099-12-04T17:00:00Z"

// byUser has p count by users.
func byUser(w *world) {
	w.t.Helper()
	w.ask("owner", "PUT", "/api/policies/p", login(object{"key": "user", "version": 1})).want(200)
}

// listed returns the overrides of an answer as "key limit until by".
func listed(a answer) string {
	var list []string
	rows, _ := a.json.(object)["overrides"].([]any)
	for _, row := range rows {
		o := row.(object)
		until, _ := o["until"].(string)
		list = append(list, o["key"].(string)+" "+o["limit"].(string)+" "+until+" "+o["changed_by"].(string))
	}
	return strings.Join(list, "\n")
}

func TestOverrides(t *testing.T) {
	w := newWorld(t)
	byUser(w)
	const path = "/api/policies/p/overrides"
	wantList := func(query, want string) {
		t.Helper()
		if got := listed(w.ask("viewer", "GET", path+query, nil).want(200)); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", query, got, want)
		}
	}
	wantChanged := func(a answer, want float64) {
		t.Helper()
		if got := a.want(200).json.(object)["changed"]; got != want {
			t.Errorf("%v changed, want %v", got, want)
		}
	}

	wantList("", "")
	wantChanged(w.ask("owner", "PUT", path+"/acme:*", object{"limit": "9000/1h", "until": friday}), 1)
	wantChanged(w.ask("owner", "PUT", path+"/acme:*", object{"limit": "9000/1h", "until": friday}), 0)
	wantChanged(w.ask("owner", "PUT", path+"/a%2F%20b%3F", object{"limit": "7/1m"}), 1)
	wantList("", "a/ b? 7/1m  owner\nacme:* 9000/1h "+friday+" owner")
	wantList("?search=acme", "acme:* 9000/1h "+friday+" owner")
	wantList("?per_page=1", "a/ b? 7/1m  owner")
	wantList("?per_page=1&after=a/+b%3F", "acme:* 9000/1h "+friday+" owner")

	wantChanged(w.ask("owner", "POST", path, object{"changes": []object{
		{"key": "b", "limit": "5/1m"}, {"key": "acme:*"}, {"key": "none"}}}), 2)
	wantList("", "a/ b? 7/1m  owner\nb 5/1m  owner")
	w.ask("owner", "DELETE", path+"/b", nil).want(204)
	w.ask("owner", "DELETE", path+"/b", nil).want(404)
	wantList("", "a/ b? 7/1m  owner")

	// Each mistake is named, and an end that is spelled otherwise is not left out.
	w.ask("owner", "PUT", path+"/b", object{"limit": ""}).wantField("limit")
	w.ask("owner", "PUT", path+"/b", object{"limit": "5"}).wantField("limit")
	w.ask("owner", "PUT", path+"/b", object{"limit": "5/1m", "until": "2020-01-01T00:00:00Z"}).wantField("until")
	w.ask("owner", "PUT", path+"/b", object{"limit": "5/1m", "untl": friday}).wantField("untl")
	w.ask("owner", "PUT", path+"/"+strings.Repeat("k", 513), object{"limit": "5/1m"}).wantField("key")
	w.ask("owner", "POST", path, object{"changes": []object{{"key": "b", "limit": "5/1m", "untl": friday}}}).
		wantField("changes[0].untl")
	w.ask("owner", "POST", path, object{"changes": []object{{"key": "b", "limit": "5"}}}).wantField("changes[0].limit")
	w.ask("owner", "GET", path+"?per_page=x", nil).wantField("per_page")
	wantList("", "a/ b? 7/1m  owner")
}

// A change that something keeps from the instances says so, and what is not published is pending.
func TestOverridesThatArePending(t *testing.T) {
	failing := publish.Status{Err: errors.New("away"), Failures: 1}
	w := newWorld(t, func(o *Options) { o.Publishing = func() publish.Status { return failing } })
	byUser(w)
	a := w.ask("owner", "PUT", "/api/policies/p/overrides/k", object{"limit": "5/1m"}).want(200)
	if v := a.json.(object); v["pending"] != true || v["pending_reason"] == "" {
		t.Errorf("%v", v)
	}
	w.ask("owner", "DELETE", "/api/policies/p/overrides/k", nil).want(200)
}

// A file of overrides is planned, written and read back.
func TestOverridesAsAFile(t *testing.T) {
	w := newWorld(t)
	byUser(w)
	w.ask("owner", "PUT", "/api/policies/p/overrides/old", object{"limit": "5/1m"}).want(200)
	file := object{"overrides": object{"p": object{"a*": "7/1m", "b": object{"limit": "8/1m", "until": friday}}}}

	plan := w.ask("viewer", "POST", "/api/overrides/plan?compare=yes&missing=remove", file).want(200).json.(object)
	counts, steps := plan["policies"].([]any)[0].(object), plan["steps"].([]any)
	if counts["set"] != 2. || counts["removed"] != 1. || plan["changes"] != 3. || len(steps) != 3 ||
		steps[1].(object)["after"] != "8/1m until "+friday {
		t.Errorf("%v", plan)
	}
	w.ask("owner", "POST", "/api/overrides?base=x&missing=remove", file).want(409)
	base, _ := plan["base"].(string)
	w.ask("owner", "POST", "/api/overrides?missing=remove&base="+base, file).want(200)
	a := w.ask("viewer", "GET", "/api/overrides?app=a", nil).want(200)
	if got := a.json.(object); !reflect.DeepEqual(got, file) || a.header.Get("Content-Disposition") == "" {
		t.Errorf("%s", a.text)
	}

	w.ask("owner", "POST", "/api/overrides", object{"overrides": object{"p": object{"k": "5"}}}).
		wantField("overrides.k")
	w.ask("owner", "POST", "/api/overrides", object{}).wantField("overrides")
	w.ask("owner", "POST", "/api/overrides?missing=x", file).wantField("missing")
	w.ask("owner", "POST", "/api/overrides/plan?compare=x", file).wantField("compare")
	w.ask("owner", "POST", "/api/overrides", `{"overrides":{"p":{"k":"1/1m","k":"2/1m"}}}`).want(422)
}
