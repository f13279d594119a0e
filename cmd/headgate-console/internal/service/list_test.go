package service

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/policy"
)

// names returns the names of the policies.
func names(list []policy.Policy) []string {
	var out []string
	for _, p := range list {
		out = append(out, p.Name)
	}
	return out
}

// orders lists the values of Query.Sort.
var orders = []string{"", "name", "-name", "mode", "-mode", "priority", "-priority", "updated", "-updated"}

func TestPoliciesQueries(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		list, next := newListing(w), 0
		for _, q := range searches() {
			q.Sort = orders[next%len(orders)] // in turn
			list.check(t, q)
			next++
		}
	})
}

// SQLite is asked for every list. MariaDB, which takes five times as long and is asked by the same
// code, is asked for every third, and still for each search, application and mode in every order.
func TestPoliciesQueriesInEveryOrder(t *testing.T) {
	test.Long(t, "it asks for a thousand lists in all orders")
	everyEngine(t, func(t *testing.T, w *world) {
		list, sqlite := newListing(w), strings.HasPrefix(w.url, "sqlite:")
		for i, q := range searches() {
			for n, order := range orders {
				if q.Sort = order; sqlite || (i+i/kinds+n)%3 == 0 {
					list.check(t, q)
				}
			}
		}
	})
}

// listed returns the descriptions of the policies.
func listed() []string {
	return []string{"", "Log-in", "log_in", "100%", "1000", "!", "ÄRGER", "it's", `back\slash`, "%", "_"}
}

// kinds is how many queries searches returns for each text: of three applications and two modes.
const kinds = 6

// searches returns all kinds of queries.
func searches() (list []Query) {
	for _, search := range append(listed(), "ärger", "log", "LOG_", "P0", "00", "/1M", "zzz") {
		for _, app := range []string{"", "a", "c"} {
			for _, mode := range []string{"", "shadow"} {
				list = append(list, Query{Search: search, App: app, Mode: mode, PerPage: MaxPerPage})
			}
		}
	}
	return list
}

// listing is a list of policies and the actors who read it.
type listing struct {
	w      *world
	all    []policy.Policy
	people map[string]Actor
	sees   map[string][]string // the applications of each
}

func newListing(w *world) *listing {
	w.t.Helper()
	l := &listing{w: w, sees: map[string][]string{"admin": {"a", "b", "c"}, "viewer": {"a", "c"}, "token": {"b"},
		"no role": nil}}

	// 60 policies with random names, of one or two applications, of which some were changed at the
	// same instant.
	random, texts := rand.New(rand.NewPCG(1, 2)), listed()
	for i := range 60 {
		p := sample(fmt.Sprintf("p%02d", random.IntN(1000)*100+i), []string{"a", "b", "c"}[i%3])
		if i%7 == 0 {
			p.Apps = []string{"a", "b"}
		}
		p.Description, p.Mode, p.Priority = texts[i%len(texts)], policy.Mode(i%3), random.IntN(5)
		w.clock.pass(time.Duration(random.IntN(2)) * time.Second)
		l.all = append(l.all, w.create(p))
	}

	l.people = map[string]Actor{
		"admin":   w.admin,
		"viewer":  w.person("v", map[string]Role{"a": Viewer, "c": Owner}),
		"token":   w.token(w.admin, Read, "b"),
		"no role": w.person("n", nil),
	}
	return l
}

// check reads the list as each actor.
func (l *listing) check(t *testing.T, q Query) {
	t.Helper()
	for name, actor := range l.people {
		want := expected(l.all, l.sees[name], q)
		page, err := l.w.Policies(t.Context(), actor, q)
		if err != nil || !slices.Equal(names(page.Policies), want) || page.Total != int64(len(want)) {
			t.Fatalf("%s asked for %+v and got %v of %d, want %v (%v)", name, q, names(page.Policies), page.Total, want,
				err)
		}
	}
}

// expected computes the list without SQL.
func expected(all []policy.Policy, sees []string, q Query) []string {
	var list []policy.Policy
	for _, p := range all {
		text := strings.ToLower(strings.Join([]string{p.Name, p.Description, p.Limit.String(), p.Key,
			strings.Join(p.Apps, " ")}, "\n"))
		if strings.Contains(text, strings.ToLower(q.Search)) && (q.App == "" || slices.Contains(p.Apps, q.App)) &&
			(q.Mode == "" || p.Mode.String() == q.Mode) &&
			slices.ContainsFunc(p.Apps, func(a string) bool { return slices.Contains(sees, a) }) {
			list = append(list, p)
		}
	}

	key := func(p policy.Policy) string {
		switch strings.TrimPrefix(q.Sort, "-") {
		case "mode":
			return p.Mode.String() + " " + p.Name
		case "priority":
			return fmt.Sprintf("%09d %s", p.Priority, p.Name)
		case "updated":
			return fmt.Sprintf("%020d %s", p.UpdatedAt.UnixMicro(), p.Name)
		}
		return p.Name
	}

	// The name decides between equal ones, in both directions.
	slices.SortFunc(list, func(a, b policy.Policy) int { return strings.Compare(key(a), key(b)) })
	if strings.HasPrefix(q.Sort, "-") {
		slices.Reverse(list)
	}
	return names(list)
}

func TestPoliciesPagesHoldEachOnce(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		// Half of the policies have one priority, so that the order of equal ones counts at the
		// end of a page.
		for i := range 25 {
			p := sample(fmt.Sprintf("p%02d", i), "a")
			p.Priority = i % 2
			w.create(p)
		}

		seen := map[string]int{}

		// The fourth page is behind the last one.
		for n := 1; n <= 4; n++ {
			page := must(w.Policies(t.Context(), w.admin, Query{Sort: "-priority", Page: n, PerPage: 10}))
			if page.Total != 25 || page.Pages != 3 || page.Page != n || page.PerPage != 10 ||
				len(page.Policies) != []int{10, 10, 5, 0}[n-1] {
				t.Errorf("page %d: %d policies, %+v", n, len(page.Policies), page)
			}

			for _, p := range page.Policies {
				seen[p.Name]++
			}
		}

		equal(t, "policies were on the pages", len(seen), 25)

		// Impossible pages and sizes are answered, with the nearest that is possible.
		for _, q := range []Query{{Page: -5}, {Page: math.MaxInt}, {PerPage: -1}, {PerPage: math.MaxInt}} {
			if _, err := w.Policies(t.Context(), w.admin, q); err != nil {
				t.Errorf("%+v: %v", q, err)
			}
		}
	})
}

func TestPoliciesRefusesBadQueries(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	for field, q := range map[string]Query{
		"sort":    {Sort: "name; DROP TABLE policies"},
		"mode":    {Mode: "on"},
		"app":     {App: "'"},
		"search":  {Search: strings.Repeat("x", MaxSearch+1)},
		"changed": {Changed: "year"},
	} {
		wantFault(t, field, errOf(w.Policies(t.Context(), w.admin, q)), field)
	}
}
