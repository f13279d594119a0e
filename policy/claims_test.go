package policy_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/policy"
)

// holder is a request that knows its claims, and counts how often it is asked.
type holder struct {
	*test.Request
	claims map[string]any
	asked  *int
}

func (h holder) Claims() map[string]any {
	*h.asked++
	return h.claims
}

func claims(t testing.TB, text string) holder {
	h := holder{get("/"), nil, new(int)}
	if err := json.Unmarshal([]byte(text), &h.claims); err != nil {
		t.Fatal(err)
	}
	return h
}

func TestClaimsAreConditions(t *testing.T) {
	x := index(t,
		policy.Match{Claims: values("plan=free", "plan=trial")},
		policy.Match{Claims: values("plan=*")},
		policy.Match{Claims: values("realm_access.roles=admin", "plan=free")},
		policy.Match{Claims: map[string]policy.Values{"https://x.example/a.b": {"1"}}},
		policy.Match{Claims: values("level=3", "level=true", "level=1000000000000", "level=0.5")},
		policy.Match{})

	for text, want := range map[string]string{
		`null`:                        "5",
		`{}`:                          "5",
		`{"plan":"free"}`:             "0 1 5",
		`{"plan":"trial"}`:            "0 1 5",
		`{"plan":"Free"}`:             "1 5",
		`{"Plan":"free"}`:             "5",
		`{"plan":null}`:               "5",
		`{"plan":{"free":"free"}}`:    "1 5",
		`{"plan":["pro","free"]}`:     "0 1 5", // any element
		`{"plan":[["free"],{"a":1}]}`: "1 5",
		`{"plan":"free","realm_access":{"roles":["user","admin"]}}`: "0 1 2 5",
		`{"plan":"free","realm_access.roles":"admin"}`:              "0 1 2 5",
		`{"realm_access":{"roles":["admin"]}}`:                      "5",
		`{"https://x.example/a.b":1}`:                               "3 5",
		`{"https://x.example/a":{"b":"1"}}`:                         "3 5",
		`{"https://x":{"example/a":{"b":[1]}}}`:                     "3 5",
		`{"https://x.example/a.b":2,"https://x.example/a":{"b":1}}`: "5", // the whole name comes first
		`{"level":3}`:              "4 5",
		`{"level":3.0}`:            "4 5",
		`{"level":"3"}`:            "4 5",
		`{"level":1e12}`:           "4 5",
		`{"level":0.5}`:            "4 5",
		`{"level":true}`:           "4 5",
		`{"level":[false,3]}`:      "4 5",
		`{"level":30}`:             "5",
		`{"level":false,"plan":1}`: "1 5",
	} {
		if got := selected(x, claims(t, text)); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}

	// Programs make claims of other types than those of a decoder.
	type names []string
	for _, one := range []any{json.Number("3"), 3, int64(3), uint8(3), float32(3), []string{"x", "3"}, names{"3"},
		[]int{1, 3}, []any{json.Number("3")}} {
		h := holder{get("/"), map[string]any{"level": one}, new(int)}
		if got := selected(x, h); got != "4 5" {
			t.Errorf("%T: %s", one, got)
		}
	}

	// A number has one text, however it is written.
	for number, want := range map[json.Number]string{"3.0": "4 5", "3.00": "4 5", "0.50": "4 5", "1e12": "4 5",
		"1.0E+12": "4 5", "30e-1": "4 5", "5e-1": "4 5", "1000000000000.0": "4 5", "30": "5", "3.01": "5", "300": "5",
		"1000000000000.00000001": "5", "1e999": "5", "x.e": "5"} {
		for _, claim := range []any{number, []any{"x", number}} {
			h := holder{get("/"), map[string]any{"level": claim}, new(int)}
			if got := selected(x, h); got != want {
				t.Errorf("%v: %s, want %s", claim, got, want)
			}
		}
	}

	// So has a number in a policy, and a text keeps its own.
	written := index(t, policy.Match{Claims: values("level=5.0", "level=1e3", "level=v1.0")}, policy.Match{})
	for _, c := range []struct {
		claim any
		want  string
	}{{json.Number("5"), "0 1"}, {json.Number("5.0"), "0 1"}, {5, "0 1"}, {5.0, "0 1"}, {1000, "0 1"},
		{json.Number("1E3"), "0 1"}, {"5.0", "0 1"}, {"v1.0", "0 1"}, {"5", "1"}, {"v1", "1"}, {50, "1"}} {
		h := holder{get("/"), map[string]any{"level": c.claim}, new(int)}
		if got := selected(written, h); got != c.want {
			t.Errorf("%T %v: %s, want %s", c.claim, c.claim, got, c.want)
		}
	}

	for _, one := range []any{struct{}{}, []byte("3"), &x, map[string]string{"a": "3"}, []any(nil), [][]string{{"3"}}} {
		h := holder{get("/"), map[string]any{"level": one}, new(int)}
		if got := selected(x, h); got != "5" {
			t.Errorf("%T: %s", one, got)
		}
	}
}

