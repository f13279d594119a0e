package policy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/memstore"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

// source is a source whose answer the test sets.
type source struct {
	mu      sync.Mutex
	version string
	set     policy.Set
	err     error
	loads   int
	reports []policy.Instance

	wake atomic.Pointer[func()]
}

// whole is a source that is told nothing, so revisions are refused as a whole.
type whole struct{ policy.Source }

func (s *source) publish(version string, set ...policy.Policy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version, s.set, s.err = version, set, nil
}

func (s *source) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *source) Load(ctx context.Context, known string) (policy.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loads++
	if _, ok := ctx.Deadline(); !ok {
		return policy.Snapshot{}, errors.New("no deadline")
	}
	switch {
	case s.err != nil:
		return policy.Snapshot{}, s.err
	case s.version == known:
		return policy.Snapshot{}, policy.ErrUnchanged
	}
	return policy.Snapshot{Version: s.version, Policies: s.set}, nil
}

func (s *source) Notify(ctx context.Context, wake func()) {
	s.wake.Store(&wake)
	<-ctx.Done()
}

func (s *source) Report(_ context.Context, i policy.Instance) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reports = append(s.reports, i)
	return nil
}

func newLimiter(t testing.TB, rules ...limiter.Rule) *limiter.Limiter {
	t.Helper()
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := limiter.New(limiter.Config{Store: store, Rules: rules, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func quiet() policy.Options {
	return policy.Options{Logger: slog.New(slog.DiscardHandler), Instance: "i1"}
}

func follow(t testing.TB, l *limiter.Limiter, s policy.Source, o policy.Options) *policy.Follower {
	t.Helper()
	f, err := policy.Follow(t.Context(), l, "shop", policy.Bindings{Plans: plansOfFull, Claims: noneOfFull}, s, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// inForce returns the rules of the limiter.
func inForce(t testing.TB, l *limiter.Limiter) string {
	t.Helper()
	list, err := l.Peek(t.Context(), "192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range list {
		names = append(names, fmt.Sprintf("%s %d/%d", d.Rule, d.Decision.Remaining, d.Limit.Quota))
	}
	return strings.Join(names, ", ")
}

func TestFollowPutsAChangeInForceAndKeepsTheCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := &source{}, newLimiter(t)
		a, b := valid(t, "a"), valid(t, "b")
		a.Limit = limit(t, "10/1h fixed-window")
		s.publish("1", a)
		f := follow(t, l, s, quiet())
		a1 := l.Admit(get("/"))
		a1.Done(200)
		if got := inForce(t, l); got != "a 9/10" {
			t.Errorf("%s", got)
		}
		a.Limit = limit(t, "20/1h fixed-window")
		s.publish("2", a, b)
		time.Sleep(policy.DefaultPoll)
		synctest.Wait()
		if got := inForce(t, l); got != "a 19/20, b 100/100" {
			t.Errorf("%s", got)
		}
		if st := f.Status(); st.Version != "2" || st.Policies != 2 || st.Refused != "" || st.SourceErr != nil {
			t.Errorf("%+v", st)
		}
		f.Close()
		s.publish("3")
		time.Sleep(time.Minute)
		if got := inForce(t, l); got != "a 19/20, b 100/100" {
			t.Errorf("after Close: %s", got)
		}
	})
}

func TestFollowActsOnANotificationBeforeThePoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l, o := &source{}, newLimiter(t), quiet()
		o.Poll = time.Hour
		s.publish("1", valid(t, "a"))
		f := follow(t, l, s, o)
		synctest.Wait()
		for i := range 20 {
			version := fmt.Sprint(i + 2)
			s.publish(version, valid(t, "b"))
			for range 1000 { // a stream of notifications does not delay it
				(*s.wake.Load())()
				time.Sleep(100 * time.Microsecond)
			}
			synctest.Wait()
			if got := f.Status().Version; got != version {
				t.Errorf("%s, want %s", got, version)
			}
		}
	})
}

func TestFollowRefusesABadRevisionOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s, l, o := &source{}, newLimiter(t), quiet()
		o.Logger = slog.New(slog.NewTextHandler(&log,
			&slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			}}))
		s.publish("1", valid(t, "a"))
		f := follow(t, l, whole{s}, o)
		bad := valid(t, "b")
		bad.Key = "user"
		s.publish("2", valid(t, "a"), bad)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		st := f.Status()
		if st.Version != "1" || st.Refused != "2" || inForce(t, l) != "a 100/100" {
			t.Errorf("%+v, %s", st, inForce(t, l))
		}
		wantError(t, st.RefusedErr,
			`policy: revision "2": policy "b": key: "user" cannot be used here: the program does not set Bindings.User`)
		s.publish("1", valid(t, "a"))
		time.Sleep(time.Second)
		synctest.Wait()
		if st := f.Status(); st.Version != "1" || st.Refused != "" || st.RefusedErr != nil {
			t.Errorf("after going back: %+v", st)
		}

		// Going back to the version in force ends the refusal. The log has one line for each
		// change, and none for the polls between.
		want := `level=INFO msg="headgate: policies are in force" version=1 policies=1 app=shop
level=ERROR msg="headgate: policies are refused, and the previous ones stay in force" version=2 error="policy \"b\": key: \"user\" cannot be used here: the program does not set Bindings.User" app=shop
level=INFO msg="headgate: policies are in force" version=1 policies=1 app=shop
`
		if log.String() != want {
			t.Errorf("%s\nwant\n%s", log.String(), want)
		}
	})
}

// torn is a source whose version 2 is not a set.
type torn struct{ source }

func (s *torn) Load(ctx context.Context, known string) (policy.Snapshot, error) {
	if found, err := s.source.Load(ctx, known); err != nil || found.Version != "2" {
		return found, err
	}
	return policy.Snapshot{}, &policy.RevisionError{Version: "2", Err: errors.New("torn")}
}

func TestFollowAsksOnceForAnUnreadableRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s, l, o := &torn{}, newLimiter(t), quiet()
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))

		s.publish("1", valid(t, "a"))
		f := follow(t, l, s, o)

		// Twenty polls or more see revision 2, which no reader can make a set of. It counts as
		// refused, and the source as present.
		s.publish("2")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if st := f.Status(); st.Version != "1" || st.Refused != "2" || st.SourceErr != nil ||
			st.RefusedErr.Error() != `policy: revision "2": torn` {
			t.Errorf("%+v", st)
		}

		f.Close()
		if n := strings.Count(log.String(), "refused"); n != 1 {
			t.Errorf("reported %d times", n)
		}
	})
}

func TestFollowComparesVersionsForEqualityOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := &source{}, newLimiter(t)
		s.publish("9", valid(t, "a"))
		f := follow(t, l, s, quiet())
		s.publish("8", valid(t, "b"))
		time.Sleep(time.Second)
		synctest.Wait()
		if st := f.Status(); st.Version != "8" || inForce(t, l) != "b 100/100" {
			t.Errorf("%+v", st)
		}
	})
}

func TestFollowKeepsPoliciesWhileTheSourceIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := &source{}, newLimiter(t)

		s.publish("1", valid(t, "a"))
		f := follow(t, l, s, quiet())

		// While the source is away its age grows from the last load that succeeded, and the
		// policies stay.
		away := errors.New("away")
		s.fail(away)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		st := f.Status()
		if st.Version != "1" || !errors.Is(st.SourceErr, away) || st.Age != 10*time.Second ||
			inForce(t, l) != "a 100/100" {
			t.Errorf("%+v", st)
		}

		s.publish("2", valid(t, "b"))
		time.Sleep(policy.DefaultPoll)
		synctest.Wait()
		if st := f.Status(); st.Version != "2" || st.SourceErr != nil || st.Age >= policy.DefaultPoll {
			t.Errorf("%+v", st)
		}
	})
}

func TestFollowWithoutPoliciesAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{}

		s.fail(fmt.Errorf("far away: %w", policy.ErrMissing))
		own := limiter.Rule{Name: "own", Limit: limit(t, "3/1m"),
			Key: func(core.Request) (string, bool) { return "", true }}

		// The default is to fail: a program that starts with no limits at all should have said so.
		if _, err := policy.Follow(t.Context(), newLimiter(t), "shop", policy.Bindings{}, s,
			quiet()); !errors.Is(err, policy.ErrMissing) {
			t.Errorf("%v", err)
		}

		// With OnMissingWait the program's own rule stays in force until policies come.
		l, o := newLimiter(t, own), quiet()
		o.OnMissing = policy.OnMissingWait
		f := follow(t, l, s, o)
		if st := f.Status(); st.Version != "" || st.Age >= 0 || inForce(t, l) != "own 3/3" {
			t.Errorf("%+v, %s", st, inForce(t, l))
		}

		s.publish("1", valid(t, "a"))
		time.Sleep(policy.DefaultPoll)
		synctest.Wait()
		if inForce(t, l) != "a 100/100" {
			t.Errorf("%s", inForce(t, l))
		}
	})
}

// A start whose time is up fails, whatever OnMissing says.
func TestFollowEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, late := &source{}, errors.New("late")

		s.publish("1", valid(t, "a"))

		// The context has ended before the start, so no load may be tried.
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(late)
		for _, missing := range []policy.OnMissing{policy.OnMissingFail, policy.OnMissingWait} {
			o := quiet()
			o.OnMissing = missing
			if f, err := policy.Follow(ctx, newLimiter(t), "shop", policy.Bindings{}, s, o); f != nil ||
				!errors.Is(err, late) {
				t.Errorf("OnMissing %d: %v, %v; want the cause", missing, f, err)
			}
		}
	})
}

func TestLastGoodOutlivesTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, o := &source{}, quiet()
		o.LastGood = filepath.Join(t.TempDir(), "policies.json")

		// The file keeps what this application enforces: neither the policies of others, nor those
		// that are off.
		other, off := valid(t, "other"), valid(t, "off")
		other.Apps, off.Mode = []string{"other"}, policy.Off
		s.publish("7", full(t), other, off)
		f := follow(t, newLimiter(t), s, o)
		f.Close()

		// Only the owner may read it, since the policies name customers.
		info, err := os.Stat(o.LastGood)
		if err != nil || info.Mode() != 0o600 {
			t.Fatalf("%v, %v", err, info)
		}
		text, err := os.ReadFile(o.LastGood)
		if err != nil || bytes.Contains(text, []byte(`"other"`)) {
			t.Errorf("%v\n%s", err, text)
		}

		// A second process starts while the source is away, and takes the file's policies. Its age
		// is unknown, which a negative one stands for.
		s.fail(errors.New("away"))
		l := newLimiter(t)
		f = follow(t, l, s, o)
		if st := f.Status(); st.Version != "7" || st.Policies != 1 || st.SourceErr == nil || st.Age >= 0 {
			t.Errorf("%+v", st)
		}

		s.publish("8", valid(t, "a"))
		time.Sleep(policy.DefaultPoll)
		synctest.Wait()
		if inForce(t, l) != "a 100/100" {
			t.Errorf("%s", inForce(t, l))
		}

		// The file is replaced by renaming. A file that is left beside it would stay for ever.
		left, err := os.ReadDir(filepath.Dir(o.LastGood))
		if err != nil || len(left) != 1 {
			t.Errorf("%v, %v", err, left)
		}
	})
}

