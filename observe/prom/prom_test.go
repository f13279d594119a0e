package prom_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/scenario"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/internal/meter"
	"github.com/headgate/headgate/observe/prom"
)

// page returns what Prometheus reads.
func page(t testing.TB, from prometheus.Gatherer, accept string) string {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(from, promhttp.HandlerOpts{EnableOpenMetrics: true}).ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// lines returns the metrics as a scenario states them. Each metric has the name, the type,
// the help and the labels of its instrument.
func lines(t testing.TB, text string) (list []string) {
	t.Helper()

	families := map[string]*dto.MetricFamily{}
	for d := expfmt.NewDecoder(strings.NewReader(text), expfmt.NewFormat(expfmt.TypeTextPlain)); ; {
		f := &dto.MetricFamily{}
		err := d.Decode(f)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		families[f.GetName()] = f
	}

	kinds := map[meter.Kind]dto.MetricType{meter.Counter: dto.MetricType_COUNTER, meter.UpDown: dto.MetricType_GAUGE,
		meter.Gauge: dto.MetricType_GAUGE, meter.Histogram: dto.MetricType_HISTOGRAM}
	for _, i := range meter.Instruments {
		// Families are removed as they are found, so that what is left has no instrument.
		f := families[i.Prometheus()]
		delete(families, i.Prometheus())
		if f == nil {
			continue
		}

		if f.GetType() != kinds[i.Kind] || f.GetHelp() != i.Help {
			t.Errorf("%s: %s %q", i.Prometheus(), f.GetType(), f.GetHelp())
		}
		for _, m := range f.Metric {
			// Labels are named by the order of the instrument's attributes.
			attributes := map[string]string{}
			for n, label := range i.Labels() {
				for _, pair := range m.Label {
					if pair.GetName() == label {
						attributes[i.Attributes[n]] = pair.GetValue()
					}
				}
			}

			if len(attributes) != len(m.Label) {
				t.Errorf("%s has the labels %v", i.Prometheus(), m.Label)
			}
			list = append(list, line(i, attributes, m))
		}
	}

	for name := range families {
		t.Errorf("%s is no instrument", name)
	}
	return list
}

func line(i *meter.Instrument, attributes map[string]string, m *dto.Metric) string {
	if h := m.Histogram; h != nil {
		var each []uint64
		before := uint64(0)
		for _, b := range h.Bucket {
			each, before = append(each, b.GetCumulativeCount()-before), b.GetCumulativeCount()
		}
		return scenario.HistogramLine(i.Name, attributes, h.GetSampleCount(), h.GetSampleSum(), each)
	}
	return scenario.Line(i.Name, attributes, m.GetCounter().GetValue()+m.GetGauge().GetValue())
}

func TestScenario(t *testing.T) {
	scenario.Play(t, func(t *testing.T) (func(*limiter.Config), func() []string) {
		registry := prometheus.NewPedanticRegistry()
		m, err := prom.New(prom.Options{Registerer: registry})
		if err != nil {
			t.Fatal(err)
		}
		return m.Install, func() []string { return lines(t, page(t, registry, "")) }
	})
}

// A request that is counted without an event is counted as any other.
func TestCountersSayWhatEventsSay(t *testing.T) {
	scenario.Differ(t, func(t *testing.T) (func(*limiter.Config), func() []string) {
		m, registry := registered(t, prom.Options{MaxRules: 3,
			Exemplar: func(context.Context) prometheus.Labels { return prometheus.Labels{"trace_id": "4bf92f35"} }})
		return m.Install, func() []string { return lines(t, page(t, registry, "")) }
	})
}

// registered returns metrics and where they are registered.
func registered(t testing.TB, o prom.Options) (*prom.Metrics, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	o.Registerer = registry
	m, err := prom.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return m, registry
}

func request(v events.Verdict, rules ...string) *events.Request {
	e := &events.Request{Verdict: v}
	for _, name := range rules {
		e.Rules = append(e.Rules, events.Rule{Name: name, Verdict: v})
	}
	return e
}

// with returns the lines that contain the text.
func with(list []string, part string) (found []string) {
	for _, line := range list {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return found
}

func want(t testing.TB, got []string, want ...string) {
	t.Helper()
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestRulesBeyondTheMaximumAreCountedTogether(t *testing.T) {
	m, registry := registered(t, prom.Options{MaxRules: 2})
	for i := range 1000 {
		m.Observe(t.Context(), request(events.Degraded, fmt.Sprint("r", i)))
	}
	m.Observe(t.Context(), request(events.Degraded, "\xff"))
	got := lines(t, page(t, registry, ""))
	want(t, with(got, "degraded"), `headgate.decisions{headgate.result="degraded",headgate.rule="_other"} 999`,
		`headgate.decisions{headgate.result="degraded",headgate.rule="r0"} 1`,
		`headgate.decisions{headgate.result="degraded",headgate.rule="r1"} 1`,
		`headgate.requests{headgate.result="degraded"} 1001`)
}

// A rule in force has series from the start. Those of a removed rule end after 15 minutes, its
// histograms too, and make room for another rule.
func TestSeriesOfRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, registry := registered(t, prom.Options{MaxRules: 2})

		rule := func(name string) []limiter.Rule {
			return []limiter.Rule{{Name: name, Limit: core.MustParseLimit("1 concurrent ttl=1h")},
				{Name: "kept", Limit: core.MustParseLimit("1/1s")}}
		}

		c := limiter.Config{Rules: rule("old"), Logger: slog.New(slog.DiscardHandler)}
		m.Install(&c)
		l := limiter.MustNew(c)
		defer l.Close()
		read := func() []string { return with(lines(t, page(t, registry, "")), `"allowed"`) }

		// Both rules have a zero before the first request.
		none, kept := `headgate.requests{headgate.result="allowed"} 0`,
			`headgate.decisions{headgate.result="allowed",headgate.rule="kept"} 0`
		want(t, read(), kept, `headgate.decisions{headgate.result="allowed",headgate.rule="old"} 0`, none)

		// The old rule is replaced while a lease of it is held. The new one has no room beside the
		// two, and counts as another.
		res, err := l.Take(t.Context(), "k", 1)
		if err = errors.Join(err, l.SetRules(rule("new"))); err != nil {
			t.Fatal(err)
		}

		one, kept := `headgate.requests{headgate.result="allowed"} 1`,
			`headgate.decisions{headgate.result="allowed",headgate.rule="kept"} 1`
		old, other := `headgate.decisions{headgate.result="allowed",headgate.rule="old"} 1`,
			`headgate.decisions{headgate.result="allowed",headgate.rule="_other"} 0`
		want(t, read(), other, kept, old, one)

		// An hour later the lease keeps the old rule's series.
		time.Sleep(time.Hour)
		want(t, read(), other, kept, old, one) // a lease of it is held

		// From the end of the lease on, its fifteen minutes run to the nanosecond.
		_ = res.Release(t.Context())

		read()
		time.Sleep(15*time.Minute - 1)
		want(t, read(), other, kept, old, one)

		if text := page(t, registry, ""); !strings.Contains(text,
			`headgate_lease_duration_seconds_count{headgate_rule="old"} 1`) {
			t.Error(text)
		}

		// Its place is free now, and the new rule takes it.
		time.Sleep(time.Nanosecond)
		want(t, read(), other, kept, `headgate.decisions{headgate.result="allowed",headgate.rule="new"} 0`, one)

		if text := page(t, registry, ""); strings.Contains(text, `"old"`) {
			t.Error(text)
		}

		// Without a limiter no rule is in force, so all series of rules end.
		l.Close()
		time.Sleep(time.Hour)
		read()
		time.Sleep(time.Hour)
		want(t, read(), other, one)
	})
}

