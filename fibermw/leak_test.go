package fibermw_test

import (
	"testing"

	"go.uber.org/goleak"
)

// The janitor of fasthttp's workers ends ten seconds after its server.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}
