// Package otel has limiters counted by OpenTelemetry.
//
//	config := limiter.Config{Rules: []limiter.Rule{
//		{Name: "visitors", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("100/1m")},
//	}}
//	otel.MustNew(otel.Options{}).Install(&config)
//	l := limiter.MustNew(config)
//	defer l.Close()
//
// One [Metrics] serves all limiters of a program. [Options] have the meter provider, which is the
// global one by default. docs/metrics.md lists the metrics. No key of a client is in any of them,
// nor on a span.
//
// The package starts no spans. It sets attributes on the span of the request, and a request that
// does not pass is offered as an exemplar.
package otel

import (
	"context"
	"errors"
	"fmt"
	"sync"

	global "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/internal/meter"
)

const scope = "github.com/headgate/headgate/observe/otel"

// Options are the options of Metrics. The zero value is ready for use.
type Options struct {
	// MeterProvider makes the instruments. nil means the global one.
	MeterProvider metric.MeterProvider

	// MaxRules is the maximum number of rules that are counted apart while the program runs.
	// Further ones are counted together as the rule "_other". 0 means 200. The SDK keeps the
	// series of a counter forever, and by default at most 2000 of each instrument.
	MaxRules int
}

// Metrics are the metrics of the limiters in whose configs they are installed. They are safe
// for concurrent use.
type Metrics struct {
	meter      *meter.Meter
	refused    func(context.Context, *meter.Cell)
	counters   map[*meter.Instrument]metric.Int64Counter
	histograms map[*meter.Instrument]metric.Float64Histogram
	gauges     map[*meter.Instrument]metric.Int64Observable
	callback   metric.Registration

	mu   sync.RWMutex
	sets map[series]metric.MeasurementOption // guarded by mu
}

// series is one of an instrument.
type series struct {
	instrument *meter.Instrument
	values     [2]string
}

var _ events.Counter = (*Metrics)(nil)

// New returns metrics of the meter provider. All limiters of a program share them. An error
// names every mistake in the options, and each instrument that cannot be made.
func New(o Options) (*Metrics, error) {
	m := &Metrics{
		counters:   map[*meter.Instrument]metric.Int64Counter{},
		histograms: map[*meter.Instrument]metric.Float64Histogram{},
		gauges:     map[*meter.Instrument]metric.Int64Observable{},
		sets:       map[series]metric.MeasurementOption{},
	}
	m.refused = m.addAtOnce
	if o.MeterProvider == nil {
		o.MeterProvider = global.GetMeterProvider()
	}

	var errs []error
	var err error
	if m.meter, err = meter.New(meter.Options{MaxRules: o.MaxRules, Record: m.record}); err != nil {
		errs = append(errs, err)
	}

	from := o.MeterProvider.Meter(scope)
	for _, i := range meter.Instruments {
		errs = append(errs, m.newInstrument(from, i))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("otel: %w", err)
	}

	observed := make([]metric.Observable, 0, len(m.gauges))
	for _, g := range m.gauges {
		observed = append(observed, g)
	}

	// The SDK calls collect when it reads the metrics. Until then requests count in cells.
	if m.callback, err = from.RegisterCallback(m.collect, observed...); err != nil {
		return nil, fmt.Errorf("otel: %w", err)
	}
	return m, nil
}

// MustNew is like [New], but panics if there is an error.
func MustNew(o Options) *Metrics {
	m, err := New(o)
	if err != nil {
		panic(err)
	}
	return m
}

// newInstrument makes an instrument of the SDK.
func (m *Metrics) newInstrument(from metric.Meter, i *meter.Instrument) (err error) {
	help, unit := metric.WithDescription(i.Help), metric.WithUnit(i.Unit)
	switch i.Kind {
	case meter.Counter:
		m.counters[i], err = from.Int64Counter(i.Name, help, unit)
	case meter.Histogram:
		buckets := metric.WithExplicitBucketBoundaries(i.Buckets...)
		m.histograms[i], err = from.Float64Histogram(i.Name, help, unit, buckets)
	case meter.UpDown:
		m.gauges[i], err = from.Int64ObservableUpDownCounter(i.Name, help, unit)
	case meter.Gauge:
		m.gauges[i], err = from.Int64ObservableGauge(i.Name, help, unit)
	}
	return err
}

// Install has the limiters of the config counted. The Observer and the Hooks that the config
// names are called too. One Metrics may be installed in any number of configs, once in each.
func (m *Metrics) Install(c *limiter.Config) { m.meter.Install(c, m) }

// Close ends the metrics: what has not been collected yet is not any more. It is needed only
// if the meter provider outlives the limiters.
func (m *Metrics) Close() error { return m.callback.Unregister() }

