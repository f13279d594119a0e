package nethttp_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

// An http.HandlerFunc that is nil is an http.Handler that is not nil.
func TestWithDegradedNilHandlerFunc(t *testing.T) {
	var log bytes.Buffer
	soft := rule("1/1m fixed-window")
	soft.OnLimit = limiter.Degrade
	l := newLimiter(t, limiter.Config{Rules: []limiter.Rule{soft}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	h := nethttp.New(l, nethttp.WithDegraded(http.HandlerFunc(nil)))(http.HandlerFunc(hello))
	for _, want := range []string{"hello", "cheap"} {
		if w := get(h, "/"); w.Code != 200 || w.Body.String() != want {
			t.Errorf("%d %q, want %q", w.Code, w.Body, want)
		}
	}
	const want = `error="WithDegraded was given nil and is ignored"` + "\n"
	if got := log.String(); !strings.HasSuffix(got, want) || strings.Count(got, "\n") != 1 {
		t.Errorf("logged %s", got)
	}
}
