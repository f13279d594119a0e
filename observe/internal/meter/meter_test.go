package meter_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/scenario"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/internal/meter"
)

// histograms are what a package of metrics keeps of them.
type histograms struct {
	mu   sync.Mutex
	list map[histogram]*values
}

type histogram struct {
	of     *meter.Instrument
	values [2]string
}

type values struct {
	count   uint64
	sum     float64
	buckets []uint64
}

func (h *histograms) record(_ context.Context, i *meter.Instrument, v [2]string, x float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := histogram{i, v}
	if h.list[k] == nil {
		h.list[k] = &values{buckets: make([]uint64, len(i.Buckets)+1)}
	}
	h.list[k].count++
	h.list[k].sum += x
	h.list[k].buckets[sort.SearchFloat64s(i.Buckets, x)]++
}

// metrics is a package of metrics in a few lines.
type metrics struct {
	*meter.Meter
	histograms histograms
	refused    func(context.Context, *meter.Cell)
}

func newMetrics(t *testing.T, o meter.Options) *metrics {
	t.Helper()
	m := &metrics{histograms: histograms{list: map[histogram]*values{}}}
	o.Record = m.histograms.record
	var err error
	if m.Meter, err = meter.New(o); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *metrics) Observe(ctx context.Context, r *events.Request) { m.Meter.Observe(ctx, r, m.refused) }

func (m *metrics) CountRequest(ctx context.Context, r events.Plain) {
	m.Meter.CountRequest(ctx, r.Verdict, m.refused)
}

func (m *metrics) RuleCounter(rule string) events.RuleCounter {
	return &ruleCounter{m, m.Meter.RuleCounter(rule)}
}

type ruleCounter struct {
	metrics *metrics
	rule    *meter.RuleCounter
}

func (c *ruleCounter) Count(ctx context.Context, v events.Verdict) {
	c.rule.Count(ctx, v, c.metrics.refused)
}

func attributes(i *meter.Instrument, values []string) map[string]string {
	list := map[string]string{}
	for n, name := range i.Attributes {
		list[name] = values[n]
	}
	return list
}

func (m *metrics) lines() (list []string) {
	// A counter that never counted is left out, unless it says that its zero matters.
	m.Cells(func(c *meter.Cell) {
		if c.Value() > 0 || c.ShowsZero() {
			list = append(list, scenario.Line(c.Instrument.Name, attributes(c.Instrument, c.Values),
				float64(c.Value())))
		}
	})

	m.Gauges(func(i *meter.Instrument, v float64, values ...string) {
		list = append(list, scenario.Line(i.Name, attributes(i, values), v))
	})
	for k, v := range m.histograms.list {
		list = append(list, scenario.HistogramLine(k.of.Name, attributes(k.of, k.values[:]), v.count, v.sum, v.buckets))
	}
	return list
}

func TestScenario(t *testing.T) {
	for _, refused := range []func(context.Context, *meter.Cell){nil,
		func(_ context.Context, c *meter.Cell) { c.Add(1) }} {
		scenario.Play(t, func(t *testing.T) (func(*limiter.Config), func() []string) {
			m := newMetrics(t, meter.Options{})
			m.refused = refused
			return func(c *limiter.Config) { m.Install(c, m) }, m.lines
		})
	}
}

// A request that is counted without an event is counted as any other.
func TestCountersSayWhatEventsSay(t *testing.T) {
	for _, o := range []meter.Options{{MaxRules: 3, Forget: func(string) {}}, {MaxRules: 3}, {}} {
		scenario.Differ(t, func(t *testing.T) (func(*limiter.Config), func() []string) {
			m := newMetrics(t, o)
			return func(c *limiter.Config) { m.Install(c, m) }, m.lines
		})
	}
}

