package nethttp_test

import "github.com/headgate/headgate/internal/test/gatetest"

var (
	rule       = gatetest.Rule
	newLimiter = gatetest.Limiter
	limited    = gatetest.Limited
	wantLeft   = gatetest.WantLeft
)
