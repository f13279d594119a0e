package web

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

// shop is an instance of a that can do nothing special.
func shop(id string, left ...policy.LeftOut) policy.Instance {
	return policy.Instance{ID: id, App: "a", Version: "7-abc", LeftOut: left, Can: &policy.Abilities{Prefixes: true}}
}

// warning is what a page says that instances do not carry out, and whether it has a notice of
// success.
func (a *answer) warning() (text string, tick bool) {
	if n := a.byID("unable"); n != nil {
		text = strings.Join(strings.Fields(words(n)), " ")
	}
	return text, strings.Contains(a.text, `class="notice done`)
}

const noUser = `key: "user" cannot be used here: the program does not set Bindings.User`

func TestPagesSayWhatInstancesDoNotCarryOut(t *testing.T) {
	w := newWorld(t)
	w.person("owner", map[string]service.Role{"a": service.Owner})
	w.person("elsewhere", map[string]service.Role{"b": service.Owner})
	w.policy("p", "5/1m")
	w.fleet.instances = []policy.Instance{
		shop("i1<b>", policy.LeftOut{Policy: "p", Version: 3, Reason: "<i>" + noUser, Kept: true, InForce: 2}),
		shop("i2", policy.LeftOut{Policy: "p", Version: 3, Reason: "<i>" + noUser, Kept: true, InForce: 2},
			policy.LeftOut{Policy: "<script>", Reason: "x"}), // a policy that is not there
	}

	const want = "Not everything is in force p, version 3, is not in force in i1<b>, i2 of a, where version 2 stays. <i>" +
		noUser
	for _, page := range []string{"/", "/policies", "/policies?done=bulk", "/policies/p?done=saved", "/new", "/apps"} {
		got := w.as("owner").get(page).want(http.StatusOK)
		if text, tick := got.warning(); text != want || tick || strings.Contains(got.text, "<i>") ||
			strings.Contains(got.text, "<script>") {
			t.Errorf("%s: %q, a notice of success %v", page, text, tick)
		}
	}
	if got, _ := w.as("elsewhere").get("/policies").warning(); got != "" {
		t.Errorf("one without a role sees %q", got)
	}
	if text := w.as("owner").get("/policies/p").text; !strings.Contains(text, "in 0 of 2 instances") {
		t.Error("the policy counts as in force")
	}
	if text := w.as("owner").get("/").text; !strings.Contains(text, "leaves out p<") {
		t.Error("the table of instances does not have it")
	}

	// An instance of a version that refuses the whole set is one without any newer change.
	w.fleet.instances = []policy.Instance{{ID: "old", App: "a", Version: "6", Refused: "7", Error: "it is wrong"}}
	if got, _ := w.as("owner").get("/policies").warning(); got !=
		"Not everything is in force No newer change of a is in force in old. it is wrong" {
		t.Errorf("%q", got)
	}

	// While Redis is away nothing is known, and no page fails.
	w.fleet.away = errors.New("away")
	if got, tick := w.as("owner").get("/policies?done=saved").want(http.StatusOK).warning(); got != "" || !tick {
		t.Errorf("%q, %v", got, tick)
	}
}

// The confirmation of a change says at once what no instance has reported yet.
func TestConfirmationSaysWhatWillNotBeInForce(t *testing.T) {
	w := newWorld(t)
	w.fleet.instances = []policy.Instance{shop("i1"), shop("i2"), shop("i3"), shop("i4"), shop("i5"),
		{ID: "unknown", App: "a", Version: "7-abc"}}
	b := w.as(service.FirstUser)
	b.post("/new", filled("name", "per-user", "apps", "a", "key", "user")).goes("/policies/per-user?done=created")

	const want = "Not everything is in force per-user, version 1, will not be in force in i1, i2, i3 and 2 more of a. " +
		noUser
	for _, page := range []string{"/policies/per-user?done=created", "/unable?of=per-user"} {
		got := b.get(page).want(http.StatusOK)
		text, tick := got.warning()
		if page[1] == 'u' {
			text = strings.Join(strings.Fields(words(got.doc)), " ")
		}
		if text != want || tick {
			t.Errorf("%s: %q, %v", page, text, tick)
		}
	}

	// Off it applies nowhere, so nothing is missing. The script asks again, as a report may come.
	b.submit("/policies/per-user", "/policies/per-user/mode", url.Values{"mode": {"off"}, "confirm": {"yes"}})
	got := b.get("/policies/per-user?done=mode")
	if text, tick := got.warning(); text != "" || !tick ||
		attr(got.byID("unable"), "data-refresh") != "/unable?of=per-user" {
		t.Errorf("%q, %v", text, tick)
	}
}

// The form greys out what no instance of the application can do, and says why.
func TestFormGreysOutWhatNoInstanceCanDo(t *testing.T) {
	w := newWorld(t)
	b := w.as(service.FirstUser)
	behind := policy.Instance{ID: "behind", App: "a", Can: &policy.Abilities{}}
	able := policy.Instance{ID: "able", App: "a",
		Can: &policy.Abilities{User: true, Prefixes: true, Plans: []string{"x"}}}
	for name, c := range map[string]struct {
		instances []policy.Instance
		app       string
		want      string
	}{
		"one that lacks all":       {[]policy.Instance{behind}, "a", "user plans plan_by allow_networks deny_networks"},
		"one that lacks some":      {[]policy.Instance{shop("i1")}, "a", "user plans plan_by"},
		"one of two can":           {[]policy.Instance{behind, able}, "a", ""},
		"one does not say":         {[]policy.Instance{behind, {ID: "old", App: "a"}}, "a", ""},
		"none":                     {[]policy.Instance{}, "a", ""},
		"of another application":   {[]policy.Instance{behind}, "b", ""},
		"no application is chosen": {[]policy.Instance{behind}, "", ""},
	} {
		w.fleet.instances = c.instances
		page := b.get("/new?app=" + c.app).want(http.StatusOK)
		if got := strings.Join(page.disabled(), " "); got != c.want {
			t.Errorf("%s: %q is greyed out, want %q", name, got, c.want)
		}
		if why := "No instance of a can do this: " + noUser; strings.Contains(words(page.doc), why) != (c.want != "") {
			t.Errorf("%s: it does not say why", name)
		}
	}

	// A policy that has it already can be edited, and loses nothing.
	w.fleet.instances = []policy.Instance{behind}
	b.post("/new", filled("name", "p", "apps", "a", "key", "user", "plans", "pro: 9/1m", "plan_by",
		"x")).goes("/policies/p?done=created")
	edit := b.get("/policies/p/edit").want(http.StatusOK)
	if got := strings.Join(edit.disabled(), " "); got != "allow_networks deny_networks" {
		t.Errorf("%q is greyed out", got)
	}
}

// disabled returns the values of options and the names of other fields that are greyed out.
func (a *answer) disabled() (list []string) {
	a.each(func(n *html.Node) {
		switch {
		case !has(n, "disabled"):
		case n.Data == "option":
			list = append(list, attr(n, "value"))
		default:
			list = append(list, attr(n, "name"))
		}
	})
	return list
}
