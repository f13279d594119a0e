package policy_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/policy"
)

// by returns bindings that take the user from a header.
func by(header string) policy.Bindings {
	return policy.Bindings{User: keyfuncs.Header(header), Plans: plansOfFull}
}

// Other bindings count from the return on, and those that no policy can have change nothing.
func TestRebindCountsByOtherBindings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := &source{}, newLimiter(t)
		p := valid(t, "a")
		p.Key, p.Limit = "user", limit(t, "1/1h fixed-window")
		s.publish("1", p)
		f, err := policy.Follow(t.Context(), l, "shop", by("X-A"), whole{s}, quiet())
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()

		// Both users have one request each, so the status says which header is the user's.
		status := func(a, b string) int {
			r := get("/")
			r.Headers = http.Header{"X-A": {a}, "X-B": {b}}
			admission := l.Admit(r)
			defer admission.Done(200)
			return admission.Status()
		}
		if got := []int{status("1", "1"), status("1", "2"), status("2", "1")}; !slices.Equal(got, []int{0, 429, 0}) {
			t.Errorf("by X-A: %v", got)
		}

		if err := f.Rebind(by("X-B")); err != nil {
			t.Fatal(err)
		}
		if got := []int{status("3", "1"), status("3", "3"), status("4", "3")}; !slices.Equal(got, []int{429, 0, 429}) {
			t.Errorf("by X-B: %v", got)
		}

		// Without users the policy cannot be carried out, and the former bindings stay.
		err = f.Rebind(policy.Bindings{Plans: plansOfFull})
		if err == nil || !strings.Contains(err.Error(), "user") || status("9", "3") != 429 || status("9", "9") != 0 {
			t.Errorf("without users: %v", err)
		}
		if err := f.Rebind(policy.Bindings{APIKeyHeader: "a b"}); err == nil {
			t.Error("a header with a space is bound")
		}

		// The next revision is carried out by them too.
		q := valid(t, "b")
		q.Key = "global"
		s.publish("2", p, q)
		time.Sleep(policy.DefaultPoll)
		synctest.Wait()
		if st := f.Status(); st.Version != "2" || st.Policies != 2 {
			t.Errorf("%+v", st)
		}

		f.Close()
		if err := f.Rebind(by("X-A")); err == nil {
			t.Error("a follower that is closed was bound")
		}
	})
}

// A revision that was refused for want of a binding is in force once it is there.
func TestRebindTriesARefusedRevisionAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := &source{}, newLimiter(t)
		s.publish("1", valid(t, "a"))
		f := follow(t, l, whole{s}, quiet())
		p := valid(t, "b")
		p.Key = "user"
		s.publish("2", p)
		time.Sleep(policy.DefaultPoll)
		synctest.Wait()
		if st := f.Status(); st.Version != "1" || st.Refused != "2" {
			t.Fatalf("%+v", st)
		}

		if err := f.Rebind(by("X-A")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(policy.DefaultPoll)
		synctest.Wait()
		if st := f.Status(); st.Version != "2" || st.Refused != "" {
			t.Errorf("%+v", st)
		}
	})
}

// Of a reporter, single policies are left out that the other bindings cannot carry out.
func TestRebindLeavesOutSinglePolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := &source{}, newLimiter(t)
		a, b := valid(t, "a"), valid(t, "b")
		b.Key = "user"
		s.publish("1", a, b)
		f, err := policy.Follow(t.Context(), l, "shop", by("X-A"), s, quiet())
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()

		if err := f.Rebind(policy.Bindings{Plans: plansOfFull}); err != nil {
			t.Fatal(err)
		}
		if st := f.Status(); len(st.LeftOut) != 1 || st.LeftOut[0].Policy != "b" || st.Policies != 1 {
			t.Errorf("%+v", st)
		}
	})
}
