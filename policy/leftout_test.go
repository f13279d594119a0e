package policy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy"
)

// perUser is a policy of a version that needs Bindings.User.
func perUser(t testing.TB, version int64) policy.Policy {
	p := valid(t, "per-user")
	p.Key, p.Mode, p.Version = "user", policy.Shadow, version
	return p
}

const noUser = `key: "user" cannot be used here: the program does not set Bindings.User`

// out returns the policies that are left out.
func out(f *policy.Follower) (texts []string) {
	for _, l := range f.Status().LeftOut {
		texts = append(texts, l.String())
	}
	return texts
}

// One policy that cannot be carried out, though it is in shadow, stops no change of the others.
func TestFollowLeavesOutOnePolicyAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l, o := &source{}, newLimiter(t), quiet()
		var log bytes.Buffer
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		s.publish("1", valid(t, "api"))
		f := follow(t, l, s, o)
		turn := func(version string, set ...policy.Policy) {
			t.Helper()
			s.publish(version, set...)
			time.Sleep(time.Second)
			synctest.Wait()
			if st := f.Status(); st.Version != version || st.Refused != "" {
				t.Errorf("version %s: %+v", version, st)
			}
		}

		tighter := valid(t, "api")
		tighter.Limit.Quota = 5
		turn("2", tighter, perUser(t, 1))
		if got := inForce(t, l); got != "api 5/5" {
			t.Errorf("in force is %s", got)
		}
		want := []string{`policy "per-user", version 1: ` + noUser + `; it does not apply`}
		if got := out(f); !slices.Equal(got, want) {
			t.Errorf("left out is %q", got)
		}

		// The log has it once for each change of it, whatever becomes of the others.
		turn("3", valid(t, "api"), perUser(t, 1))
		turn("4", valid(t, "api"), valid(t, "more"), perUser(t, 1))
		if n := strings.Count(log.String(), "are left out"); n != 1 {
			t.Errorf("%d lines:\n%s", n, log.String())
		}
		turn("5", valid(t, "api"), perUser(t, 2))
		if n := strings.Count(log.String(), "are left out"); n != 2 {
			t.Errorf("%d lines:\n%s", n, log.String())
		}

		// Its report has it, and what the program can do.
		s.mu.Lock()
		last := s.reports[len(s.reports)-1]
		s.mu.Unlock()
		if !reflect.DeepEqual(last.LeftOut, []policy.LeftOut{{Policy: "per-user", Version: 2, Reason: noUser}}) ||
			last.Version != "5" || last.Can == nil || last.Can.User {
			t.Errorf("the report is %+v", last)
		}
		turn("6", valid(t, "api"))
		if got := out(f); got != nil {
			t.Errorf("left out is %q", got)
		}
	})
}

// The version that is in force stays, until the policy is changed to one that can be used, is
// switched off, or is for others.
func TestFollowKeepsTheVersionThatItCouldUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := &source{}, newLimiter(t)
		good := valid(t, "per-user")
		good.Version, good.Limit.Quota = 1, 7
		off, others := perUser(t, 3), perUser(t, 3)
		off.Mode, others.Apps = policy.Off, []string{"other"}
		fixed := valid(t, "per-user")
		fixed.Version, fixed.Limit.Quota = 4, 9

		kept := []string{`policy "per-user", version 2: ` + noUser + `; version 1 of it stays in force`}
		f := follow(t, l, s.first("0", good), quiet())
		for i, turn := range []struct {
			set  policy.Policy
			want string
			out  []string
		}{
			{perUser(t, 2), "per-user 7/7", kept},
			{perUser(t, 2), "per-user 7/7", kept}, // and again
			{off, "", nil},
			{perUser(t, 2), "", []string{`policy "per-user", version 2: ` + noUser + `; it does not apply`}},
			{fixed, "per-user 9/9", nil},
			{others, "", nil},
			{good, "per-user 7/7", nil},
		} {
			s.publish(fmt.Sprint(i+1), turn.set)
			time.Sleep(time.Second)
			synctest.Wait()
			if got := inForce(t, l); got != turn.want || !slices.Equal(out(f), turn.out) {
				t.Errorf("step %d: %q is in force and %q left out; want %q and %q", i, got, out(f), turn.want, turn.out)
			}
		}
	})
}

