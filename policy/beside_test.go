package policy_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/policy"
)

// besideSource is a source with overrides that the test sets. It keeps the last changes.
type besideSource struct {
	source
	mu      sync.Mutex
	changes []policy.OverrideChange
	lost    int // how many of them are no longer known
	err     error
	reads   []string
}

func (s *besideSource) change(texts ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, text := range texts {
		name, rest, _ := strings.Cut(text, "/")
		key, value, _ := strings.Cut(rest, "=")
		s.changes = append(s.changes, policy.OverrideChange{Policy: name, Key: key, Text: value})
	}
}

func (s *besideSource) failOverrides(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *besideSource) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = len(s.changes)
}

// content returns the overrides of a policy.
func (s *besideSource) content(name string) map[string]string {
	all := map[string]string{}
	for _, c := range s.changes {
		switch {
		case c.Policy != name:
		case c.Key == "":
			clear(all)
		case c.Text == "":
			delete(all, c.Key)
		default:
			all[c.Key] = c.Text
		}
	}

	return all
}

func (s *besideSource) OverrideChanges(ctx context.Context, known string) (policy.OverrideChanges, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return policy.OverrideChanges{}, s.err
	}

	if _, ok := ctx.Deadline(); !ok {
		return policy.OverrideChanges{}, errors.New("no deadline")
	}

	n := -1
	fmt.Sscan(known, &n)
	c := policy.OverrideChanges{Version: fmt.Sprint(len(s.changes))}
	if n >= s.lost {
		c.Changes = slices.Clone(s.changes[n:])
		return c, nil
	}

	c.Missed = true
	for _, name := range []string{"a", "b"} {
		switch {
		case len(s.content(name)) == 0:
		case n >= 0 && !slices.ContainsFunc(s.changes[n:],
			func(c policy.OverrideChange) bool { return c.Policy == name }):
			c.Same = append(c.Same, name)
		default:
			c.Stale = append(c.Stale, name)
		}
	}

	return c, nil
}

func (s *besideSource) ReadOverrides(_ context.Context, name string, add func([]policy.OverrideChange)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads = append(s.reads, name)
	for key, text := range s.content(name) {
		add([]policy.OverrideChange{{Policy: name, Key: key, Text: text}})
	}

	return s.err
}

// followBeside follows the source, whose policies count by users.
func followBeside(t *testing.T, s policy.Source, o policy.Options) (*policy.Follower, func(want string)) {
	t.Helper()
	l := newLimiter(t)
	f, err := policy.Follow(t.Context(), l, "shop", policy.Bindings{User: keyfuncs.UserID(userOf)}, s, o)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { f.Close() })
	return f, func(want string) {
		t.Helper()
		key, quotas, _ := strings.Cut(want, " ")
		list, err := l.Peek(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}

		var got []string
		for _, d := range list {
			now := fmt.Sprint(d.Limit.Quota)
			if d.Decision.Banned {
				now = "banned"
			}
			got = append(got, d.Rule+":"+now)
		}

		if strings.Join(got, " ") != quotas {
			t.Errorf("%s: %s, want %s", key, strings.Join(got, " "), quotas)
		}
	}
}

func byUser(t *testing.T, name string) policy.Policy {
	p := valid(t, name)
	p.Key = "user"
	return p
}

// wait lets the follower poll twice: the pauses are at most half a second.
func pollTwice() { time.Sleep(time.Second + time.Millisecond); synctest.Wait() }

func TestFollowPutsOverridesBesidePoliciesInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &besideSource{}
		a, b := byUser(t, "a"), byUser(t, "b")
		a.Overrides = map[string]policy.Override{"own": {Limit: limit(t, "9/1m")}, "ac*": {Limit: limit(t, "8/1m")},
			"acme:*": {Limit: limit(t, "7/1m")}}
		s.publish("1", a, b)
		s.change("a/acme=1/1m", "a/acme:*=2/1m", "other/x=3/1m")
		f, want := followBeside(t, s, quiet())

		// What is beside comes before what is in the policy if both are as exact.
		want("acme a:1 b:100")
		want("acme:x a:2 b:100")
		want("acid a:8 b:100")
		want("own a:9 b:100")

		// The first override of a policy makes its rule anew, and its count stays.
		s.change("b/own=5/1m until 2000-01-01T00:00:10Z", "a/own=4/1m", "a/ac=3/1m")
		pollTwice()
		want("own a:4 b:5")
		want("ac a:3 b:100")

		if got := f.Status().Overrides; got != (policy.OverridesStatus{Version: "6", Count: 5}) {
			t.Errorf("%+v", got)
		}

		// It ends at its instant, whenever the follower polls.
		time.Sleep(time.Until(time.Date(2000, 1, 1, 0, 0, 10, 0, time.UTC)) - time.Microsecond)
		want("own a:4 b:5")
		time.Sleep(time.Microsecond)
		want("own a:4 b:100")

		s.change("a/own=", "a/acme:*=")
		pollTwice()
		want("own a:9 b:100")
		want("acme:x a:7 b:100")

		s.change("a/")
		pollTwice()
		want("acme a:8 b:100")

		// The set was read once, and the overrides of each policy when it got its first.
		if s.loads < 8 || fmt.Sprint(s.reads) != "[a b]" || f.Status().Version != "1" {
			t.Errorf("%d loads, read %v", s.loads, s.reads)
		}
	})
}

