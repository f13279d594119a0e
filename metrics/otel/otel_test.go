package otel_test

import (
	"context"
	"testing"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/metrics/internal/meter"
	"github.com/headgate/headgate/metrics/internal/scenario"
	"github.com/headgate/headgate/metrics/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// collect returns the metrics of the package.
func collect(t testing.TB, r metric.Reader) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	found := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		if scope.Scope.Name != "github.com/headgate/headgate/metrics/otel" {
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
	for _, i := range meter.Instruments {
		m, known := found[i.Name]
		delete(found, i.Name)
		if !known {
			continue
		}
		if m.Unit != i.Unit || m.Description != i.Help {
			t.Errorf("%s: %q %q", i.Name, m.Unit, m.Description)
		}
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			if data.IsMonotonic != (i.Kind == meter.Counter) || i.Kind > meter.UpDown || data.Temporality != metricdata.CumulativeTemporality {
				t.Errorf("%s is a sum, monotonic %t", i.Name, data.IsMonotonic)
			}
			for _, p := range data.DataPoints {
				list = append(list, scenario.Line(i.Name, attributes(p.Attributes), float64(p.Value)))
			}
		case metricdata.Gauge[int64]:
			if i.Kind != meter.Gauge {
				t.Errorf("%s is a gauge", i.Name)
			}
			for _, p := range data.DataPoints {
				list = append(list, scenario.Line(i.Name, attributes(p.Attributes), float64(p.Value)))
			}
		case metricdata.Histogram[float64]:
			if i.Kind != meter.Histogram {
				t.Errorf("%s is a histogram", i.Name)
			}
			for _, p := range data.DataPoints {
				list = append(list, scenario.HistogramLine(i.Name, attributes(p.Attributes), p.Count, p.Sum, p.BucketCounts))
			}
		default:
			t.Errorf("%s is a %T", i.Name, m.Data)
		}
	}
	for name := range found {
		t.Errorf("%s is no instrument", name)
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