// Bans end by themselves, and no more than a number of them are remembered.
func TestBansEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, registry := registered(t, prom.Options{})

		c := limiter.Config{}
		m.Install(&c)
		read := func() []string { return with(lines(t, page(t, registry, "")), "bans") }

		// Each ban is told twice, as by two limiters, and there are twice as many as are
		// remembered.
		for i := range 20_000 {
			c.Hooks.Ban(events.Ban{Rule: "a", Key: fmt.Sprint(i), For: time.Minute})
			c.Hooks.Ban(events.Ban{Rule: "a", Key: fmt.Sprint(i), For: time.Minute})
		}
		want(t, read(), `headgate.bans{headgate.rule="a"} 10000`)

		// All of them end together, and a late one begins.
		time.Sleep(time.Minute)
		c.Hooks.Ban(events.Ban{Rule: "a", Key: "late", For: time.Minute})
		want(t, read(), `headgate.bans{headgate.rule="a"} 1`)
		time.Sleep(time.Minute)

		want(t, read(), `headgate.bans{headgate.rule="a"} 0`)
	})
}

// An exemplar is of a request that does not pass, and in OpenMetrics only.
func TestExemplars(t *testing.T) {
	labels := prometheus.Labels{"trace_id": "4bf92f3577b34da6"}
	asked := 0
	m, registry := registered(t,
		prom.Options{Exemplar: func(context.Context) prometheus.Labels { asked++; return labels }})

	// Requests that pass are not asked at all.
	m.Observe(t.Context(), request(events.Allowed, "a"))
	m.Observe(t.Context(), request(events.ShadowRefused, "a"))
	if asked != 0 {
		t.Errorf("%d requests that pass were asked for an exemplar", asked)
	}
	m.Observe(t.Context(), request(events.Refused, "a"))

	// A request without labels, and one with labels that are too long, are counted without an
	// exemplar.
	labels = nil
	m.Observe(t.Context(), request(events.Refused, "a"))
	labels = prometheus.Labels{"a": strings.Repeat("x", 129)} // an exemplar has at most 128 characters
	m.Observe(t.Context(), request(events.Banned, "a"))
	text := page(t, registry, "application/openmetrics-text; version=1.0.0")

	for _, part := range []string{
		`headgate_requests_total{headgate_result="refused"} 2.0 # {trace_id="4bf92f3577b34da6"} 1.0 `,
		`headgate_decisions_total{headgate_result="refused",headgate_rule="a"} 2.0 # {trace_id="4bf92f3577b34da6"} 1.0 `,
		`headgate_requests_total{headgate_result="banned"} 1.0` + "\n",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("no %s in\n%s", part, text)
		}
	}

	if strings.Count(text, "trace_id") != 2 {
		t.Error(text)
	}
}

