package otel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/scenario"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/internal/meter"
	"github.com/headgate/headgate/observe/otel"
)

// collect returns the metrics of the package.
func collect(t testing.TB, r metric.Reader) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	found := map[string]metricdata.Metrics{}

	// Nothing else of the program's metrics is in the scope.
	for _, scope := range all.ScopeMetrics {
		if scope.Scope.Name != "github.com/headgate/headgate/observe/otel" {
			t.Errorf("the scope %q", scope.Scope.Name)
		}
		for _, m := range scope.Metrics {
			found[m.Name] = m
		}
	}
	return found
}

func attributes(s attribute.Set) map[string]string {
	m := map[string]string{}
	for _, kv := range s.ToSlice() {
		m[string(kv.Key)] = kv.Value.AsString()
	}
	return m
}

// lines returns the metrics as a scenario states them. Each metric has the unit, the help and
// the kind of its instrument.
func lines(t testing.TB, found map[string]metricdata.Metrics) (list []string) {
	t.Helper()

	// Metrics are removed as they are found, so that what is left has no instrument.
	for _, i := range meter.Instruments {
		m, known := found[i.Name]
		delete(found, i.Name)
		if !known {
			continue
		}

		if m.Unit != i.Unit || m.Description != i.Help {
			t.Errorf("%s: %q %q", i.Name, m.Unit, m.Description)
		}
		list = append(list, points(t, i, m.Data)...)
	}

	for name := range found {
		t.Errorf("%s is no instrument", name)
	}
	return list
}

// points returns the lines of one metric.
func points(t testing.TB, i *meter.Instrument, data metricdata.Aggregation) (list []string) {
	t.Helper()

	// The kind is told by the type of the data, and for sums by whether they may fall.
	kind := meter.Counter
	switch data := data.(type) {
	case metricdata.Sum[int64]:
		if !data.IsMonotonic {
			kind = meter.UpDown
		}

		if data.Temporality != metricdata.CumulativeTemporality {
			t.Errorf("%s: %s", i.Name, data.Temporality)
		}
		for _, p := range data.DataPoints {
			list = append(list, scenario.Line(i.Name, attributes(p.Attributes), float64(p.Value)))
		}
	case metricdata.Gauge[int64]:

		kind = meter.Gauge
		for _, p := range data.DataPoints {
			list = append(list, scenario.Line(i.Name, attributes(p.Attributes), float64(p.Value)))
		}
	case metricdata.Histogram[float64]:
		kind = meter.Histogram

		for _, p := range data.DataPoints {
			list = append(list, scenario.HistogramLine(i.Name, attributes(p.Attributes), p.Count, p.Sum,
				p.BucketCounts))
		}
	}
	if kind != i.Kind || len(list) == 0 {
		t.Errorf("%s is a %T with %d lines", i.Name, data, len(list))
	}
	return list
}

func TestScenario(t *testing.T) {
	scenario.Play(t, func(t *testing.T) (func(*limiter.Config), func() []string) {
		reader := metric.NewManualReader()
		m, err := otel.New(otel.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
		if err != nil {
			t.Fatal(err)
		}
		return m.Install, func() []string { return lines(t, collect(t, reader)) }
	})
}

// A request that is counted without an event is counted as any other.
func TestCountersSayWhatEventsSay(t *testing.T) {
	scenario.Differ(t, func(t *testing.T) (func(*limiter.Config), func() []string) {
		m, reader := provided(t, otel.Options{MaxRules: 3})
		return m.Install, func() []string { return lines(t, collect(t, reader)) }
	})
}

// provided returns metrics of a provider with a reader, and spans that are recorded.
func provided(t testing.TB, o otel.Options) (*otel.Metrics, *metric.ManualReader) {
	t.Helper()
	reader := metric.NewManualReader()
	o.MeterProvider = metric.NewMeterProvider(metric.WithReader(reader))
	m, err := otel.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return m, reader
}

func request(v events.Verdict, rules ...string) *events.Request {
	e := &events.Request{Verdict: v}
	for i, name := range rules {
		e.Rules = append(e.Rules, events.Rule{Name: name, Verdict: v, Decision: core.Decision{Remaining: int64(9 - i)}})
	}
	return e
}

// in returns a context with a span, and what the span has when it ends.
func in(t testing.TB, sampler sdktrace.Sampler) (ctx context.Context, end func() map[string]string,
	span trace.SpanContext) {
	t.Helper()
	ended := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler), sdktrace.WithSpanProcessor(ended))
	ctx, of := provider.Tracer("test").Start(t.Context(), "GET /")
	return ctx, func() map[string]string {
		of.End()
		if len(ended.Ended()) == 0 {
			return nil
		}
		if len(ended.Started()) != 1 {
			t.Errorf("%d spans", len(ended.Started()))
		}
		got := map[string]string{}
		for _, kv := range ended.Ended()[0].Attributes() {
			got[string(kv.Key)] = kv.Value.Emit()
		}
		return got
	}, of.SpanContext()
}

