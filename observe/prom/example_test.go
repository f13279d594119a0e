package prom_test

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/observe/prom"
)

// A program whose metrics Prometheus reads from /metrics.
func Example() {
	config := limiter.Config{Rules: []limiter.Rule{
		{Name: "visitors", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("100/1m")},
	}}
	prom.MustNew(prom.Options{}).Install(&config)
	l := limiter.MustNew(config)
	defer l.Close()

	http.Handle("/metrics", promhttp.Handler())
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", nethttp.New(l)(http.DefaultServeMux)))
}

// traceKey is where the program keeps the trace of a request.
type traceKey struct{}

// A registry of the program's own, with exemplars. With OpenTelemetry the function would ask
// trace.SpanContextFromContext(ctx).
func ExampleNew() {
	registry := prometheus.NewRegistry()
	metrics, err := prom.New(prom.Options{
		Registerer: registry,
		Exemplar: func(ctx context.Context) prometheus.Labels {
			if id, ok := ctx.Value(traceKey{}).(string); ok {
				return prometheus.Labels{"trace_id": id}
			}
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}

	config := limiter.Config{Rules: []limiter.Rule{{Name: "jobs", Limit: core.MustParseLimit("1/1h")}}}
	metrics.Install(&config)
	l := limiter.MustNew(config)
	defer l.Close()

	// The first is allowed, and the other two are refused.
	for range 3 {
		_, _ = l.Take(context.Background(), "ann", 1)
	}

	families, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}

	for _, f := range families {
		if f.GetName() != "headgate_decisions_total" {
			continue
		}
		for _, m := range f.Metric {
			fmt.Println(m.Label[0].GetValue(), m.Label[1].GetValue(), m.Counter.GetValue())
		}
	}
	// Output:
	// allowed jobs 1
	// refused jobs 2
}
