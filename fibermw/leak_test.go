package fibermw_test

import (
	"testing"

	"go.uber.org/goleak"
)

// The janitor of fasthttp's workers ends ten seconds after its server, and what
// keeps the date of its answers never does.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"))
}