func TestSpansSayWhatBecameOfTheRequest(t *testing.T) {
	m, _ := provided(t, otel.Options{})

	// The rule that refused is b: the verdict of a was overruled.
	refused := request(events.Refused, "a", "b", "c")
	refused.Rules[0].Verdict = events.Overruled
	denied := request(events.Denied, "a")

	open := request(events.FailedOpen, "a", "b")
	open.Rules[1].Err = errors.New("down")
	for _, row := range []struct {
		e    *events.Request
		want map[string]string
	}{
		// The span has what the verdict, the deciding rule and the tightest remaining count are.
		{request(events.Allowed, "a", "b"), map[string]string{"headgate.result": "allowed", "headgate.remaining": "8"}},
		{request(events.Allowed), map[string]string{"headgate.result": "allowed"}},
		{refused, map[string]string{"headgate.result": "refused", "headgate.rule": "b", "headgate.remaining": "7"}},
		{denied, map[string]string{"headgate.result": "denied", "headgate.rule": "a"}},
		{open, map[string]string{"headgate.result": "failed_open", "headgate.fail_open": "true",
			"headgate.remaining": "9"}},
	} {
		ctx, end, _ := in(t, sdktrace.AlwaysSample())
		m.Observe(ctx, row.e)
		if got := end(); !maps.Equal(got, row.want) {
			t.Errorf("%v, want %v", got, row.want)
		}

		// A span that is not sampled is not even asked for its attributes.
		ctx, end, _ = in(t, sdktrace.NeverSample())
		m.Observe(ctx, row.e)
		if got := end(); got != nil {
			t.Errorf("a span that is not sampled has %v", got)
		}
	}
}

// A request that does not pass is an exemplar if its span is sampled, and is counted once
// whether it is or not.
func TestExemplars(t *testing.T) {
	m, reader := provided(t, otel.Options{})

	sampled, end, span := in(t, sdktrace.AlwaysSample())
	defer end()

	// Each verdict once in a sampled span and once in none.
	for _, v := range []events.Verdict{events.Allowed, events.ShadowRefused, events.Refused} {
		m.Observe(sampled, request(v, "a"))
		m.Observe(t.Context(), request(v, "a"))
	}

	found := collect(t, reader)
	for _, name := range []string{"headgate.requests", "headgate.decisions"} {
		for _, p := range found[name].Data.(metricdata.Sum[int64]).DataPoints {
			result, _ := p.Attributes.Value("headgate.result")
			switch result.AsString() {
			case "refused":
				// Both requests are counted, and only the sampled one is an exemplar.
				if p.Value != 2 || len(p.Exemplars) != 1 ||
					!bytes.Equal(p.Exemplars[0].TraceID, traceID(span)) || p.Exemplars[0].Value != 1 {
					t.Errorf("%s: %d refused, exemplars %+v", name, p.Value, p.Exemplars)
				}
			case "allowed", "shadow_refused":
				if p.Value != 2 || len(p.Exemplars) != 0 {
					t.Errorf("%s: %d %s, exemplars %+v", name, p.Value, result.AsString(), p.Exemplars)
				}
			}
		}
	}
}

func traceID(s trace.SpanContext) []byte {
	id := s.TraceID()
	return id[:]
}

// Each reader has all that was counted, whoever collects first, and so has the last export.
func TestReadersAgree(t *testing.T) {
	first, second := metric.NewManualReader(), metric.NewManualReader()
	var exported []metricdata.ResourceMetrics

	// The periodic reader never comes to its time: it exports at the end.
	last := metric.NewPeriodicReader(exporter{&exported}, metric.WithInterval(time.Hour))
	provider := metric.NewMeterProvider(metric.WithReader(first), metric.WithReader(second), metric.WithReader(last))

	m, err := otel.New(otel.Options{MeterProvider: provider})
	if err != nil {
		t.Fatal(err)
	}
	allowed := func(r metric.Reader) string {
		for _, line := range lines(t, collect(t, r)) {
			if strings.HasPrefix(line, `headgate.requests{headgate.result="allowed"} `) {
				return line[strings.LastIndex(line, " ")+1:]
			}
		}
		return ""
	}

	// Each reader sees the first request, though the other has read it before.
	m.Observe(t.Context(), request(events.Allowed, "a"))
	got := []string{allowed(first), allowed(second)}
	m.Observe(t.Context(), request(events.Allowed, "a"))

	got = append(got, allowed(second), allowed(first))

	// The third request is only in the export at shutdown.
	m.Observe(t.Context(), request(events.Allowed, "a"))
	if err := provider.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"1", "1", "2", "2"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if len(exported) != 1 || sum(exported[0], "headgate.requests") != 3 {
		t.Errorf("the last export: %+v", exported)
	}
}

// exporter keeps what is exported.
type exporter struct{ all *[]metricdata.ResourceMetrics }

func (exporter) Temporality(k metric.InstrumentKind) metricdata.Temporality {
	return metric.DefaultTemporalitySelector(k)
}

func (exporter) Aggregation(k metric.InstrumentKind) metric.Aggregation {
	return metric.DefaultAggregationSelector(k)
}

func (e exporter) Export(_ context.Context, rm *metricdata.ResourceMetrics) error {
	*e.all = append(*e.all, *rm)
	return nil
}