// Observe implements [events.Observer]. Install adds it to the config.
func (m *Metrics) Observe(ctx context.Context, r *events.Request) {
	var refused func(context.Context, *meter.Cell)
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		refused = m.refused
		describe(span, r)
	}
	m.meter.Observe(ctx, r, refused)
}

// CountRequest implements [events.Counter].
func (m *Metrics) CountRequest(ctx context.Context, r events.Plain) {
	var refused func(context.Context, *meter.Cell)
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		refused = m.refused
		span.SetAttributes(attribute.String(meter.Result, r.Verdict.String()), remainingAttribute(r.Remaining))
		if r.Rule != "" {
			span.SetAttributes(attribute.String(meter.Rule, r.Rule))
		}
	}
	m.meter.CountRequest(ctx, r.Verdict, refused)
}

// RuleCounter implements [events.Counter].
func (m *Metrics) RuleCounter(rule string) events.RuleCounter {
	return &ruleCounter{m, m.meter.RuleCounter(rule)}
}

// ruleCounter counts the decisions of a rule on plain requests.
type ruleCounter struct {
	metrics *Metrics
	rule    *meter.RuleCounter
}

// Count implements [events.RuleCounter].
func (r *ruleCounter) Count(ctx context.Context, v events.Verdict) {
	var refused func(context.Context, *meter.Cell)
	if !v.Passes() && trace.SpanFromContext(ctx).IsRecording() {
		refused = r.metrics.refused
	}
	r.rule.Count(ctx, v, refused)
}

// remainingAttribute returns the attribute of a span for the units that remain.
func remainingAttribute(n int64) attribute.KeyValue { return attribute.Int64("headgate.remaining", n) }

// describe sets the attributes of the request on its span.
func describe(span trace.Span, r *events.Request) {
	list := make([]attribute.KeyValue, 0, 4)
	list = append(list, attribute.String(meter.Result, r.Verdict.String()))
	if r.Verdict == events.FailedOpen {
		list = append(list, attribute.Bool("headgate.fail_open", true))
	}

	remaining, known := int64(0), false
	for i := range r.Rules {
		d := &r.Rules[i]

		// The span has the first rule that turned the request away, as CountRequest has it.
		if d.Verdict == r.Verdict && !r.Verdict.Passes() && len(list) == 1 {
			list = append(list, attribute.String(meter.Rule, d.Name))
		}

		// A rule that denied the request has asked no store, so nothing is known to remain.
		if d.Err == nil && d.Verdict != events.Denied && (!known || d.Decision.Remaining < remaining) {
			remaining, known = d.Decision.Remaining, true
		}
	}

	if known {
		list = append(list, remainingAttribute(remaining))
	}
	span.SetAttributes(list...)
}

// addAtOnce counts one at once, so that the SDK sees the context of the request.
func (m *Metrics) addAtOnce(ctx context.Context, c *meter.Cell) {
	m.counters[c.Instrument].Add(ctx, 1, m.attributesOf(c.Instrument, values(c.Values)))
}

// record is the Record of the meter.
func (m *Metrics) record(ctx context.Context, i *meter.Instrument, values [2]string, v float64) {
	m.histograms[i].Record(ctx, v, m.attributesOf(i, values))
}

// values returns the values of a cell, of which it has at most two, as a key of a map.
func values(list []string) (v [2]string) {
	copy(v[:], list)
	return v
}

// attributesOf returns the attributes of a series. An attribute without a value is absent.
func (m *Metrics) attributesOf(i *meter.Instrument, values [2]string) metric.MeasurementOption {
	key := series{i, values}
	m.mu.RLock()
	set, known := m.sets[key]
	m.mu.RUnlock()
	if known {
		return set
	}

	// Two requests may make the same set at once. The last one stays, which does no harm.
	var list []attribute.KeyValue
	for n, name := range i.Attributes {
		if values[n] != "" {
			list = append(list, attribute.String(name, values[n]))
		}
	}
	set = metric.WithAttributeSet(attribute.NewSet(list...))

	m.mu.Lock()
	m.sets[key] = set
	m.mu.Unlock()
	return set
}

// collect is called by the SDK before it reads the counters. It adds what was counted since.
func (m *Metrics) collect(ctx context.Context, o metric.Observer) error {
	m.meter.Cells(func(c *meter.Cell) {
		n := c.Take()
		if n > 0 || c.ShowsZero() {
			m.counters[c.Instrument].Add(ctx, int64(n), m.attributesOf(c.Instrument, values(c.Values)))
		}
	})
	m.meter.Gauges(func(i *meter.Instrument, v float64, list ...string) {
		o.ObserveInt64(m.gauges[i], int64(v), m.attributesOf(i, values(list)))
	})
	return nil
}
