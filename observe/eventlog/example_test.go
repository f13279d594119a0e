package eventlog_test

import (
	"context"
	"log"
	"log/slog"
	"net/http"
	"os"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/observe/eventlog"
)

// The log has the first refusal at once, and later only numbers.
func Example() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: withoutTimes}))
	refusals := eventlog.MustNew(eventlog.Options{Logger: logger})

	l := limiter.MustNew(limiter.Config{Observer: refusals, Rules: []limiter.Rule{
		{Name: "visitors", Limit: core.MustParseLimit("1/1h fixed-window")},
	}})

	// One passes. The first refusal has its line at once, and the other three are a number later.
	for range 5 {
		_, _ = l.Take(context.Background(), "ann", 1)
	}
	l.Close()

	refusals.Close()
	// Output:
	// level=INFO msg="headgate: a request did not pass" result=refused rule=visitors limit="1/1h fixed-window" cost=1
	// level=INFO msg="headgate: a request did not pass" result=refused rule=visitors times=3 within=1m0s
}

// withoutTimes leaves out what differs from run to run.
func withoutTimes(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey || a.Key == "retry_after" {
		return slog.Attr{}
	}
	return a
}

// Refusals are logged to slog.Default.
func ExampleNew() {
	refusals, err := eventlog.New(eventlog.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer refusals.Close()
	l := limiter.MustNew(limiter.Config{Observer: refusals, Rules: []limiter.Rule{
		{Name: "visitors", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("100/1m")},
	}})
	defer l.Close()

	http.Handle("/", nethttp.New(l)(http.NotFoundHandler()))
}
