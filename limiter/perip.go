package limiter

import (
	"fmt"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
)

// PerIP returns a limiter for a first use: PerIP("100/1m") admits 100 requests a minute from
// each address. It has one rule, "ip", under the limit of [core.ParseLimit] and the key
// [keyfuncs.RemoteIP], and keeps its counts in the memory of the process. Behind a proxy the
// address is that of the proxy: a log line warns of it, and [keyfuncs.ForwardedIP] is the key
// to use with [New]. PerIP panics on a text that is no limit, so the text should be a constant.
func PerIP(limit string) *Limiter {
	l, err := core.ParseLimit(limit)
	if err != nil {
		panic(fmt.Errorf("limiter: PerIP: %w", err))
	}
	return MustNew(Config{Rules: []Rule{{Name: "ip", Key: keyfuncs.RemoteIP, Limit: l}}})
}
