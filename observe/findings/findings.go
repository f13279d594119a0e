// Package findings has the codes of the likely mistakes that a limiter finds in its set-up. Those
// that a store finds are in package core. They do not change.
package findings

import (
	"time"

	"github.com/headgate/headgate/core"
)

const (
	// Unheeded: a private or loopback peer sends X-Forwarded-For or
	// Forwarded, and a rule counts by the address of that peer.
	Unheeded = "HG001"

	// GinTrustsAll: a key comes from gin.Context.ClientIP, and the engine
	// trusts every proxy.
	GinTrustsAll = "HG002"

	// OneKey: all of the first requests under a rule fell on one key, which
	// is empty or the address of the peer.
	OneKey = "HG003"

	// Twice: a request met the same limiter twice.
	Twice = "HG004"

	// TooCostly: a request cost more than its limit can ever hold.
	TooCostly = "HG005"

	// NoKey: a request met a rule without a Key function, so that every
	// request is answered with a 503.
	NoKey = "HG009"

	// NoAddress: a rule counts by the address of the peer, and a connection has
	// none, as with a Unix socket.
	NoAddress = "HG010"

	// NotForwarded: a proxy that a rule trusts sent a request without the header
	// in which the rule reads the address of the caller.
	NotForwarded = "HG011"

	// FailsOpen: the store asks a server, and requests pass uncounted under some rules
	// while it cannot decide.
	FailsOpen = "HG017"

	// SharedDefault: two limiters in use over one store have a rule without a name, and
	// no Name, so their rules share the name "default" and its counts.
	SharedDefault = "HG021"
)

// Found is a finding and when it was logged.
type Found struct {
	core.Finding
	At time.Time
}
