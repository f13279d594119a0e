package limiter_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

// functionsOf appends the paths of the functions that a program can set in a type.
func functionsOf(t reflect.Type, path string, into []string) []string {
	switch t.Kind() {
	case reflect.Func:
		return append(into, path)
	case reflect.Pointer, reflect.Slice:
		return functionsOf(t.Elem(), path, into)
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() &&
				(strings.HasPrefix(t.PkgPath(), "github.com/headgate/") || path == "") {
				into = functionsOf(f.Type, strings.TrimPrefix(path+"."+f.Name, "."), into)
			}
		}
	}
	return into
}

// setPanicking sets the function at a path to one that panics, and counts its calls.
func setPanicking(v reflect.Value, path string, calls *int) {
	// A slice has one rule. A pointer that is nil gets a value, or its fields could not be set.
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Slice {
		if v.Kind() == reflect.Slice {
			v = v.Index(0)
			continue
		}
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		v = v.Elem()
	}

	name, rest, more := strings.Cut(path, ".")
	field := v.FieldByName(name)
	if more {
		setPanicking(field, rest, calls)
		return
	}

	field.Set(reflect.MakeFunc(field.Type(), func([]reflect.Value) []reflect.Value {
		*calls++
		panic("of the program")
	}))
}

// guarded are the functions of a Config. Whoever adds one finds it tried here.
var guarded = []string{
	"CustomHeaders", "Degraded", "Failed", "Hooks.Ban", "Hooks.Breaker", "Hooks.CachedRefusal", "Hooks.Closed",
	"Hooks.Lease", "Hooks.Near", "Hooks.Open", "Hooks.Policy", "Hooks.Queue", "Hooks.Rules", "Hooks.StoreCall",
	"Hooks.Units", "OnError", "Refused", "Rules.Charge", "Rules.Cost", "Rules.Key", "Rules.Override", "Rules.RefundIf",
}

// uncalled are those that no request of this test meets. All hooks are called in one place.
var uncalled = []string{"Hooks.Breaker", "Hooks.CachedRefusal", "Hooks.Policy", "Hooks.Queue", "Hooks.Rules",
	"Hooks.StoreCall", "Hooks.Units"}

// No panic of a function of the program reaches the server, and none is lost: OnError or the
// log has it, wherever in a request it comes.
func TestFunctionsOfTheProgramMayPanic(t *testing.T) {
	paths := functionsOf(reflect.TypeFor[limiter.Config](), "", nil)
	slices.Sort(paths)
	if !slices.Equal(paths, guarded) {
		t.Fatalf("the functions of a Config are\n%q, want\n%q", paths, guarded)
	}

	var log bytes.Buffer // which has the panics of hooks
	former := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(former)

	for _, path := range paths {
		t.Run(path, func(t *testing.T) {
			calls, told := 0, 0
			// Refusals, degraded answers, leases and faults: each function is called by one of
			// these.
			for _, action := range []limiter.Action{limiter.Reject, limiter.Degrade} {
				for _, text := range []string{"1/1h fixed-window", "1 concurrent ttl=1m"} {
					for _, s := range []core.Store{newStore(),
						brokenStore(func() error { return errors.New("down") })} {
						log.Reset()
						told += requestsUnder(t, path, action, text, s, &calls) +
							strings.Count(log.String(), "of the program")
					}
				}
			}

			if (calls > 0) == slices.Contains(uncalled, path) {
				t.Errorf("it was called %d times", calls)
			}
			if calls > 0 && told == 0 && path != "OnError" {
				t.Errorf("of %d panics none was told", calls)
			}
		})
	}
}

// requestsUnder sends requests to a limiter with a function that panics, and returns how often
// that was told.
func requestsUnder(t *testing.T, path string, action limiter.Action, text string, s core.Store, calls *int) (told int) {
	var log bytes.Buffer
	r := rule(t, "a", text)
	r.OnLimit, r.Warn = action, core.Whole/2
	// Only such a rule can have a ban.
	if !r.Limit.Leased() && action == limiter.Reject {
		r.Ban = core.MustParseBan("2/1h for 1m max 1h")
	}

	if path == "Rules.Charge" && r.Limit.Leased() { // a mistake
		return 0
	}

	c := limiter.Config{Store: s, Rules: []limiter.Rule{r}, OnStoreError: limiter.FailClosed,
		Logger: slog.New(slog.NewTextHandler(&log, nil)), OnError: func(_ context.Context, err error) {
			var p *limiter.PanicError
			if errors.As(err, &p) {
				told++
			}
		}}

	setPanicking(reflect.ValueOf(&c), path, calls)
	l, err := limiter.New(c)
	if err != nil {
		t.Fatal(err)
	}

	var open []*limiter.Admission
	for range 4 {
		a := l.Admit(get())
		a.Headers()
		_, _ = a.Answer()
		open = append(open, a)
	}
	for _, a := range open {
		a.Done(500)
	}
	l.AwaitReleases()
	l.Close()
	return told + strings.Count(log.String(), "of the program")
}
