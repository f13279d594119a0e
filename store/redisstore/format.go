// This file is about the format of states; docs/upgrades.md describes it.

package redisstore

import (
	"errors"
	"fmt"

	"github.com/headgate/headgate/lua"
)

// ErrFormat means that a newer version of this package wrote the value of a key, in a format
// that this version does not read. The value stays as it is, with its time to live. The error
// names the rule and both formats.
var ErrFormat = errors.New("state of a later format")

// aboutKey reports whether the error is about the value of a key, and says nothing about the
// server.
func aboutKey(err error) bool { return errors.Is(err, ErrUnreadable) || errors.Is(err, ErrFormat) }

// formatError returns the error of a state of the format.
func formatError(n int64) error {
	return fmt.Errorf("%w: it is of format %d, and this version reads up to format %d", ErrFormat, n, lua.Format)
}

// laterMark is the first byte of a state of a later format. The number of the format follows
// in another; see lua/prelude.lua.
const laterMark = 254

// laterFormat returns the error of a state that is of a later format, or nil.
func laterFormat(state string) error {
	if len(state) < 2 || state[0] != laterMark || state[1] <= lua.Format {
		return nil
	}
	return formatError(int64(state[1]))
}