// An observer and hooks that the program has are called too, and a store that two limiters
// share tells the meter once.
func TestInstallKeepsWhatIsThere(t *testing.T) {
	m := newMetrics(t, meter.Options{})
	var mine []string
	seen := func(text string) { mine = append(mine, text) }

	// Two limiters with hooks of their own, over one store that they share.
	var listeners events.Listeners
	for range 2 {
		c := limiter.Config{Observer: events.Func(func(context.Context, *events.Request) { seen("request") }),
			Hooks: &events.Hooks{StoreCall: func(events.StoreCall) { seen("call") }}}
		m.Install(&c, m)
		c.Observer.Observe(t.Context(), &events.Request{})

		listeners.Add(c.Hooks)
	}
	listeners.Hooks().StoreCall(events.StoreCall{Store: "redis", Ops: 1})
	got := m.lines()

	// The requests were two, and the store's call one: it was told once to the meter.
	for _, line := range []string{`headgate.requests{headgate.result="allowed"} 2`,
		"headgate.batch.size{} count 1 sum 1 buckets [1 0 0 0 0 0 0 0 0 0 0]"} {
		if !slices.Contains(got, line) {
			t.Errorf("%s is not in %q", line, got)
		}
	}

	// The program's own hooks are two, and each was called.
	if !slices.Equal(mine, []string{"request", "request", "call", "call"}) {
		t.Errorf("%q", mine)
	}
}

// What decides after a breaker opened is asked of the limiters, as the hook knows no failure
// mode. If the store has come back meanwhile, it is what the hook says.
func TestModeChanges(t *testing.T) {
	for _, row := range []struct {
		mode events.Mode
		e    events.Breaker
		want string
	}{
		// The first word is what the limiters say, and then comes what the breaker did.
		{events.FailsUndecided, events.Breaker{Open: true, Fallback: true}, "closed"},
		{events.FallbackDecides, events.Breaker{Open: true, Fallback: true}, "local"},
		{events.StoreDecides, events.Breaker{Open: true, Fallback: true}, "local"},
		{events.StoreDecides, events.Breaker{Open: true}, "open"},
		{events.FailsUndecided, events.Breaker{}, "store"},
	} {
		m := newMetrics(t, meter.Options{})
		var c limiter.Config

		m.Install(&c, m)
		c.Hooks.Open(inspector(row.mode))
		c.Hooks.Breaker(row.e)
		var got []string

		for _, line := range m.lines() {
			if strings.HasPrefix(line, "headgate.store.mode_changes") && strings.HasSuffix(line, " 1") {
				got = append(got, line)
			}
		}
		if want := []string{fmt.Sprintf(`headgate.store.mode_changes{headgate.mode=%q} 1`,
			row.want)}; !slices.Equal(got, want) {
			t.Errorf("%+v: %q, want %q", row, got, want)
		}
	}
}

// inspector is a limiter with one store.
type inspector events.Mode

func (i inspector) Stores() []events.StoreStatus { return []events.StoreStatus{{Mode: events.Mode(i)}} }

// Equal versions have equal numbers on all instances, others have others.
func TestPolicyRevision(t *testing.T) {
	// A number that fits exactly stays itself; larger ones and other texts are digests.
	for version, want := range map[string]string{"12": "12", "9007199254740993": "2930871505",
		"sha256:1f": "112843103", "-3": "-3"} {
		m := newMetrics(t, meter.Options{})
		var c limiter.Config

		m.Install(&c, m)

		// A refused revision changes no gauge.
		c.Hooks.Policy(events.Policy{Change: events.PolicyRefused, Version: "7", Err: errors.New("bad")})
		if got := with(m.lines(), "revision"); len(got) != 0 {
			t.Errorf("a revision that was refused is in force: %q", got)
		}

		c.Hooks.Policy(events.Policy{Change: events.PolicyApplied, Version: version})
		if got := with(m.lines(), "revision"); len(got) != 1 || got[0] != "headgate.policy.revision{} "+want {
			t.Errorf("%s: %q, want %s", version, got, want)
		}
	}
}

