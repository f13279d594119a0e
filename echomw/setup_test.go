package echomw_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/echomw"
	"github.com/headgate/headgate/limiter"
)

// setUp is a limiter of one request an hour that fails closed, and its log.
func setUp(t testing.TB, key core.KeyFunc) (*limiter.Limiter, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	return limiter.MustNew(limiter.Config{
		Rules:  []limiter.Rule{{Key: key, Limit: core.MustParseLimit("1/1h")}},
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}), &log
}

func one(core.Request) (string, bool) { return "k", true }

// respond has a server with the middleware answer a request, and returns the status.
func respond(l *limiter.Limiter, opts ...echomw.Option) int {
	e := echo.New()
	e.GET("/", func(c echo.Context) error { return c.NoContent(200) }, echomw.New(l, opts...))
	return call(e, "/").Code
}

func TestNewIgnoresOptionsWithoutAFunction(t *testing.T) {
	l, log := setUp(t, one)
	opts := []echomw.Option{nil, echomw.WithSkip(nil), echomw.WithRefused(nil), echomw.WithFailed(nil), echomw.WithDegraded(nil)}
	for _, want := range []int{200, 429} {
		log.Reset()
		if got := respond(l, opts...); got != want {
			t.Errorf("%d, want %d", got, want)
		}
		const text = `level=ERROR msg="headgate: echomw.New was called with a mistake" ` +
			`error="option 0 is nil and ignored; WithSkip was given nil and is ignored; WithRefused was given nil and is ignored; WithFailed was given nil and is ignored; WithDegraded was given nil and is ignored"` + "\n"
		if got := log.String(); !strings.HasSuffix(got, text) || strings.Count(got, "\n") != 1 {
			t.Errorf("logged %s", got)
		}
	}
}

func TestNewTellsOfALimiterThatCannotDecide(t *testing.T) {
	l, log := setUp(t, nil)
	opts := []echomw.Option{}
	if got := respond(l, opts...); got != 503 {
		t.Errorf("%d", got)
	}
	lines := strings.Split(log.String(), "\n")
	const want = `error="rule 0 \"default\": the Key function is nil, so no request can be counted"`
	if len(lines) != 3 || !strings.HasSuffix(lines[0], want) || !strings.Contains(lines[1], "code=HG009 rule=default") {
		t.Errorf("logged %s", log)
	}

	log.Reset()
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	if got := respond(nil); got != 503 {
		t.Errorf("a nil limiter: %d", got)
	}
	if got := log.String(); !strings.HasSuffix(got, `error="headgate: the limiter is nil"`+"\n") || strings.Count(got, "\n") != 1 {
		t.Errorf("a nil limiter: logged %s", got)
	}
}

func TestRequestOfNothingIsNil(t *testing.T) {
	if r := echomw.Request(nil); r != nil {
		t.Errorf("%v", r)
	}
}
