// Package prom has limiters counted by Prometheus.
//
//	config := limiter.Config{Rules: []limiter.Rule{
//		{Name: "visitors", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("100/1m")},
//	}}
//	prom.MustNew(prom.Options{}).Install(&config)
//	l := limiter.MustNew(config)
//	defer l.Close()
//
//	http.Handle("/metrics", promhttp.Handler())
//	log.Fatal(http.ListenAndServe("127.0.0.1:8080", nethttp.New(l)(http.DefaultServeMux)))
//
// One [Metrics] serves all limiters of a program. [Options] have the registry, which is the default
// one unless it is set. docs/metrics.md lists the metrics. No key of a client is in any of them.
// Their labels are names of rules, of which there are at most Options.MaxRules, and fixed words.
package prom

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/internal/meter"
)

// Options are the options of Metrics. The zero value is ready for use.
type Options struct {
	// Registerer is where the metrics are registered. nil means
	// prometheus.DefaultRegisterer. One that adds labels to all metrics is made by
	// prometheus.WrapRegistererWith.
	Registerer prometheus.Registerer

	// MaxRules is the maximum number of rules that are counted apart at a time. Further ones
	// are counted together as the rule "_other". The series of a rule that is no longer in
	// force are deleted after 15 minutes. 0 means 200.
	MaxRules int

	// Exemplar, unless nil, returns the labels of an exemplar for a request that does not
	// pass, such as the trace_id of the span in its context, or nil for none. Only requests
	// that do not pass are slowed by it. Labels that are no valid exemplar are ignored.
	Exemplar func(ctx context.Context) prometheus.Labels
}

// Metrics are the metrics of the limiters in whose configs they are installed. They are safe
// for concurrent use.
type Metrics struct {
	meter      *meter.Meter
	exemplar   func(ctx context.Context) prometheus.Labels
	refused    func(ctx context.Context, c *meter.Cell) // or nil
	descs      map[*meter.Instrument]*prometheus.Desc
	histograms map[*meter.Instrument]*prometheus.HistogramVec
}

var (
	_ events.Counter       = (*Metrics)(nil)
	_ prometheus.Collector = (*Metrics)(nil)
)

// New returns metrics, and registers them. All limiters of a program share them. An error
// names every mistake in the options, or why the metrics cannot be registered.
func New(o Options) (*Metrics, error) {
	m := &Metrics{
		exemplar:   o.Exemplar,
		descs:      map[*meter.Instrument]*prometheus.Desc{},
		histograms: map[*meter.Instrument]*prometheus.HistogramVec{},
	}
	if o.Exemplar != nil {
		m.refused = m.addWithExemplar
	}

	// Histograms are kept by the client library. Everything else is read from the meter, and needs
	// no more than its description.
	for _, i := range meter.Instruments {
		if i.Kind == meter.Histogram {
			opts := prometheus.HistogramOpts{Name: i.Prometheus(), Help: i.Help, Buckets: i.Buckets}
			m.histograms[i] = prometheus.NewHistogramVec(opts, i.Labels())
		} else {
			m.descs[i] = prometheus.NewDesc(i.Prometheus(), i.Help, i.Labels(), nil)
		}
	}

	var err error
	if m.meter, err = meter.New(meter.Options{MaxRules: o.MaxRules, Record: m.record, Forget: m.forget}); err != nil {
		return nil, fmt.Errorf("prom: %w", err)
	}

	if o.Registerer == nil {
		o.Registerer = prometheus.DefaultRegisterer
	}

	// It fails for a second Metrics, as the series of both would have the same names.
	if err := o.Registerer.Register(m); err != nil {
		if errors.As(err, &prometheus.AlreadyRegisteredError{}) {
			err = errors.New("the registerer has metrics of headgate already; " +
				"install one Metrics in the config of every limiter")
		}
		return nil, fmt.Errorf("prom: %w", err)
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

// Install has the limiters of the config counted. The Observer and the Hooks that the config
// names are called too. One Metrics may be installed in any number of configs, once in each.
func (m *Metrics) Install(c *limiter.Config) { m.meter.Install(c, m) }

// Observe implements [events.Observer]. Install adds it to the config.
func (m *Metrics) Observe(ctx context.Context, r *events.Request) { m.meter.Observe(ctx, r, m.refused) }

// CountRequest implements [events.Counter].
func (m *Metrics) CountRequest(ctx context.Context, r events.Plain) {
	m.meter.CountRequest(ctx, r.Verdict, m.refused)
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
	r.rule.Count(ctx, v, r.metrics.refused)
}

// addWithExemplar counts a request that does not pass, and keeps it as the exemplar.
func (m *Metrics) addWithExemplar(ctx context.Context, c *meter.Cell) {
	c.Add(1)
	if labels := m.exemplar(ctx); labels != nil {
		c.Attached.Store(prometheus.Exemplar{Value: 1, Labels: labels, Timestamp: time.Now()})
	}
}

// record is the Record of the meter.
func (m *Metrics) record(_ context.Context, i *meter.Instrument, values [2]string, v float64) {
	m.histograms[i].WithLabelValues(values[:len(i.Attributes)]...).Observe(v)
}

// forget is the Forget of the meter: it deletes the histograms of a rule.
func (m *Metrics) forget(rule string) {
	for i, h := range m.histograms {
		if len(i.Attributes) > 0 && i.Attributes[0] == meter.Rule {
			h.DeletePartialMatch(prometheus.Labels{meter.Label(meter.Rule): rule})
		}
	}
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, i := range meter.Instruments {
		if h := m.histograms[i]; h != nil {
			h.Describe(out)
		} else {
			out <- m.descs[i]
		}
	}
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	m.meter.Cells(func(c *meter.Cell) {
		if n := c.Value(); n > 0 || c.ShowsZero() {
			out <- withExemplar(c, prometheus.MustNewConstMetric(
				m.descs[c.Instrument], prometheus.CounterValue, float64(n), c.Values...))
		}
	})
	m.meter.Gauges(func(i *meter.Instrument, v float64, values ...string) {
		out <- prometheus.MustNewConstMetric(m.descs[i], prometheus.GaugeValue, v, values...)
	})
	for _, h := range m.histograms {
		h.Collect(out)
	}
}

// withExemplar returns the metric with the exemplar of the cell, if there is a valid one.
func withExemplar(c *meter.Cell, metric prometheus.Metric) prometheus.Metric {
	if e, ok := c.Attached.Load().(prometheus.Exemplar); ok {
		if with, err := prometheus.NewMetricWithExemplars(metric, e); err == nil {
			return with
		}
	}
	return metric
}
