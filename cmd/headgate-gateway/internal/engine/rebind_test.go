package engine

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
)

// All faces count by other bindings, or none of them does.
func TestRebindIsOfAllFaces(t *testing.T) {
	by := func(header string) policy.Bindings { return policy.Bindings{User: keyfuncs.Header(header)} }
	p := shop("all", "1/1h fixed-window")
	p.Key = "user"
	e := open(t, Options{Source: Fixed([]policy.Policy{p}), Bindings: by("X-A")})

	// One face knows users in any case, so the other alone needs the binding.
	knows := Face{Name: "knows", Bind: func(b policy.Bindings) policy.Bindings {
		if b.User == nil {
			b.User = keyfuncs.Header("X-Z")
		}
		return b
	}}
	faces := []*limiter.Limiter{limiterOf(t, e, "", Face{Name: "plain"}), limiterOf(t, e, "", knows)}

	// The faces share their counts, and each user has one request.
	wants := func(when, header, user string) {
		t.Helper()
		var got []int
		for _, l := range faces {
			r := &test.Request{Ctx: t.Context(), Verb: "GET", URLPath: "/", Peer: "192.0.2.1:1",
				Headers: http.Header{header: {user}}}
			a := l.Admit(r)
			got = append(got, a.Status())
			a.Done(a.Status())
		}
		if !slices.Equal(got, []int{0, 429}) {
			t.Errorf("%s: %v", when, got)
		}
	}
	wants("by X-A", "X-A", "1")
	if err := e.Rebind(by("X-B")); err != nil {
		t.Fatal(err)
	}
	wants("by X-B", "X-B", "2")

	err := e.Rebind(policy.Bindings{})
	if err == nil || !strings.Contains(err.Error(), "the policies for the face plain: ") ||
		strings.Contains(err.Error(), "face knows") {
		t.Errorf("without users: %v", err)
	}
	wants("by X-B, as before", "X-B", "3")

	// A face that comes later has the bindings that are in force.
	faces[0] = limiterOf(t, e, "", Face{Name: "later"})
	wants("by X-B, later", "X-B", "4")
}