// first publishes a set and returns the source.
func (s *source) first(version string, set ...policy.Policy) *source {
	s.publish(version, set...)
	return s
}

// An instance that starts has no version before, and starts.
func TestFollowStartsWithoutThePolicyThatItCannotUse(t *testing.T) {
	l := newLimiter(t)
	f := follow(t, l, (&source{}).first("1", valid(t, "api"), perUser(t, 1)), quiet())
	if got := inForce(t, l); got != "api 100/100" || len(out(f)) != 1 {
		t.Errorf("%s, %q", got, out(f))
	}
}

// The file has what is in force: an instance that starts without the source has the version that
// could be used.
func TestLastGoodHasTheVersionThatIsInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := quiet()
		o.LastGood = filepath.Join(t.TempDir(), "file")
		good := valid(t, "per-user")
		s := (&source{}).first("1", good)
		f := follow(t, newLimiter(t), s, o)
		s.publish("2", perUser(t, 2))
		time.Sleep(time.Second)
		f.Close()

		l := newLimiter(t)
		s.fail(errors.New("away"))
		again := follow(t, l, s, o)
		data, err := os.ReadFile(o.LastGood)
		if got := inForce(t, l); got != "per-user 100/100" || again.Status().Version != "2" || err != nil {
			t.Errorf("%s is in force, %+v, %s, %v", got, again.Status(), data, err)
		}
	})
}

// An instance that starts again while the source answers keeps the version that was in force, and
// so does the start after that.
func TestRestartKeepsTheVersionThatWasInForce(t *testing.T) {
	o := quiet()
	o.LastGood = filepath.Join(t.TempDir(), "file")
	good, gone := valid(t, "per-user"), valid(t, "gone")
	good.Version, good.Limit.Quota = 1, 7
	off := perUser(t, 3)
	off.Mode = policy.Off

	kept := `policy "per-user", version 2: ` + noUser + `; version 1 of it stays in force`
	left := `policy "per-user", version 2: ` + noUser + `; it does not apply`
	for i, start := range []struct {
		set  []policy.Policy
		want string
		out  []string
	}{
		{[]policy.Policy{good, gone}, "gone 100/100, per-user 7/7", nil},
		{[]policy.Policy{perUser(t, 2)}, "per-user 7/7", []string{kept}}, // only names of the set
		{[]policy.Policy{perUser(t, 2)}, "per-user 7/7", []string{kept}},
		{[]policy.Policy{off}, "", nil},
		{[]policy.Policy{perUser(t, 2)}, "", []string{left}},
	} {
		l := newLimiter(t)
		f := follow(t, l, (&source{}).first(fmt.Sprint(i), start.set...), o)
		f.Close()

		if got := inForce(t, l); got != start.want || !slices.Equal(out(f), start.out) {
			t.Errorf("start %d: %q is in force and %q left out; want %q and %q", i, got, out(f), start.want, start.out)
		}
	}
}

