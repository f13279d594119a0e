package limiter_test

import (
	"bytes"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

// Two limiters over one store whose rules have no name share its counts, and the second says
// so. A limiter that has ended shares nothing.
func TestLimitersThatShareARuleWithoutAName(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	open := func(name, ruleName string, s core.Store) *limiter.Limiter {
		r := rule(t, "x", "5/1h")
		r.Name = ruleName
		return limiter.MustNew(limiter.Config{Name: name, Store: s, Logger: logger, Rules: []limiter.Rule{r}})
	}
	warned := func() int {
		n := strings.Count(log.String(), "code=HG021 rule=default")
		log.Reset()
		return n
	}

	s := newStore()
	first := open("", "", s)
	for name, other := range map[string]*limiter.Limiter{
		"a name of the limiter": open("search", "", s),
		"a name of the rule":    open("", "search", s), "another store": open("", "", newStore()),
		"a memory of its own": open("", "", nil),
	} {
		if n := warned(); n != 0 {
			t.Errorf("%s: %d lines", name, n)
		}
		other.Close()
	}

	// The same names over the same store: the second shares the counts.
	second := open("", "", s)
	if n := warned(); n != 1 {
		t.Errorf("%d lines say that the second shares the counts of the first", n)
	}

	// Closed limiters are forgotten, however often they are closed.
	second.Close()
	first.Close()
	first.Close()
	open("", "", s).Close()
	if n := warned(); n != 0 {
		t.Errorf("%d lines after the others have ended", n)
	}

	open("", "", s) // is never closed
	for tries := 0; ; tries++ {
		// A limiter that is never closed is forgotten once it is garbage, which may take several
		// runs.
		runtime.GC()
		open("", "", s).Close()
		if warned() == 0 {
			break
		}
		if tries == 1000 {
			t.Fatal("the other is garbage, and is not forgotten")
		}
	}
}

// The only rule of a limiter that has a name has that name, so two limiters count apart.
func TestLimiterNamesItsOnlyRule(t *testing.T) {
	s := newStore()
	for name, want := range map[string]string{"": "default", "search": "search"} {
		r := rule(t, "x", "5/1h")
		r.Name = ""
		l := configured(t, limiter.Config{Name: name, Store: s, Rules: []limiter.Rule{r}})
		res, err := l.Take(t.Context(), "k", 1)
		if err != nil || res.Decisions()[0].Rule != want {
			t.Errorf("%q: %v, %v", name, res.Decisions(), err)
		}
	}
}
