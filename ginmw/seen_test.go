package ginmw_test

import (
	"testing"

	"github.com/headgate/headgate/ginmw"
	"github.com/headgate/headgate/nethttp"
)

func TestALimiterAroundTheEngineAndInItCountsOnce(t *testing.T) {
	l := limited(t, "5/1m fixed-window")
	get(nethttp.New(l)(engine(hello, ginmw.New(l))), "/users/1")
	wantLeft(t, l, 4)
}