// An instance that has missed changes reads the policies that are others, and takes from the rest
// what is gone.
func TestFollowReadsOverridesThatItMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &besideSource{}
		s.publish("1", byUser(t, "a"), byUser(t, "b"))
		s.change("a/x=1/1m", "b/x=2/1m")
		f, want := followBeside(t, s, quiet())
		want("x a:1 b:2")
		slices.Sort(s.reads)

		s.change("a/x=3/1m")
		s.forget()
		pollTwice()
		want("x a:3 b:2")

		s.change("b/")
		s.forget()
		pollTwice()
		want("x a:3 b:100")

		if fmt.Sprint(s.reads) != "[a b a]" {
			t.Errorf("read %v", s.reads)
		}

		// While they cannot be read, what was read stays.
		s.change("a/x=4/1m", "b/x=5/1m")
		s.failOverrides(errors.New("away"))
		pollTwice()
		want("x a:3 b:100")

		if is := f.Status().Overrides; is.Err == nil || is.Err.Error() != "away" || is.Count != 1 {
			t.Errorf("%+v", is)
		}

		s.failOverrides(nil)
		pollTwice()
		want("x a:4 b:5")
	})
}

// A policy that is new to the application has its overrides from its first request on, and one that
// leaves it has none any more.
func TestFollowHasOverridesOfANewPolicyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &besideSource{}
		a, b := byUser(t, "a"), byUser(t, "b")
		s.publish("1", a)
		s.change("b/x=2/1m", "a/x=1/1m")
		_, want := followBeside(t, s, quiet())
		want("x a:1")

		s.publish("2", a, b)
		pollTwice()
		want("x a:1 b:2")
		s.publish("3", b)
		pollTwice()
		s.change("a/x=7/1m")
		pollTwice()
		s.publish("4", a, b)
		pollTwice()
		want("x a:7 b:2")

		if fmt.Sprint(s.reads) != "[a b a]" {
			t.Errorf("read %v", s.reads)
		}
	})
}

// An override that the policy cannot have is left out alone, until the policy can have it.
func TestFollowLeavesOutOverridesThatDoNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &besideSource{}
		a := byUser(t, "a")
		s.publish("1", a)
		s.change("a/x=1/1m fixed-window", "a/y=2/1m", "a/z=never", "a/w=2/1m")
		f, want := followBeside(t, s, quiet())
		want("x a:100")
		want("y a:2")
		want("z a:100")

		if is := f.Status().Overrides; is.Count != 2 || is.LeftOut != 2 {
			t.Errorf("%+v", is)
		}

		a.Limit = limit(t, "50/1m fixed-window")
		s.publish("2", a)
		pollTwice()
		want("x a:1")
		want("y a:50")

		if is := f.Status().Overrides; is.Count != 1 || is.LeftOut != 3 {
			t.Errorf("%+v", is)
		}

		// The report says so too.
		s.source.mu.Lock()
		last := s.reports[len(s.reports)-1]
		s.source.mu.Unlock()
		if last.Overrides != "4" || last.OverridesLeftOut != 3 {
			t.Errorf("%+v", last)
		}

		a.Limit, a.Cost = limit(t, "50/1m"), policy.Cost{Units: 3}
		s.publish("3", a)
		s.change("a/z=9/1m", "a/x=")
		pollTwice()
		want("y a:50") // a request costs more than it ever has
		want("z a:9")
		want("x a:50")

		if is := f.Status().Overrides; is.Count != 1 || is.LeftOut != 2 ||
			!strings.HasSuffix(is.Reason, ": the cost 3 is more than the limit 2/1m ever has") {
			t.Errorf("%+v", is)
		}
	})
}

