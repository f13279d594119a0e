package keyfuncs

import (
	"context"

	"github.com/headgate/headgate/core"
)

// UserID is the user whom the authentication has put into the context of the
// request, as lookup finds him there. The limiter has to run behind the
// authentication. Without a user the key is ""; see [First] and [When] for
// limits by address for those.
func UserID(lookup func(context.Context) (id string, ok bool)) core.KeyFunc {
	if lookup == nil {
		return nobody
	}
	return func(r core.Request) (string, bool) {
		id, ok := lookup(r.Context())
		if !ok {
			return "", true
		}
		return shorten(id), true
	}
}