func TestLastGoodFileMustBeValid(t *testing.T) {
	dir := t.TempDir()

	// Each file breaks at another depth: its JSON, its application, its version, its policies.
	for name, c := range map[string]struct{ text, want string }{
		"torn":  {`{"app":"shop","version":"1","set":{"poli`, "unexpected EOF"},
		"other": {`{"app":"mine","version":"1","set":{"policies":[]}}`, `it holds the policies of "mine"`},
		"blank": {`{"app":"shop","set":{"policies":[]}}`, "it names no version"},
		"bad":   {`{"app":"shop","version":"1","set":{"policies":[{}]}}`, `policy: the policy`},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}

		s := &source{}
		s.fail(policy.ErrMissing)
		o := quiet()
		o.LastGood = path
		_, err := policy.Follow(t.Context(), newLimiter(t), "shop", policy.Bindings{}, s, o)

		// The mistakes of policies keep their type, so that a tool can show the field.
		if name == "bad" {
			var fault *policy.FieldError
			if !errors.As(err, &fault) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		wantError(t, err, "policy: there are no policies\npolicy: Options.LastGood: "+c.want)
	}

	// A file that cannot be written is reported, and does not stop the follower: the source
	// answered.
	s := &source{}
	s.publish("1", valid(t, "a"))
	o := quiet()
	o.LastGood = filepath.Join(dir, "missing", "file")
	if st := follow(t, newLimiter(t), s, o).Status(); st.Version != "1" || !errors.Is(st.LastGoodErr, os.ErrNotExist) {
		t.Errorf("%+v", st)
	}
}

func TestFollowerReportsItsVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := &source{}, newLimiter(t)

		s.publish("1", valid(t, "a"))
		f := follow(t, l, s, quiet())

		// The second revision is not valid.
		bad := valid(t, "b")
		bad.Key = "nobody"
		s.publish("2", bad)
		time.Sleep(time.Second)
		synctest.Wait()

		// Two loads have ended in two reports at once, without waiting for the regular one.
		s.mu.Lock()
		process := s.reports[0].Process
		if len(process) != 16 || s.reports[1].Process != process {
			t.Errorf("%+v: the process has no id", s.reports)
		}

		can := &policy.Abilities{Prefixes: true, Claims: true, Plans: []string{"claim"}}
		if len(s.reports) != 2 || !reflect.DeepEqual(s.reports[0], policy.Instance{ID: "i1", Process: process,
			App: "shop", Version: "1", Store: s.reports[0].Store, Can: can}) ||
			s.reports[1].Refused != "2" || !strings.HasPrefix(s.reports[1].Error,
			`policy: revision "2": policy "b": key:`) {
			t.Errorf("%+v", s.reports)
		}
		s.mu.Unlock()

		// A good revision is reported too, and the refused one is no longer mentioned.
		s.publish("3", valid(t, "a"))
		time.Sleep(policy.DefaultPoll)
		synctest.Wait()
		s.mu.Lock()
		if len(s.reports) != 3 || !reflect.DeepEqual(s.reports[2], policy.Instance{ID: "i1", Process: process,
			App: "shop", Version: "3", Store: s.reports[2].Store, Can: can}) {
			t.Errorf("%+v", s.reports)
		}
		s.mu.Unlock()

		// Without changes a report follows every 4 to 5 seconds, so a minute has 12 to 15; the
		// bounds leave room for a poll.
		time.Sleep(time.Minute)
		f.Close()
		if n := len(s.reports) - 3; n < 60/6 || n > 60/4 {
			t.Errorf("%d reports in a minute", n)
		}
	})
}

// Instances that start at the same time do not keep polling at the same time.
// Every change of what is in force, and of the source, is told once.
func TestFollowTellsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		down := errors.New("down")
		h := &events.Hooks{Policy: func(e events.Policy) {
			told = append(told, fmt.Sprintf("%s %s %q %d %t", e.App, e.Change, e.Version, e.Policies, e.Err != nil))
		}}

		l := limiter.MustNew(limiter.Config{Hooks: h, Logger: slog.New(slog.DiscardHandler)})
		defer l.Close()
		s := &source{}

		s.publish("v1", full(t))
		f := follow(t, l, s, quiet())
		defer f.Close()

		// One change of each kind, a minute apart, which has room for the longest pause after a
		// failure.
		for _, change := range []func(){
			func() { s.publish("v2", policy.Policy{Name: "!", Apps: []string{"shop"}}) },
			func() { s.fail(down) },
			func() { s.publish("v3", full(t)) },
		} {
			change()
			time.Sleep(time.Minute)
		}

		// A refusal and an absence last many polls and are told once each.
		synctest.Wait()
		want := []string{`shop applied "v1" 1 false`, `shop refused "v2" 0 true`, `shop source_away "" 0 true`,
			`shop source_back "" 0 false`, `shop applied "v3" 1 false`}
		if !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}

func TestFollowSpreadsThePollsOfAFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Fifty instances start at the same instant.
		sources := make([]*source, 50)
		for i := range sources {
			sources[i] = &source{}
			sources[i].publish("1", valid(t, "a"))
			follow(t, newLimiter(t), sources[i], quiet())
		}

		// A poll is 500ms long, and each is shortened by a random part of up to a fifth. Polls that
		// stay together would ask fifty times in one millisecond.
		busiest := 0
		for range 500 {
			before := asked(sources)
			time.Sleep(time.Millisecond)
			synctest.Wait()
			busiest = max(busiest, asked(sources)-before)
		}
		if busiest > 10 {
			t.Errorf("%d of 50 asked within the same millisecond", busiest)
		}

		// The spreading must not cost polls: each instance has loaded at its start and once more.
		if n := asked(sources); n < 2*50 {
			t.Errorf("%d of 100 loads", n)
		}
	})
}

func asked(sources []*source) (n int) {
	for _, s := range sources {
		s.mu.Lock()
		n += s.loads
		s.mu.Unlock()
	}
	return n
}

func TestFollowPutsInForceWhatAdaptLeaves(t *testing.T) {
	valid := func(name, limit string, priority int) policy.Policy {
		return policy.Policy{Name: name, Apps: []string{"shop"}, Limit: core.MustParseLimit(limit),
			Key: "global", Priority: priority}
	}

	// Of the five policies, Adapt may see the three that are in force for shop, in order of
	// priority.
	low, high, leased, other := valid("low", "5/1h", 0), valid("high", "1/1h", 1),
		valid("leased", "2 concurrent ttl=1m", 2), valid("other", "1/1h", 3)
	other.Apps = []string{"blog"}
	off := valid("off", "1/1h", 3)
	off.Mode = policy.Off
	s := &source{}
	s.publish("1", low, leased, other, off, high)

	var asked []string

	// Adapt leaves out leases and one policy by name.
	o := quiet()
	o.Adapt = func(set policy.Set) policy.Set {
		var left policy.Set
		for _, p := range set {
			asked = append(asked, p.Name)
			if !p.Limit.Leased() && p.Name != "high" {
				left = append(left, p)
			}
		}
		return left
	}

	l := newLimiter(t)
	f := follow(t, l, s, o)
	if want := "leased high low"; strings.Join(asked, " ") != want {
		t.Errorf("Adapt was asked about %v, want %s", asked, want)
	}
	if s := f.Status(); s.Version != "1" || s.Policies != 1 {
		t.Errorf("in force are %d policies of version %q, want 1 of 1", s.Policies, s.Version)
	}

	// Of "high", which allows 1, nothing may be left; of "low" 5 of the 10 calls pass.
	admitted := 0
	for range 10 {
		if d, err := l.Allow(t.Context(), "x", 1); err != nil {
			t.Fatal(err)
		} else if d.Allowed {
			admitted++
		}
	}
	if admitted != 5 {
		t.Errorf("%d admitted, want the 5 of the policy that Adapt left", admitted)
	}

	// A policy that is not valid refuses the revision even if Adapt would have left it out, since
	// another program may be without Adapt.
	leased.OnLimit = "nonsense"
	bad := &source{}
	bad.publish("2", low, leased)
	asked = nil
	if _, err := policy.Follow(t.Context(), newLimiter(t), "shop", policy.Bindings{}, bad, o); err == nil ||
		!strings.Contains(err.Error(), "nonsense") || asked != nil {
		t.Errorf("a policy that Adapt would leave out is not valid: %v, Adapt was asked about %v", err, asked)
	}
}

