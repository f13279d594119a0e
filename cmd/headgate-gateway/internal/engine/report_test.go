package engine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/policy"
)

// withUser returns the bindings of a face that is told who asks.
func withUser(b policy.Bindings) policy.Bindings {
	b.User = func(core.Request) (string, bool) { return "", false }
	return b
}

// Redis has one report of a gateway, which says what some face does not limit, whichever face has
// reported last.
func TestFacesReportAsOneInstance(t *testing.T) {
	addr, prefix := redistest.Addr(t), redistest.Prefix(t)
	perUser := shop("per-user", "1/1h fixed-window")
	perUser.Key = "user"
	source := publish(t, addr, prefix, shop("all", "5/1h fixed-window"), perUser)

	e := open(t, Options{Apps: []string{"shop"}, Redis: at(addr), RedisPrefix: prefix, Timeout: 10 * time.Second,
		LoadTimeout: 10 * time.Second})
	reason := `key: "user" cannot be used here: the program does not set Bindings.User`

	// Each face reports once it has policies, before its limiter is returned.
	for i, want := range []struct {
		face   Face
		reason string
		user   bool
	}{
		{face: Face{Name: "json", Bind: withUser}, user: true},
		{face: Face{Name: "auth"}, reason: "only in auth: " + reason},
		{face: Face{Name: "spoe", Bind: withUser}, reason: "only in auth: " + reason},
		{face: Face{Name: "proxy"}, reason: "only in auth, proxy: " + reason},
	} {
		limiterOf(t, e, "shop", want.face)
		list, err := source.Instances(t.Context())
		if err != nil || len(list) != 1 {
			t.Fatalf("face %d: %d instances, %v", i, len(list), err)
		}

		var left []policy.LeftOut
		if want.reason != "" {
			left = []policy.LeftOut{{Policy: "per-user", Reason: want.reason}}
		}
		if got := list[0]; !reflect.DeepEqual(got.LeftOut, left) || got.Can == nil || got.Can.User != want.user {
			t.Errorf("after the face %s: %+v, can %+v", want.face.Name, got, got.Can)
		}
	}
}

// fleet is a source that keeps the last report, and fails as Redis may.
type fleet struct {
	fixed
	last policy.Instance
}

var errFleet = errors.New("away")

func (f *fleet) Report(_ context.Context, i policy.Instance) error {
	f.last = i
	return errFleet
}

// left returns policies that are left out.
func left(kept bool, names ...string) (list []policy.LeftOut) {
	for _, name := range names {
		list = append(list, policy.LeftOut{Policy: name, Reason: "why", Kept: kept})
	}
	return list
}

// The report of two faces is what both can do and have in force, and what one of them leaves out.
func TestReportOfAllFaces(t *testing.T) {
	var many []string
	for n := range 15 {
		many = append(many, fmt.Sprintf("m%02d", n))
	}
	can := func(user, prefixes bool, plans ...string) *policy.Abilities {
		return &policy.Abilities{User: user, Prefixes: prefixes, Plans: plans}
	}

	for name, c := range map[string]struct {
		reports []policy.Instance // of the faces a and b in turn
		want    string
	}{
		"one": {
			[]policy.Instance{{Version: "1", Can: &policy.Abilities{User: true, Claims: true, Plans: []string{"p"}},
				LeftOut: left(false, "x"), MoreLeftOut: 2}},
			`1 "" {true false false true [p]} [x false why] 2`,
		},
		"what both can do": {
			[]policy.Instance{{Can: can(true, true, "p", "q")}, {Can: can(true, false, "q", "r")}},
			` "" {true false false false [q]} [] 0`,
		},
		"one cannot say": {[]policy.Instance{{Can: can(true, true)}, {}}, ` "" <nil> [] 0`},
		"what one leaves out": {
			[]policy.Instance{{LeftOut: left(true, "y", "z")}, {LeftOut: left(false, "x", "z")}},
			` "" <nil> [x false only in b: why, y true only in a: why, z false why] 0`,
		},
		"no more than before": {
			[]policy.Instance{{LeftOut: left(false, "x")}, {LeftOut: left(false, "x")}, {}, {}},
			` "" <nil> [] 0`,
		},
		"the older version": {
			[]policy.Instance{{Version: "1"}, {Version: "1"}, {Version: "2"}}, `1 "" <nil> [] 0`,
		},
		"the newer one in both": {
			[]policy.Instance{{Version: "1"}, {Version: "1"}, {Version: "2"}, {Version: "2"}}, `2 "" <nil> [] 0`,
		},
		"one refuses": {
			[]policy.Instance{{Version: "1"}, {Version: "1"}, {Version: "1", Refused: "2"}, {Version: "2"}},
			`1 "2" <nil> [] 0`,
		},
		"one follows again": {
			[]policy.Instance{{Version: "1", Refused: "2"}, {Version: "2"}, {Version: "3"}, {Version: "3"}},
			`3 "" <nil> [] 0`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fleet{}
			e := &Engine{source: f, reports: map[string]*reports{"shop": {}}}
			faces := []policy.Reporter{
				e.sourceOf("shop", "a").(policy.Reporter), e.sourceOf("shop", "b").(policy.Reporter),
			}
			for n, i := range c.reports {
				if err := faces[n%2].Report(t.Context(), i); err != errFleet {
					t.Fatal(err)
				}
			}

			// The text has the version, the refused one, the abilities, the policies, and more.
			var texts []string
			for _, l := range f.last.LeftOut {
				texts = append(texts, fmt.Sprint(l.Policy, " ", l.Kept, " ", l.Reason))
			}
			able := "<nil>"
			if f.last.Can != nil {
				able = fmt.Sprint(*f.last.Can)
			}
			got := fmt.Sprintf("%s %q %s [%s] %d", f.last.Version, f.last.Refused, able, strings.Join(texts, ", "),
				f.last.MoreLeftOut)
			if got != c.want {
				t.Errorf("the report is\n%s, want\n%s", got, c.want)
			}
		})
	}

	// A report is bounded, and what a face has reported is not changed by it.
	long := left(false, many...)
	long[0].Reason = strings.Repeat("é", 128)
	r := &reports{}
	r.join(faceReport{"a", policy.Instance{LeftOut: long}})
	all := r.join(faceReport{"b", policy.Instance{LeftOut: left(false, "a1", "a2", "z1", "z2", "z3", "z4", "z5")}})
	if len(all.LeftOut) != 20 || all.MoreLeftOut != 2 || len(all.LeftOut[2].Reason) > 256 ||
		!strings.HasSuffix(all.LeftOut[2].Reason, "é…") || long[0].Reason != strings.Repeat("é", 128) ||
		!slices.Equal(long[1:], left(false, many[1:]...)) {
		t.Errorf("%+v", all)
	}
}
