package events_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/observe/events"
)

// The texts are values of attributes of metrics, so they stay.
func TestTexts(t *testing.T) {
	var verdicts, passing, flows, types, modes, changes []string
	for v := range events.Verdict(events.Verdicts) {
		verdicts = append(verdicts, v.String())
		if v.Passes() {
			passing = append(passing, v.String())
		}
	}
	for f := range events.Debited + 1 {
		flows = append(flows, f.String())
	}
	for e := range events.ErrorType(events.ErrorTypes) {
		types = append(types, e.String())
	}
	for m := range events.Mode(events.Modes) {
		modes = append(modes, m.String())
	}
	for c := range events.PolicySourceBack + 1 {
		changes = append(changes, c.String())
	}

	// The orders are those of the constants. A new one belongs at the end, or else stored
	// numbers change their meaning.
	for _, row := range []struct {
		got  []string
		want string
	}{
		{verdicts, "allowed waited degraded shadow_refused failed_open refused banned impossible denied queue_full canceled failed_closed overruled"},
		{passing, "allowed waited degraded shadow_refused failed_open overruled"},
		{flows, "refunded settled debited"},
		{types, " timeout refused script readonly oom auth other"},
		{modes, "store local open closed"},
		{changes, "applied refused source_away source_back"},
		// A value that this version does not know has a text all the same.
		{[]string{events.Verdict(99).String(), events.Flow(99).String(), events.ErrorType(99).String(),
			events.Mode(99).String(), events.PolicyChange(99).String()},
			"unknown verdict unknown flow unknown error type unknown mode unknown change"},
	} {
		if got := strings.Join(row.got, " "); got != row.want {
			t.Errorf("%q, want %q", got, row.want)
		}
	}
}

func TestJoin(t *testing.T) {
	var seen []string
	note := func(name string) events.Observer {
		return events.Func(func(_ context.Context, r *events.Request) {
			seen = append(seen, name+" "+r.Verdict.String())
		})
	}

	// Nothing to call is nil, so that a limiter can tell that there is no observer.
	if o := events.Join(nil, nil); o != nil {
		t.Errorf("%v", o)
	}
	for _, row := range []struct {
		list []events.Observer
		want []string
	}{
		{[]events.Observer{nil, note("a")}, []string{"a waited"}},
		{[]events.Observer{note("a"), nil, note("b")}, []string{"a waited", "b waited"}},
	} {
		seen = nil
		events.Join(row.list...).Observe(t.Context(), &events.Request{Verdict: events.Waited})
		if !slices.Equal(seen, row.want) {
			t.Errorf("%q, want %q", seen, row.want)
		}
	}
}

// counter is a Counter that notes what it hears, without a counter for the rule "none".
type counter struct {
	events.Func
	note func(text string)
}

func (c counter) CountRequest(_ context.Context, r events.Plain) { c.note(fmt.Sprint(r)) }

func (c counter) RuleCounter(rule string) events.RuleCounter {
	if rule == "none" {
		return nil
	}
	return counted(func(v events.Verdict) { c.note(fmt.Sprint(rule, " ", v)) })
}

type counted func(events.Verdict)

func (c counted) Count(_ context.Context, v events.Verdict) { c(v) }

// Several observers count plain requests if each of them does, and otherwise all observe them.
func TestJoinOfCounters(t *testing.T) {
	var seen []string
	named := func(name string) counter {
		return counter{func(_ context.Context, r *events.Request) { seen = append(seen, name+" "+r.Verdict.String()) },
			func(text string) { seen = append(seen, name+" counts "+text) }}
	}
	a, b, c := named("a"), named("b"), named("c")

	// One of them needs the event, so plain requests are no option.
	if _, ok := events.Join(a, b.Func).(events.Counter); ok {
		t.Error("an observer that does not count is left out")
	}
	if one := events.Join(nil, a).(events.Counter).RuleCounter("r"); one == nil {
		t.Error("one Counter counts nothing")
	}
	all := events.Join(events.Join(a, b), nil, c).(events.Counter)

	// A rule that one of them does not count has no counter.
	if one := all.RuleCounter("none"); one != nil {
		t.Errorf("%v", one)
	}

	all.CountRequest(t.Context(), events.Plain{Verdict: events.Refused, Rule: "r", Remaining: 7})
	all.RuleCounter("r").Count(t.Context(), events.Refused)
	all.Observe(t.Context(), &events.Request{Verdict: events.Waited})

	// Each observer has each call, in the order in which they were joined.
	if want := []string{"a counts {refused r 7}", "b counts {refused r 7}", "c counts {refused r 7}",
		"a counts r refused", "b counts r refused", "c counts r refused", "a waited", "b waited",
		"c waited"}; !slices.Equal(seen, want) {
		t.Errorf("%q, want %q", seen, want)
	}
}

