package fiberv3mw_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/internal/test"
)

// The goroutine that cleans fasthttp's pool of workers ends ten seconds after its server.
// The goroutine that updates the date of answers never ends.
func TestMain(m *testing.M) {
	test.Exit(m.Run(),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"))
}
