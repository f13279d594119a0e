// This file sends bans to scripts, and decides which scripts know of them.

package redisstore

import (
	"strconv"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/lua"
)

// banText is a ban in the form for scripts.
type banText struct {
	of   core.Ban
	text any // its numbers, or "" for none
}

var noBan = &banText{text: ""}

// newBanText returns the form of a ban for scripts.
func newBanText(b *core.Ban) *banText {
	var text []byte
	for i, n := range []int64{b.Strikes, b.Within.Microseconds(), b.For.Microseconds(), b.Max.Microseconds()} {
		if i > 0 {
			text = append(text, ' ')
		}
		text = strconv.AppendInt(text, n, 10)
	}
	return &banText{of: *b, text: string(text)}
}

// head returns the letter of an algorithm and the ban, as batch.lua reads them.
func (b *banText) head(a core.Algorithm) any {
	if b == noBan {
		return a.Letter()
	}
	return a.Letter() + b.text.(string)
}

// ban returns the ban that the script is to apply to the operation, which is of the terms.
// The refusal of a Soft Take turns no request away, so it has none.
func (t *terms) ban(op *core.Op) *banText {
	if op.Ban == nil || op.Verb == core.Take && op.Soft {
		return noBan
	}
	if last := t.lastBan.Load(); last != nil && last.of == *op.Ban {
		return last
	}
	b := newBanText(op.Ban)
	t.lastBan.Store(b)
	return b
}

// banTerms is a limit and a ban in the form for scripts.
type banTerms struct {
	*terms
	ban *banText
}

// equal reports whether both have the same limit and the same ban.
func (t banTerms) equal(u banTerms) bool {
	return t.terms == u.terms && (t.ban == u.ban || t.ban != noBan && u.ban != noBan && t.ban.of == u.ban.of)
}

// meetsBan reports whether the error is that of a script which has met a key with strikes
// and does not know of them. It has written nothing. From then on the store sends the
// scripts that do. That happens where an operation without a Ban is about a key that was
// banned under one: when a rule has lost its Ban, or not all processes have it yet.
func (s *Store) meetsBan(err error) bool {
	if err == nil || !strings.Contains(err.Error(), lua.NeedsBans) {
		return false
	}
	s.struck.Store(true)
	return true
}