// A ban stays in force whatever becomes of the limit of its override: of one that does not fit when
// it is read, of one that fits no more, and of one that cannot be read.
func TestFollowKeepsTheBanOfAnOverrideThatDoesNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hour, tenSeconds = "banned until 2000-01-01T01:00:00Z", "banned until 2000-01-01T00:00:10Z"
		s := &besideSource{}
		a := byUser(t, "a")
		s.publish("1", a)
		s.change("a/x="+hour+", then 1/1m fixed-window", "a/y="+hour+", then 2/1m", "a/z="+hour+", then never",
			"a/w*="+tenSeconds+", then 3/1m fixed-window", "a/w2=4/1m fixed-window")
		f, want := followBeside(t, s, quiet())

		status := func(count, left int, reasons ...string) {
			t.Helper()
			is := f.Status().Overrides
			if is.Count != count || is.LeftOut != left || !slices.ContainsFunc(reasons, func(r string) bool {
				return strings.HasPrefix(is.Reason, r)
			}) {
				t.Errorf("%+v", is)
			}
		}
		status(4, 4, `policy "a": overrides.`)
		for _, key := range []string{"x", "y", "z", "w1", "w2"} {
			want(key + " a:banned")
		}

		// Only what cannot be read is left out of a policy that can have the others.
		a.Limit = limit(t, "50/1m fixed-window")
		s.publish("2", a)
		s.change("a/y=")
		pollTwice()
		status(4, 1, `policy "a": overrides.z: limit "never"`)
		if is := f.Status().Overrides; !strings.HasSuffix(is.Reason, "; its ban stays in force") {
			t.Error(is.Reason)
		}

		// Under the first policy the limits go again, and the bans stay until they end.
		a.Limit = limit(t, "100/1m")
		s.publish("3", a)
		s.change("a/z=")
		pollTwice()
		status(2, 3, `policy "a": overrides.x: `, `policy "a": overrides.w*: `, `policy "a": overrides.w2: `)
		want("x a:banned")
		want("w2 a:banned")
		want("y a:100")
		time.Sleep(time.Until(time.Date(2000, 1, 1, 0, 0, 10, 0, time.UTC)))
		want("w2 a:100")

		s.change("a/")
		pollTwice()
		want("x a:100")
		if is := f.Status().Overrides; is != (policy.OverridesStatus{Version: "8"}) {
			t.Errorf("%+v", is)
		}
	})
}

// An override of another kind of key is out of force, also one that has become so, and hides no
// shorter prefix.
func TestFollowLeavesOutOverridesOfOtherKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &besideSource{}
		a := byUser(t, "a")
		s.publish("1", a)
		s.change("a/192.0.2.*=1/1m", "a/192.0.2.7=2/1m", "a/192.*=3/1m", "a/192.0.2.8*=4/1m fixed-window")
		f, want := followBeside(t, s, quiet())
		want("192.0.2.7 a:2")
		want("192.0.2.8 a:1")
		want("192.9.9.9 a:3")

		a.Key = "ip"
		s.publish("2", a)
		pollTwice()
		for range 2 {
			want("192.0.2.7 a:2")
			want("192.0.2.8 a:100")
			if is := f.Status().Overrides; is.Count != 1 || is.LeftOut != 3 {
				t.Errorf("%+v", is)
			}

			// Those that are written while they do not fit are left out as well.
			s.change("a/192.0.2.*=5/1m")
			pollTwice()
		}

		a.Key = "user"
		s.publish("3", a)
		pollTwice()
		want("192.0.2.8 a:5")
		want("192.9.9.9 a:3")
		if is := f.Status().Overrides; is.Count != 3 || is.LeftOut != 1 {
			t.Errorf("%+v", is)
		}
	})
}

// A set that is refused leaves the overrides of the one in force as they come.
func TestFollowKeepsOverridesOfPoliciesThatStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &besideSource{}
		s.publish("1", byUser(t, "a"))
		f, want := followBeside(t, s, quiet())
		s.publish("2", policy.Policy{Name: "bad", Apps: []string{"shop"}})
		s.change("a/x=1/1m")
		pollTwice()
		want("x a:1")

		s.change("a/x=2/1m")
		pollTwice()
		want("x a:2")

		if f.Status().Refused != "2" || f.Status().Version != "1" {
			t.Errorf("%+v", f.Status())
		}
	})
}

// A source that panics does not end the program.
func TestFollowOutlivesASourceOfOverridesThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &panicking{}
		s.publish("1", byUser(t, "a"))
		f, want := followBeside(t, s, quiet())
		want("x a:100")
		err := f.Status().Overrides.Err
		if err == nil || !strings.Contains(err.Error(), "a method of the source of overrides") {
			t.Errorf("%v", err)
		}
	})
}

type panicking struct{ source }

func (*panicking) OverrideChanges(context.Context, string) (policy.OverrideChanges, error) {
	panic("x")
}
func (*panicking) ReadOverrides(context.Context, string, func([]policy.OverrideChange)) error {
	panic("x")
}