// The claims are asked for once, and only if a policy needs them.
func TestClaimsAreAskedForOnce(t *testing.T) {
	x := index(t, policy.Match{Path: "/a", Claims: values("a=1")}, policy.Match{Path: "/a/", Claims: values("b=*")},
		policy.Match{Path: "/b"})
	for path, want := range map[string]int{"/a": 1, "/A//": 1, "/b": 0} {
		h := claims(t, `{"a":1}`)
		h.URLPath = path
		x.Select(h, nil)
		if *h.asked != want {
			t.Errorf("%s: asked %d times, want %d", path, *h.asked, want)
		}
	}

	h, room := claims(t, `{"a":["x",1],"b":true}`), make([]int, 0, 8)
	h.URLPath = "/a"
	var view core.Request = h
	if n := testing.AllocsPerRun(100, func() { x.Select(view, room) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

const noClaims = `match.claims: claims cannot be used here: the program does not set Bindings.Claims`

// Claims are what the program says, by either form of the rules.
func TestClaimsComeFromTheProgram(t *testing.T) {
	p := valid(t, "p")
	p.Key, p.Match.Claims = "global", values("plan=free")
	if _, err := policy.Compile("shop", []policy.Policy{p}, policy.Bindings{}); err == nil ||
		err.Error() != `policy "p": `+noClaims {
		t.Errorf("%v", err)
	}

	bindings := policy.Bindings{Claims: func(r core.Request) map[string]any {
		return map[string]any{"plan": strings.Join(r.Header("X-Plan"), " ")}
	}}
	compiled, err := policy.Compile("shop", []policy.Policy{p}, bindings)
	if err != nil {
		t.Fatal(err)
	}
	_, selection := compiled.Selected()
	for plan, want := range map[string]bool{"free": true, "pro": false} {
		r := get("/")
		r.Headers = map[string][]string{"X-Plan": {plan}}
		if _, ok := compiled.Rules()[0].Key(r); ok != want {
			t.Errorf("%s: the rule applies: %t", plan, ok)
		}
		if got := len(selection(r, nil)) == 1; got != want {
			t.Errorf("%s: it is selected: %t", plan, got)
		}
	}

	// What an instance reports of itself says so too.
	for _, b := range []policy.Bindings{{}, bindings} {
		a := b.Abilities()
		err := a.Check(&p)
		var f *policy.FieldError
		if (err == nil) != (b.Claims != nil) || err != nil && (!errors.As(err, &f) || f.Field != "match.claims") {
			t.Errorf("%+v: %v", a, err)
		}
	}
}

func TestClaimsAreDoubted(t *testing.T) {
	for _, name := range []string{"$.plan", ".plan", "plan.", "a..b", "roles[0]"} {
		p := valid(t, "p")
		p.Match.Claims = values(name + "=x")
		if got := p.Doubts(); len(got) != 1 || got[0].Field != "match.claims" ||
			!strings.Contains(got[0].Error(), name) {
			t.Errorf("%s: %v", name, got)
		}
	}
}
