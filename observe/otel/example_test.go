package otel_test

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/observe/otel"
)

// A program that has set the global meter provider.
func Example() {
	config := limiter.Config{Rules: []limiter.Rule{
		{Name: "visitors", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("100/1m")},
	}}
	otel.MustNew(otel.Options{}).Install(&config)
	l := limiter.MustNew(config)
	defer l.Close()

	log.Fatal(http.ListenAndServe("127.0.0.1:8080", nethttp.New(l)(http.DefaultServeMux)))
}

// A program reads its metrics by itself.
func ExampleNew() {
	reader := metric.NewManualReader()
	metrics, err := otel.New(otel.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
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

	var read metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &read); err != nil {
		log.Fatal(err)
	}
	for _, m := range read.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "headgate.decisions" {
			for _, point := range sum.DataPoints {
				fmt.Println(point.Attributes.Encoded(attribute.DefaultEncoder()), point.Value)
			}
		}
	}
	// Unordered output:
	// headgate.result=allowed,headgate.rule=jobs 1
	// headgate.result=refused,headgate.rule=jobs 2
}