// A file that cannot be used, or has what the program cannot carry out either, puts nothing in
// force. The log has it, unless there is no file, as at a first start.
func TestStartTakesNoVersionFromAFileThatIsNotGood(t *testing.T) {
	dir := t.TempDir()
	goodFile := filepath.Join(dir, "good")
	o := quiet()
	o.LastGood = goodFile
	follow(t, newLimiter(t), (&source{}).first("1", valid(t, "per-user")), o).Close()

	text, err := os.ReadFile(goodFile)
	if err != nil {
		t.Fatal(err)
	}

	write := func(name, old, new string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, bytes.ReplaceAll(text, []byte(old), []byte(new)), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}

	// A policy that Adapt leaves out is left out in every version.
	const warning = "the last good policies cannot be used in place"
	perUserOnly := func(set policy.Set) policy.Set {
		return slices.DeleteFunc(slices.Clone(set), func(p policy.Policy) bool { return p.Key != "user" })
	}
	for name, c := range map[string]struct {
		path, log, want string
		adapt           func(policy.Set) policy.Set
	}{
		"good":            {path: write("same", "", ""), want: "per-user 100/100"},
		"none":            {path: ""},
		"first start":     {path: filepath.Join(dir, "absent")},
		"of another":      {path: write("other", `"app":"shop"`, `"app":"other"`), log: `it holds the policies of`},
		"no policies":     {path: write("broken", `{`, `[`), log: warning},
		"not valid":       {path: write("invalid", `"key":"ip"`, `"key":"wrong"`), log: warning},
		"the same":        {path: write("user", `"key":"ip"`, `"key":"user"`)},
		"not of the face": {path: write("adapted", "", ""), adapt: perUserOnly},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			l, o := newLimiter(t), quiet()
			o.LastGood, o.Adapt, o.Logger = c.path, c.adapt, slog.New(slog.NewTextHandler(&log, nil))
			f := follow(t, l, (&source{}).first("2", perUser(t, 2)), o)
			f.Close()

			if got := inForce(t, l); got != c.want || len(out(f)) != 1 {
				t.Errorf("%q is in force, %q left out", got, out(f))
			}

			if c.want == "" && !strings.Contains(log.String(), "it does not apply") {
				t.Errorf("the log is %s", log.String())
			}
			if !strings.Contains(log.String(), c.log) || c.log == "" && strings.Contains(log.String(), warning) {
				t.Errorf("the log is %s", log.String())
			}
		})
	}
}

// Every reason for which a program cannot carry out a policy is one for that policy alone: its
// bindings, the methods that all policies name together, and what the limiter refuses.
func TestFollowLeavesOutWhateverItCannotUse(t *testing.T) {
	behind := policy.Bindings{IP: keyfuncs.RemoteIP}
	prefix, networks, plans, local := valid(t, "b"), valid(t, "b"), valid(t, "b"), valid(t, "b")
	prefix.Key = "ip/56"
	networks.Access.Deny.Networks = []string{"192.0.2.0/24"}
	plans.Plans, plans.PlanBy = map[string]core.Limit{"pro": plans.Limit}, "claim"
	local.OnStoreError = "local"

	var verbs []policy.Policy
	for i := range 5 {
		p := valid(t, string(rune('d'+i)))
		for n := range 14 {
			p.Match.Methods = append(p.Match.Methods, fmt.Sprintf("VERB%d", 100*i+n))
		}
		verbs = append(verbs, p)
	}

	for name, c := range map[string]struct {
		bindings policy.Bindings
		set      []policy.Policy
		out, why string
	}{
		"prefix":   {behind, []policy.Policy{prefix}, "b", `key: "ip/56" cannot be used here`},
		"networks": {behind, []policy.Policy{networks}, "b", "access: networks cannot be used here"},
		"plans":    {policy.Bindings{}, []policy.Policy{plans}, "b", `plan_by: "claim" cannot be used here`},
		"methods":  {policy.Bindings{}, verbs, "h", `match.methods: "VERB407" is the 64th method`},
		"limiter":  {policy.Bindings{}, []policy.Policy{local}, "b", "OnStoreError: the store has no fallback"},
	} {
		t.Run(name, func(t *testing.T) {
			set := append([]policy.Policy{valid(t, "a"), valid(t, "c")}, c.set...)
			l := newLimiter(t)
			f, err := policy.Follow(t.Context(), l, "shop", c.bindings, (&source{}).first("1", set...), quiet())
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()

			st := f.Status()
			if len(st.LeftOut) != 1 || st.Policies != len(set)-1 {
				t.Fatalf("%+v", st)
			}
			if l := st.LeftOut[0]; l.Policy != c.out || !strings.HasPrefix(l.Reason, c.why) {
				t.Errorf("%+v", l)
			}
		})
	}
}