// A version at which a function of the program, or the source itself, panics is refused, and
// the follower goes on.
func TestFollowRefusesWhatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policy.Policy{Name: "a", Apps: []string{"shop"}, Limit: core.MustParseLimit("5/1h"), Key: "global"}
		s, o := &source{}, quiet()

		s.publish("1", p)
		o.Poll = time.Second

		panics := false
		o.Adapt = func(set policy.Set) policy.Set {
			if panics {
				panic("two\nlines")
			}
			return set
		}
		f := follow(t, newLimiter(t), s, o)

		// The panic's value has two lines, and is kept as it was thrown.
		panics = true
		s.publish("2", p)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		status := f.Status()
		var fault *limiter.PanicError
		if status.Version != "1" || status.Refused != "2" || !errors.As(status.RefusedErr, &fault) ||
			fault.Value != "two\nlines" {
			t.Errorf("%+v", status)
		}

		panics = false
		s.publish("3", p)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if v := f.Status().Version; v != "3" {
			t.Errorf("version %s is in force", v)
		}
	})
}

func TestFollowNamesEveryMistake(t *testing.T) {
	_, err := policy.Follow(t.Context(), nil, "", policy.Bindings{APIKeyHeader: "X Y"}, nil,
		policy.Options{Poll: 1, Timeout: -1, OnMissing: 2, Instance: "a b"})
	wantError(t, err, strings.Join([]string{
		`policy: the application "" is not 1 to 64 letters, digits, _, ., - and /, a letter or digit first`,
		`policy: Bindings.APIKeyHeader: "X Y" is not the name of a header`,
		"policy: Options.Poll: 1ns is not within 10ms to 1h0m0s",
		"policy: Options.Timeout: -1ns is not within 0 to 1h0m0s",
		"policy: Options.OnMissing: 2 is not known",
		`policy: Options.Instance: "a b" is not at most 128 printable bytes`,
		"policy: the limiter is nil",
		"policy: the source is nil",
	}, "\n"))
}

// Decisions go on, and by whole sets only, while a thousand policies are
// replaced again and again.
func TestFollowReloadsAThousandPoliciesDuringDecisions(t *testing.T) {
	// Ten paths share a thousand policies, so a hundred apply to each request.
	s, l := &source{}, newLimiter(t)
	set := func(limitText string) (list []policy.Policy) {
		for i := range 1000 {
			p := valid(t, fmt.Sprintf("p%d", i))
			p.Match.Path = fmt.Sprintf("/p/%d", i%10)
			p.Limit = limit(t, limitText)
			list = append(list, p)
		}
		return list
	}

	// Two sets that differ in every limit: a decision that mixes them shows.
	small, large := set("1000000/1m"), set("2000000/1m")
	s.publish("0", small...)
	o := quiet()
	o.Poll = 10 * time.Millisecond
	f := follow(t, l, s, o)

	stop := make(chan struct{})
	var load sync.WaitGroup
	var decided atomic.Int64

	// Four goroutines decide until all revisions were in force.
	for range 4 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}

				a := l.Admit(get("/p/3"))
				list := a.Result().Decisions()
				if len(list) != 100 || a.Outcome() != limiter.Pass {
					t.Errorf("%d decisions, %v", len(list), a.Outcome())
				}

				for _, d := range list {
					if d.Limit != list[0].Limit {
						t.Errorf("%v beside %v", d.Limit, list[0].Limit)
					}
				}
				a.Done(200)
				decided.Add(1)
			}
		})
	}

	// Each of the eight revisions must come into force while decisions are made, and decisions must
	// go on after it.
	for i := range 8 {
		next := large
		if i%2 == 1 {
			next = small
		}
		version := fmt.Sprint(i + 1)
		s.publish(version, next...)
		before := decided.Load()
		eventually(t, func() bool { return f.Status().Version == version && decided.Load() > before })
	}

	close(stop)
	load.Wait()
}

// eventually waits until done returns true, and fails after a while.
func eventually(t testing.TB, done func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline:
			t.Fatal("not within a minute")
		case <-tick.C:
		}
	}
}
