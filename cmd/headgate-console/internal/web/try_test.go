package web

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

func TestTesterShowsMatchingPolicies(t *testing.T) {
	w := newWorld(t)

	// Five match: the last one is for another method. One of them is off, which the page says.
	for _, p := range []policy.Policy{
		{Name: "login", Limit: limit("5/1m"), Key: "ip+route",
			Match: policy.Match{Methods: []string{"POST"}, Path: "/login"}, Priority: 2},
		{Name: "people", Limit: limit("50/1m"), Key: "user", Mode: policy.Shadow, Priority: 1,
			Plans: map[string]core.Limit{"pro": limit("90/1m")}, PlanBy: "user"},
		{Name: "tenants", Limit: limit("60/1m"), Key: "header:X-Tenant", OnLimit: "wait 2s"},
		{Name: "away", Limit: limit("1/1m"), Key: "ip", Mode: policy.Off},
		{Name: "exports", Limit: limit("7/1m"), Key: "ip", Match: policy.Match{
			Query: map[string]policy.Values{"x": {"1"}}, Claims: map[string]policy.Values{"plan": {"free"}}}},
		{Name: "reads", Limit: limit("1/1m"), Key: "ip", Match: policy.Match{Methods: []string{"GET"}}},
	} {
		p.Apps = []string{"a"}
		w.add(p)
	}

	// Ada has used up her limit, so that both answers occur.
	w.fleet.used["people ada"] = 50

	b := w.as("admin")
	got := b.submit("/keys?view=one", "/keys/try", url.Values{
		"app": {"a"}, "method": {"post"}, "path": {"/login?x=1"}, "route": {"/login"}, "address": {"192.0.2.7"},
		"user": {"ada"}, "claims": {"plan: trial\nplan: free"}, "headers": {"Host: x\r\nX-Other: y"},
	}).want(http.StatusOK)

	// The words are those of these policies in turn, and of the one that does not match.
	for _, want := range []string{
		"5 policies match", "<code>192.0.2.7|/login</code>", "passes: 5 of 5 left", "<code>ada</code>",
		"over the limit for 0s more: counted, and passes (in shadow)",
		"unknown callers", "nothing: it is off", "1 other policy", "It would pass.",
	} {
		if !strings.Contains(got.text, want) {
			t.Errorf("%q is not on the page", want)
		}
	}

	order := []string{`>login</a> <`, `>people</a> <`, `>exports</a> <`, `>tenants</a> <`, `>away</a> <`}
	for i := range order[1:] {
		if strings.Index(got.text, order[i]) > strings.Index(got.text, order[i+1]) {
			t.Errorf("%s is not before %s", order[i], order[i+1])
		}
	}
}

func TestTesterShowsAllMistakes(t *testing.T) {
	_, b := asAdmin(t)
	got := b.post("/keys/try", url.Values{"app": {"a"}, "method": {""}, "path": {"x"}, "address": {"here"},
		"headers": {"nothing"}, "claims": {"nothing"}}).want(http.StatusUnprocessableEntity)
	for _, field := range []string{"method", "path", "address", "headers", "claims"} {
		if got.mistake(field) == "" || attr(got.byID(field), "aria-invalid") != "true" {
			t.Errorf("there is nothing beside %s", field)
		}
	}
}

// The exceptions of a policy come before its limit.
func TestTesterMindsTheExceptions(t *testing.T) {
	w := newWorld(t)
	p := policy.Policy{Name: "p", Apps: []string{"a"}, Limit: limit("5/1m"), Key: "user"}
	p.Access.Allow.Keys, p.Access.Deny.Keys = []string{"ada"}, []string{"eve"}
	w.add(p)
	w.fleet.used["p ada"], w.fleet.used["p bob"] = 5, 5

	b := w.as("admin")
	for user, want := range map[string]string{"ada": "It would pass.", "eve": "It would be refused, by p.",
		"bob": "It would be refused, by p.", "zoe": "It would pass."} {
		got := b.submit("/keys?view=one", "/keys/try", url.Values{"user": {user}}).want(http.StatusOK)
		if said := words(got.byID("result")); !strings.HasPrefix(said, want) {
			t.Errorf("%s: %q, want %q", user, said, want)
		}
	}
}

// A policy with a share in force refuses only the keys of that share.
func TestTesterMindsTheShareInForce(t *testing.T) {
	w := newWorld(t)
	p := policy.Policy{Name: "p", Apps: []string{"a"}, Limit: limit("5/1m"), Key: "user", Enforce: core.Whole / 2}
	p.Access.Deny.Keys = []string{"eve"}
	w.add(p)

	b, met := w.as("admin"), map[bool]bool{}
	for _, user := range strings.Fields("a b c d e f g h i j k l m n o p q r s t u v w x y z") {
		w.fleet.used["p "+user] = 5
		want, in := "It would pass.", p.Enforce.Has("p", user)
		if in {
			want = "It would be refused, by p."
		}
		met[in] = true
		got := b.submit("/keys?view=one", "/keys/try", url.Values{"user": {user}}).want(http.StatusOK)
		said := words(got.byID("result"))
		if !strings.HasPrefix(said, want) || strings.Contains(said, "passes (in shadow)") == in {
			t.Errorf("%s: %q, want %q", user, said, want)
		}
	}
	if len(met) != 2 {
		t.Errorf("all keys are alike: %v", met)
	}
}

// Without counts the page says what it knows, and not that the request would pass.
func TestTesterWithoutCounts(t *testing.T) {
	for _, none := range []bool{false, true} {
		w := newWorld(t, func(o *Options) {
			if none {
				o.Fleet = nil
			}
		})
		w.policy("p", "5/1m")
		w.fleet.away = errors.New("away")
		got := w.as("admin").post("/keys/try", url.Values{"app": {"a"}, "key": {"192.0.2.7"}, "method": {"GET"},
			"path": {"/"}, "address": {"192.0.2.7"}}).want(http.StatusOK)
		said := words(got.byID("result"))
		if !strings.HasPrefix(said, "It is not known whether it would pass") ||
			!strings.Contains(said, "what it has used is not known; over the limit it is refused") {
			t.Errorf("without a fleet %v: %q", none, said)
		}
		if strings.Contains(got.text, "Redis does not answer") == none {
			t.Errorf("without a fleet %v: %s", none, got.text)
		}
	}
}