func with(list []string, part string) (found []string) {
	for _, line := range list {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return found
}

// Names that a store of the program's own makes up are bounded, and valid.
func TestKindsOfStores(t *testing.T) {
	m := newMetrics(t, meter.Options{})
	var c limiter.Config
	m.Install(&c, m)
	for i := range 100 {
		c.Hooks.StoreCall(events.StoreCall{Store: fmt.Sprint("\xff", i), Type: events.Other})
	}
	got := with(m.lines(), "store.errors")
	if other := with(got, `"_other"`); len(got) != 17*7 || len(with(other, "} 84")) != 1 ||
		len(with(got, `headgate.store="?15"`)) != 7 {
		t.Errorf("%d series, %q", len(got), other)
	}
}

// Requests at the same time are all counted while metrics are read.
func TestRequestsAtTheSameTime(t *testing.T) {
	m := newMetrics(t, meter.Options{MaxRules: 5, Forget: func(string) {}})

	var all sync.WaitGroup

	// Twice as many rules as may be told apart, by four callers.
	for i := range 4 {
		all.Go(func() {
			for n := range 1000 {
				e := &events.Request{Rules: []events.Rule{{Name: fmt.Sprint("r", n%10), Charged: int64(i)}}}
				m.Observe(t.Context(), e)
			}
		})
	}
	for range 10 {
		m.lines()
	}
	all.Wait()

	// Readers came in between, and rules were moved; no request is lost.
	requests, decisions, units := uint64(0), uint64(0), uint64(0)
	m.Cells(func(c *meter.Cell) {
		switch c.Instrument {
		case meter.Requests:
			requests += c.Value()
		case meter.Decisions:
			decisions += c.Value()
		case meter.Units:
			units += c.Value()
		}
	})

	// Caller i is charged i units each time: 0+1+2+3 for each of a thousand.
	if requests != 4000 || decisions != 4000 || units != 6000 {
		t.Errorf("%d requests, %d decisions, %d units", requests, decisions, units)
	}
}

// The requests of a rule stay counted when the rule is forgotten, and the rule is counted anew
// when a counter that found it before meets another request.
func TestForgottenRulesLeaveTheirRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gone []string
		m := newMetrics(t, meter.Options{Forget: func(rule string) { gone = append(gone, rule) }})
		wants := func(requests, decisions uint64) {
			t.Helper()
			counts := map[*meter.Instrument]uint64{}
			m.Cells(func(c *meter.Cell) { counts[c.Instrument] += c.Value() })
			if counts[meter.Requests] != requests || counts[meter.Decisions] != decisions {
				t.Errorf("%d requests and %d decisions, want %d and %d", counts[meter.Requests],
					counts[meter.Decisions], requests, decisions)
			}
		}

		counter := m.RuleCounter("old")
		count := func() {
			m.CountRequest(t.Context(), events.Plain{Verdict: events.Allowed})
			counter.Count(t.Context(), events.Allowed)
		}
		count()
		wants(1, 1)

		count()

		// A rule that was not counted for a quarter of an hour is forgotten.
		time.Sleep(15 * time.Minute)
		wants(2, 0)
		if !slices.Equal(gone, []string{"old"}) {
			t.Errorf("%q were forgotten", gone)
		}

		// The limiter kept its counter, which finds the rule gone and begins a new one.
		count()
		wants(3, 1)
	})
}

// A limiter that is closed is asked no more.
func TestClosedLimitersAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetrics(t, meter.Options{})

		c := limiter.Config{Rules: []limiter.Rule{{Limit: core.MustParseLimit("1/1s")}}}
		m.Install(&c, m)
		a, b := limiter.MustNew(c), limiter.MustNew(c)

		// One gauge for each limiter.
		if got := with(m.lines(), "headgate.keys"); len(got) != 2 {
			t.Errorf("%q", got)
		}
		a.Close()
		b.Close()

		// The limiters end in the background.
		time.Sleep(time.Second)

		if got := append(with(m.lines(), "headgate.keys"), with(m.lines(), "headgate.store.mode{")...); len(got) != 0 {
			t.Errorf("%q", got)
		}
	})
}

var tableRow = regexp.MustCompile("(?m)^\\| `headgate[a-z_.]+` \\| `headgate_.*$")

// The table of the documentation has every instrument, as it is.
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}

	var want []string
	for _, i := range meter.Instruments {
		var names []string
		for _, a := range i.Attributes {
			names = append(names, "`"+a+"`")
		}

		unit := i.Unit
		if unit != "" {
			unit = "`" + unit + "`"
		}

		// Text for text, the row that the instrument would have.
		want = append(want, strings.ReplaceAll(fmt.Sprintf("| `%s` | `%s` | %s | %s | %s | %s |", i.Name,
			i.Prometheus(), i.Kind, unit, strings.Join(names, ", "), i.Help), "  ", " "))
	}
	if got := tableRow.FindAllString(string(text), -1); !slices.Equal(got, want) {
		t.Errorf("docs/metrics.md needs the rows\n%s", strings.Join(want, "\n"))
	}
}