func TestMistakes(t *testing.T) {
	_, registry := registered(t, prom.Options{})
	for want, o := range map[string]prom.Options{
		"prom: MaxRules is -1; want 0 to 1000000": {MaxRules: -1},
		"prom: the registerer has metrics of headgate already; install one Metrics in the config of every limiter": {Registerer: registry},
	} {
		if m, err := prom.New(o); err == nil || err.Error() != want || m != nil {
			t.Errorf("%v, want %s", err, want)
		}
	}

	// A name that is taken by others is an error of the registration, and not a panic.
	taken := prometheus.NewRegistry()
	taken.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "headgate_requests_total",
		Help: "of another program"}))

	if _, err := prom.New(prom.Options{Registerer: taken}); err == nil ||
		!strings.Contains(err.Error(), "headgate_requests_total") {
		t.Errorf("%v", err)
	}
}

// promtool finds nothing to complain about but what the tables state on purpose.
func TestPromtool(t *testing.T) {
	promtool := test.Program(t, "promtool", "prometheus")
	m, registry := registered(t, prom.Options{})
	app := &scenario.App{}
	m.Install(&app.Config)
	app.Open()
	app.Tick(t.Context())
	check := exec.Command(promtool, "check", "metrics")
	check.Stdin = strings.NewReader(page(t, registry, ""))
	if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	m, _ := registered(t, prom.Options{Exemplar: func(context.Context) prometheus.Labels { return nil }})
	for _, e := range []*events.Request{request(events.Allowed, "a", "b"), request(events.Refused, "a", "b")} {
		if n := testing.AllocsPerRun(1000, func() { m.Observe(t.Context(), e) }); n != 0 {
			t.Errorf("%s: %v allocations", e.Verdict, n)
		}
	}
}

// A request costs no allocation, whether it is plain or not.
func TestLimiterAllocatesNothing(t *testing.T) {
	m, registry := registered(t, prom.Options{})

	c := limiter.Config{Rules: []limiter.Rule{{Name: "a", Limit: core.MustParseLimit("2000/1h fixed-window")}}}
	m.Install(&c)

	l := limiter.MustNew(c)
	defer l.Close()
	ctx := t.Context()

	// Of three rounds the last is refused: a refusal may cost no allocation either.
	for range 3 { // the last ones are refused
		if n := testing.AllocsPerRun(1000, func() { _, _ = l.Allow(ctx, "k", 1) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}

	want(t, with(lines(t, page(t, registry, "")), "requests{headgate.result=\"allowed"),
		`headgate.requests{headgate.result="allowed"} 2000`)
}

// BenchmarkObserve is what a request costs in the observer alone.
func BenchmarkObserve(b *testing.B) {
	for _, n := range []int{1, 3} {
		m, _ := registered(b, prom.Options{})
		e := &events.Request{}
		for i := range n {
			e.Rules = append(e.Rules, events.Rule{Name: fmt.Sprint("rule", i), Cost: 1, Charged: 1})
		}

		b.Run(fmt.Sprint("rules=", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m.Observe(b.Context(), e)
			}
		})
	}
}

// BenchmarkLimiter compares decisions with and without metrics. "nothing" is an observer that
// does nothing and gets each event.
func BenchmarkLimiter(b *testing.B) {
	// Limits that never refuse, and limits that refuse all but the first, under one rule and three.
	for _, under := range []struct {
		limit string
		rules int
	}{{"1000000000/1s", 1}, {"1/8760h fixed-window", 1}, {"1000000000/1s", 3}, {"1/8760h fixed-window", 3}} {
		for _, row := range []struct {
			name string
			set  func(*limiter.Config)
		}{
			{"none", func(*limiter.Config) {}},
			{"nothing", func(c *limiter.Config) {
				c.Observer = events.Func(func(context.Context, *events.Request) {
				})
			}},
			{"metrics", func(c *limiter.Config) { m, _ := registered(b, prom.Options{}); m.Install(c) }},
		} {
			c := limiter.Config{Logger: slog.New(slog.DiscardHandler)}
			for i := range under.rules {
				c.Rules = append(c.Rules, limiter.Rule{Name: fmt.Sprint("r", i),
					Limit: core.MustParseLimit(under.limit)})
			}

			row.set(&c)
			l := limiter.MustNew(c)
			defer l.Close()

			// The first request is allowed under every limit, and the second shows what the row
			// measures.
			if _, err := l.Allow(b.Context(), "k", 1); err != nil {
				b.Fatal(err)
			}
			d, err := l.Allow(b.Context(), "k", 1)
			if err != nil {
				b.Fatal(err)
			}

			b.Run(fmt.Sprintf("rules=%d/allowed=%t/%s", under.rules, d.Allowed, row.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if got, err := l.Allow(b.Context(), "k", 1); err != nil || got.Allowed != d.Allowed {
						b.Fatal(got, err)
					}
				}
			})
		}
	}
}
