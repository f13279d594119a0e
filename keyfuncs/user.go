package keyfuncs

import (
	"context"

	"github.com/headgate/headgate/core"
)

// UserID counts by the authenticated user that lookup finds in the context of the
// request. The limiter has to run behind the authentication. Without a user the
// key is ""; see [First] and [When] for limits by address for such requests.
func UserID(lookup func(context.Context) (id string, ok bool)) core.KeyFunc {
	if lookup == nil {
		return unknown
	}
	return func(r core.Request) (string, bool) {
		id, ok := lookup(r.Context())
		if !ok {
			return "", true
		}
		return shorten(id), true
	}
}