func (exporter) ForceFlush(context.Context) error { return nil }
func (exporter) Shutdown(context.Context) error   { return nil }

func sum(rm metricdata.ResourceMetrics, name string) (n int64) {
	for _, scope := range rm.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name == name {
				for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
					n += p.Value
				}
			}
		}
	}
	return n
}

// Rules are never forgotten, as the SDK does not either, and their number is bounded.
func TestRulesBeyondTheMaximumAreCountedTogether(t *testing.T) {
	m, reader := provided(t, otel.Options{MaxRules: 2})

	// A thousand rules, of which two are told apart.
	for i := range 1000 {
		m.Observe(t.Context(), request(events.Degraded, fmt.Sprint("r", i)))
	}

	var got []string
	for _, line := range lines(t, collect(t, reader)) {
		if strings.Contains(line, "degraded") {
			got = append(got, line)
		}
	}

	slices.Sort(got)
	want := []string{`headgate.decisions{headgate.result="degraded",headgate.rule="_other"} 998`,
		`headgate.decisions{headgate.result="degraded",headgate.rule="r0"} 1`,
		`headgate.decisions{headgate.result="degraded",headgate.rule="r1"} 1`,
		`headgate.requests{headgate.result="degraded"} 1000`}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestMistakesAndClose(t *testing.T) {
	if m, err := otel.New(otel.Options{MaxRules: -1}); err == nil ||
		err.Error() != "otel: MaxRules is -1; want 0 to 1000000" || m != nil {
		t.Errorf("%v", err)
	}

	m, reader := provided(t, otel.Options{})

	// A closed Metrics counts nothing, and neither does it fail.
	if err := m.Close(); err != nil {
		t.Error(err)
	}

	m.Observe(t.Context(), request(events.Allowed, "a"))
	if got := lines(t, collect(t, reader)); len(got) != 0 {
		t.Errorf("%q", got)
	}

	if m, err := otel.New(otel.Options{}); err != nil || m.Close() != nil { // the global provider
		t.Error(err)
	}
}

// Requests whose span is not sampled cost no allocation.
func TestObserveAllocatesNothing(t *testing.T) {
	m, _ := provided(t, otel.Options{})
	unsampled, _, _ := in(t, sdktrace.NeverSample())
	for _, e := range []*events.Request{request(events.Allowed, "a", "b"), request(events.Refused, "a", "b")} {
		for _, ctx := range []context.Context{t.Context(), unsampled} {
			if n := testing.AllocsPerRun(1000, func() { m.Observe(ctx, e) }); n != 0 {
				t.Errorf("%s: %v allocations", e.Verdict, n)
			}
		}
	}
}

// Plain requests cost no allocation, unless their span is sampled.
func TestLimiterAllocatesNothing(t *testing.T) {
	m, _ := provided(t, otel.Options{})
	c := limiter.Config{Rules: []limiter.Rule{{Name: "a", Limit: core.MustParseLimit("1000000/1h")}}}
	m.Install(&c)
	l := limiter.MustNew(c)
	defer l.Close()
	unsampled, _, _ := in(t, sdktrace.NeverSample())
	for _, ctx := range []context.Context{t.Context(), unsampled} {
		if n := testing.AllocsPerRun(1000, func() { _, _ = l.Allow(ctx, "k", 1) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
}

// The span of a request says the same whether it is plain or observed.
func TestSpanOfAPlainRequest(t *testing.T) {
	m, _ := provided(t, otel.Options{})
	for _, observe := range []bool{false, true} {
		c := limiter.Config{Rules: []limiter.Rule{{Name: "a", Limit: core.MustParseLimit("10/1h fixed-window")}}}
		m.Install(&c)

		// An observer that is a function only gets the events, and not the plain counts.
		if observe {
			c.Observer = events.Func(c.Observer.Observe)
		}

		l := limiter.MustNew(c)
		ctx, end, _ := in(t, sdktrace.AlwaysSample())
		if _, err := l.Allow(ctx, "k", 1); err != nil {
			t.Fatal(err)
		}
		l.Close()

		if got, want := end(), map[string]string{"headgate.result": "allowed",
			"headgate.remaining": "9"}; !maps.Equal(got, want) {
			t.Errorf("observed %t: %q, want %q", observe, got, want)
		}
	}
}

// BenchmarkObserve is what a request costs in the observer alone.
func BenchmarkObserve(b *testing.B) {
	m, _ := provided(b, otel.Options{})
	sampled, _, _ := in(b, sdktrace.AlwaysSample())
	unsampled, _, _ := in(b, sdktrace.NeverSample())

	for _, row := range []struct {
		name string
		ctx  context.Context
		v    events.Verdict
	}{
		{"no span", context.Background(), events.Allowed},
		{"not sampled", unsampled, events.Allowed},
		{"sampled", sampled, events.Allowed},
		{"sampled, refused", sampled, events.Refused},
	} {
		e := request(row.v, "visitors")
		if row.v.Passes() {
			e.Rules[0].Charged = 1
		}

		b.Run(row.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m.Observe(row.ctx, e)
			}
		})
	}
}