// A report names at most 20, and no reason is long.
func TestReportOfWhatIsLeftOutIsBounded(t *testing.T) {
	s := &source{}
	var set []policy.Policy
	for i := range 50 {
		p := valid(t, fmt.Sprintf("p%02d", i))
		p.Plans, p.PlanBy = map[string]core.Limit{"pro": p.Limit}, "x"
		set = append(set, p)
	}
	names := map[string]policy.PlanFunc{}
	for i := range 64 {
		names[fmt.Sprintf("function-%02d-%s", i, strings.Repeat("x", 40))] = plansOfFull["claim"]
	}
	f, err := policy.Follow(t.Context(), newLimiter(t), "shop", policy.Bindings{Plans: names}, s.first("1", set...),
		quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	r := s.reports[0]
	text, err := json.Marshal(r)
	if len(r.LeftOut) != 20 || r.MoreLeftOut != 30 || len(r.LeftOut[0].Reason) > 256 || err != nil ||
		len(text) > 16<<10 {
		t.Errorf("%d and %d more, %d bytes in all, %v", len(r.LeftOut), r.MoreLeftOut, len(text), err)
	}
}

// What a program can do decides alike in the program and for one who has only the report of it.
func TestAbilitiesDecideAsTheBindings(t *testing.T) {
	user := func(core.Request) (string, bool) { return "", false }
	all := []policy.Bindings{
		{}, {User: user}, {IP: keyfuncs.RemoteIP}, {IP: keyfuncs.RemoteIP, IPPrefix: keyfuncs.RemoteIPPrefix},
		{IPPrefix: keyfuncs.RemoteIPPrefix}, {User: user, Plans: plansOfFull},
		{Trusted: func(core.Request) bool { return true }}, {Claims: noneOfFull},
	}
	var set []policy.Policy
	for _, key := range []string{"ip", "ip/56", "user", "user+ip/48+route", "api-key", "global"} {
		p := valid(t, "p")
		p.Key = key
		set = append(set, p)
		p.Access.Allow.Networks = []string{"192.0.2.0/24"}
		set = append(set, p)
		p.Access, p.Cost = policy.Access{}, policy.Cost{Header: "X-Cost"}
		set = append(set, p)
		p.Cost, p.Plans, p.PlanBy = policy.Cost{}, map[string]core.Limit{"pro": p.Limit}, "claim"
		set = append(set, p)
		p.Plans, p.PlanBy, p.Match.Claims = nil, "", values("plan=free")
		set = append(set, p)
	}

	refused := 0
	for _, b := range all {
		for _, p := range set {
			_, err := policy.Compile("shop", []policy.Policy{p}, b)
			got := b.Abilities().Check(&p)
			if fmt.Sprint(got) != fmt.Sprint(err) {
				t.Errorf("%+v under %+v: %v, and the program says %v", p, b.Abilities(), got, err)
			}
			if err != nil {
				refused++
			}
		}
	}
	if refused < 20 || refused > len(all)*len(set)-20 {
		t.Errorf("%d of %d are refused", refused, len(all)*len(set))
	}
}

// The hook of the limiter is told, as it is of a revision that is refused as a whole.
func TestFollowTellsWhatIsLeftOut(t *testing.T) {
	var told []string
	l := limiter.MustNew(limiter.Config{Logger: slog.New(slog.DiscardHandler),
		Hooks: &events.Hooks{Policy: func(e events.Policy) {
			told = append(told, fmt.Sprintf("%s %q %d %v", e.Change, e.Version, e.Policies, e.Err))
		}}})
	defer l.Close()
	f, err := policy.Follow(context.Background(), l, "shop", policy.Bindings{},
		(&source{}).first("1", valid(t, "a"), perUser(t, 1)), quiet())
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	want := []string{`applied "1" 1 <nil>`,
		`refused "1" 1 policy "per-user", version 1: ` + noUser + `; it does not apply`}
	if !slices.Equal(told, want) {
		t.Errorf("told %q", told)
	}
}
