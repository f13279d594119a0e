// Package findings has the codes of the likely mistakes that a limiter, a store or an adapter
// finds in its set-up.
//
//	for _, found := range l.Status().Findings {
//		if found.Code == findings.NoKey {
//			fmt.Println(found.Rule, "has no key")
//		}
//	}
//
// A [core.Finding] has a code, and a [Found] also says when it was logged. Codes do not change.
// docs/findings.md explains each, and [Page] has its address there.
package findings

import (
	"strings"
	"time"

	"github.com/headgate/headgate/core"
)

const (
	// Unanswered: a server did not answer Diagnose of an events.Report, so that its diagnosis is
	// incomplete and no mistake. It is never reported to the user.
	Unanswered = "HG000"

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

	// DeadlineIgnored: a Redis client without ContextTimeoutEnabled.
	DeadlineIgnored = "HG006"

	// Eviction: a Redis server may evict keys.
	Eviction = "HG007"

	// Permission: a Redis user may not do what the store needs.
	Permission = "HG008"

	// NoPrefix: a store in Redis was given no prefix, the name of its service.
	NoPrefix = "HG012"

	// OtherLimit: two limits are applied to the same counts.
	OtherLimit = "HG013"

	// BanList: a Redis user may not do what lists of bans need. Bans hold without it.
	BanList = "HG014"

	// TooFar: a server is too far for the time of a call.
	TooFar = "HG016"

	// EndsEarly: a lease ended with the answer of an http.TimeoutHandler, while the handler in
	// it may go on.
	EndsEarly = "HG020"

	// CostUnread: a request or its answer did not say what it costs in a form that can be read,
	// so its estimate is charged.
	CostUnread = "HG023"

	// SharedDefault: two limiters in use over one store have a rule without a name, and
	// no Name, so their rules share the name "default" and its counts.
	SharedDefault = "HG021"
)

// Page returns the address of the page that explains a code, or "" for what is no code of this
// module.
func Page(code string) string {
	digits, ok := strings.CutPrefix(code, "HG")
	if !ok || len(digits) != 3 || strings.Trim(digits, "0123456789") != "" {
		return ""
	}
	return "https://github.com/headgate/headgate/blob/main/docs/findings.md#hg" + digits
}

// Found is a finding and when it was logged.
type Found struct {
	core.Finding
	At time.Time
}