// filled returns hooks of which each function notes that it was called.
func filled(seen *[]string, name string) *events.Hooks {
	h := &events.Hooks{}
	v := reflect.ValueOf(h).Elem()
	for _, field := range functions() {
		i := field.Index[0]
		v.Field(i).Set(reflect.MakeFunc(field.Type, func([]reflect.Value) []reflect.Value {
			*seen = append(*seen, name+" "+field.Name)
			return nil
		}))
	}
	return h
}

// call calls each function of the hooks.
func call(h *events.Hooks) {
	v := reflect.ValueOf(h).Elem()
	for _, field := range functions() {
		v.FieldByIndex(field.Index).Call([]reflect.Value{reflect.Zero(field.Type.In(0))})
	}
}

// functions returns the fields of Hooks that are functions.
func functions() (list []reflect.StructField) {
	for i := range reflect.TypeFor[events.Hooks]().NumField() {
		if field := reflect.TypeFor[events.Hooks]().Field(i); field.Type.Kind() == reflect.Func {
			list = append(list, field)
		}
	}
	return list
}

// areNil reports whether all functions are nil.
func areNil(h *events.Hooks) bool {
	for _, field := range functions() {
		if !reflect.ValueOf(h).Elem().FieldByIndex(field.Index).IsNil() {
			return false
		}
	}
	return true
}

// Every hook is joined and guarded, also one that is added to the struct later.
func TestHooksAreComplete(t *testing.T) {
	// The names come from the struct, so that a new hook cannot be forgotten here.
	var seen, want []string
	for _, field := range functions() {
		want = append(want, "a "+field.Name, "b "+field.Name)
	}

	a, b := filled(&seen, "a"), filled(&seen, "b")
	call(events.JoinHooks(a, nil, b))
	if !slices.Equal(seen, want) {
		t.Errorf("%q, want %q", seen, want)
	}
	var l events.Listeners

	// The same hooks, given one after the other; the second time is ignored.
	l.Add(a)
	l.Add(nil)
	l.Add(b)
	l.Add(a) // is not told twice
	seen = nil

	call(l.Hooks())
	if !slices.Equal(seen, want) {
		t.Errorf("%q, want %q", seen, want)
	}

	// Where there is nothing to call the joined hook is nil, so that its event is not prepared.
	if got := events.JoinHooks(&events.Hooks{}, nil); !areNil(got) {
		t.Errorf("hooks that are nil were joined to %+v", got)
	}

	if got := (&events.Listeners{}).Hooks(); !areNil(got) {
		t.Errorf("%+v", got)
	}
}

// Two configs that share a store may each join their own hooks to those of a package of
// metrics, which the store calls once.
func TestListenersHearOnceOfHooksThatAreJoinedTwice(t *testing.T) {
	var seen []string
	note := func(name string) *events.Hooks {
		return &events.Hooks{CachedRefusal: func(rule string) { seen = append(seen, name+" "+rule) }}
	}
	shared, a, b := note("shared"), note("a"), note("b")

	// Both configs joined the shared hooks with their own, in different depths.
	var l events.Listeners
	l.Add(events.JoinHooks(a, shared))
	l.Add(events.JoinHooks(events.JoinHooks(b), shared))
	changed := *events.JoinHooks(a) // not the hooks that were joined

	changed.CachedRefusal = func(rule string) { seen = append(seen, "changed "+rule) }
	l.Add(&changed)
	l.Hooks().CachedRefusal("r")

	if want := []string{"a r", "shared r", "b r", "changed r"}; !slices.Equal(seen, want) {
		t.Errorf("%q, want %q", seen, want)
	}
}

func TestListenersDoNotPanic(t *testing.T) {
	bad := &events.Hooks{CachedRefusal: func(rule string) { panic(fmt.Sprint("in a hook of ", rule)) }}
	var l events.Listeners
	l.Add(bad)
	l.Hooks().CachedRefusal("a")
	l.Hooks().CachedRefusal("a")
}
