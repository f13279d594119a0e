package keyfuncs

import (
	"strconv"

	"github.com/headgate/headgate/core"
)

// First is the first key that is not "", behind its place in the list, as in
// First(user, RemoteIP): "0:alice" or "1:192.0.2.1". So a user who is called
// 192.0.2.1 is not the address. If no key is left, First is "", true, unless ok
// is false for all.
//
// The two kinds of callers share one limit. For tiers with a limit each, see
// [When].
func First(keys ...core.KeyFunc) core.KeyFunc {
	keys = known(keys)
	places := make([]string, len(keys))
	for i := range places {
		places[i] = strconv.Itoa(i) + ":"
	}
	return func(r core.Request) (string, bool) {
		about := len(keys) == 0
		for i, k := range keys {
			key, ok := k(r)
			if ok && key != "" {
				return places[i] + shorten(key), true
			}
			about = about || ok
		}
		return "", about
	}
}

// When is k for the requests that meet the condition; the rule is not about the
// others. A nil condition is met by all.
//
// With [Unless] and [Known] it makes tiers, each a rule with its own limit:
//
//	{Name: "user", Key: When(Known(user), user), Limit: fiveThousandAnHour}
//	{Name: "anonymous", Key: Unless(Known(user), RemoteIP), Limit: sixtyAnHour}
//
// A condition that the caller can choose to meet or not is a way around the rule.
func When(condition func(core.Request) bool, k core.KeyFunc) core.KeyFunc {
	k = orNobody(k)
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

// Unless is k for the requests that do not meet the condition; the rule is not
// about the others. A nil condition is met by none.
func Unless(condition func(core.Request) bool, k core.KeyFunc) core.KeyFunc {
	k = orNobody(k)
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

// Known is the condition that k can tell the caller: it gives a key, and one
// that is not "".
func Known(k core.KeyFunc) func(core.Request) bool {
	k = orNobody(k)
	return func(r core.Request) bool {
		key, ok := k(r)
		return ok && key != ""
	}
}

// orNobody is k, or where k is nil a function that cannot tell the caller.
func orNobody(k core.KeyFunc) core.KeyFunc {
	if k == nil {
		return nobody
	}
	return k
}

// nobody cannot tell any caller. Unlike [Global] it is nobody's choice.
func nobody(core.Request) (string, bool) { return "", true }
