package ginmw_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/ginmw"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

// written is a logger and what it was told.
func written() (*slog.Logger, *bytes.Buffer) {
	var b bytes.Buffer
	return slog.New(slog.NewTextHandler(&b, nil)), &b
}

func TestALimiterThatIsMetTwiceCountsOnce(t *testing.T) {
	shadow := rule(t, "5/1m fixed-window")
	shadow.OnLimit = limiter.Shadow
	lease := rule(t, "5 concurrent ttl=1m")
	for name, config := range map[string]limiter.Config{
		"default":    {Rules: []limiter.Rule{rule(t, "5/1m fixed-window")}},
		"no headers": {Rules: []limiter.Rule{rule(t, "5/1m fixed-window")}, Headers: limiter.NoHeaders},
		"shadow":     {Rules: []limiter.Rule{shadow}},
		"leases":     {Rules: []limiter.Rule{lease}},
	} {
		t.Run(name, func(t *testing.T) {
			logger, log := written()
			config.Logger = logger
			l := newLimiter(t, config)
			calls := 0
			count := func(c *gin.Context) { calls++; wantLeft(t, l, 4) }
			get(engine(count, ginmw.New(l), ginmw.New(l), ginmw.New(l)), "/users/1")
			if calls != 1 || strings.Count(log.String(), "code=HG004") != 1 {
				t.Errorf("%d calls, told\n%s", calls, log)
			}
		})
	}
}

func TestALimiterAroundTheEngineAndInItCountsOnce(t *testing.T) {
	l := limited(t, "5/1m fixed-window")
	get(nethttp.New(l)(engine(hello, ginmw.New(l))), "/users/1")
	wantLeft(t, l, 4)
}

func TestDifferentLimitersAroundOneAnotherBothCount(t *testing.T) {
	a, b, c := limited(t, "5/1m fixed-window"), limited(t, "9/1m fixed-window"), limited(t, "7/1m fixed-window")
	A, B, C := ginmw.New(a), ginmw.New(b), ginmw.New(c)
	get(engine(hello, A, B, A, C, B, C, A), "/users/1")
	wantLeft(t, a, 4)
	wantLeft(t, b, 8)
	wantLeft(t, c, 6)
}

func TestAFallbackWorksWhereverItIsMounted(t *testing.T) {
	soft := rule(t, "1/1m fixed-window")
	soft.OnLimit = limiter.Degrade
	l := newLimiter(t, limiter.Config{Rules: []limiter.Rule{soft}})
	spare := func(c *gin.Context) {
		c.Header("X-Spare", "1")
		c.String(203, "spare")
	}
	e := engine(hello, ginmw.New(l), ginmw.New(l, ginmw.WithDegraded(spare)))
	if w := get(e, "/users/1"); w.Body.String() != "hello" {
		t.Errorf("%q", w.Body)
	}
	if w := get(e, "/users/1"); w.Code != 203 || w.Body.String() != "spare" || w.Header().Get("X-Spare") != "1" {
		t.Errorf("%d %q %v", w.Code, w.Body, w.Header())
	}
}
