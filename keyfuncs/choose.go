// This file chooses between key functions.

package keyfuncs

import (
	"strconv"

	"github.com/headgate/headgate/core"
)

// First returns the first key that is not "", prefixed with its place in the
// list. First(user, RemoteIP) returns "0:alice" or "1:192.0.2.1", so a user
// named 192.0.2.1 does not share the key of the address. If no key is left,
// First returns "", true, or "", false if ok is false for all.
//
// The two kinds of callers share one limit. For tiers with a limit each, see
// [When].
func First(keys ...core.KeyFunc) core.KeyFunc {
	keys = withoutNil(keys)

	// The prefixes are made once, and not for each request.
	places := make([]string, len(keys))
	for i := range places {
		places[i] = strconv.Itoa(i) + ":"
	}

	return func(r core.Request) (string, bool) {
		// An empty list applies to each request, as a list of nil functions does.
		applies := len(keys) == 0
		for i, k := range keys {
			key, ok := k(r)
			if ok && key != "" {
				return places[i] + shorten(key), true
			}
			applies = applies || ok
		}
		return "", applies
	}
}

// When returns k for requests that meet the condition; the rule does not apply
// to the others. A nil condition is always met.
//
// With [Unless] and [Known] it makes tiers, each a rule with its own limit:
//
//	{Name: "user", Key: When(Known(user), user), Limit: fiveThousandAnHour}
//	{Name: "anonymous", Key: Unless(Known(user), RemoteIP), Limit: sixtyAnHour}
//
// A condition that the caller can choose to meet or not is a way around the
// rule.
func When(condition func(core.Request) bool, k core.KeyFunc) core.KeyFunc {
	k = orUnknown(k)
	if condition == nil {
		return k
	}
	return func(r core.Request) (string, bool) {
		if !condition(r) {
			return "", false
		}
		return k(r)
	}
}

// Unless returns k for requests that do not meet the condition; the rule does
// not apply to the others. A nil condition is never met.
func Unless(condition func(core.Request) bool, k core.KeyFunc) core.KeyFunc {
	k = orUnknown(k)
	if condition == nil {
		return k
	}
	return func(r core.Request) (string, bool) {
		if condition(r) {
			return "", false
		}
		return k(r)
	}
}

// Known returns the condition that k identifies the caller, that is, returns a
// key other than "" and true.
func Known(k core.KeyFunc) func(core.Request) bool {
	k = orUnknown(k)
	return func(r core.Request) bool {
		key, ok := k(r)
		return ok && key != ""
	}
}

// orUnknown returns k, or unknown if k is nil.
func orUnknown(k core.KeyFunc) core.KeyFunc {
	if k == nil {
		return unknown
	}
	return k
}

// unknown identifies no caller. It stands for a nil function, and [Global] for
// a deliberate choice.
func unknown(core.Request) (string, bool) { return "", true }
