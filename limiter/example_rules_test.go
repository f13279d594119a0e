package limiter_test

import (
	"fmt"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/memstore"
)

// All rules are charged, or none is.
func ExampleNew() {
	l, err := limiter.New(limiter.Config{
		Store: memstore.MustNew(memstore.Options{}),
		Rules: []limiter.Rule{
			{Name: "burst", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("10/1s")},
			{Name: "daily", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("5000/24h fixed-window")},
		},
	})
	fmt.Println(l != nil, err)
	// Output: true <nil>
}

// The error of New names every mistake by rule.
func ExampleNew_mistakes() {
	_, err := limiter.New(limiter.Config{
		Store: memstore.MustNew(memstore.Options{}),
		Rules: []limiter.Rule{
			{Name: "Burst", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("10/1s")},
			{Name: "daily", Key: keyfuncs.RemoteIP, Limit: core.Limit{Quota: 5000}},
		},
	})
	fmt.Println(err)
	// Output:
	// rule 0 "Burst": the name is not 1 to 64 of a-z, 0-9, _, . and -, a letter first
	// rule 1 "daily": period 0s is below 1ms
}
