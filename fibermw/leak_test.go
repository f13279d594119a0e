package fibermw_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/internal/test"
)

// The janitor of fasthttp's workers ends ten seconds after its server, and what
// keeps the date of its answers never does.
func TestMain(m *testing.M) {
	test.Exit(m.Run(),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"))
}
