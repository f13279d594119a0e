package prom_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/metrics/internal/meter"
	"github.com/headgate/headgate/metrics/internal/scenario"
	"github.com/headgate/headgate/metrics/prom"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
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
	families, err := (&expfmt.TextParser{}).TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[meter.Kind]dto.MetricType{meter.Counter: dto.MetricType_COUNTER, meter.UpDown: dto.MetricType_GAUGE,
		meter.Gauge: dto.MetricType_GAUGE, meter.Histogram: dto.MetricType_HISTOGRAM}
	for _, i := range meter.Instruments {
		f := families[i.Prometheus()]
		delete(families, i.Prometheus())
		if f == nil {
			continue
		}
		if f.GetType() != kinds[i.Kind] || f.GetHelp() != i.Help {
			t.Errorf("%s: %s %q", i.Prometheus(), f.GetType(), f.GetHelp())
		}
		for _, m := range f.Metric {
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
