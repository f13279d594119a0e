// This file turns limits and bans into texts for scripts, once each.

package redisstore

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/lua"
)

// maxLimits is the number of limits remembered as valid. Other limits are
// checked each time.
const maxLimits = 4096

// terms is a valid limit in the form for scripts: its numbers as one text.
type terms struct {
	limit    core.Limit
	text     any
	shortCut bool // the script has a quick function for takes
	long     bool // the state may have more than maxSmall records

	windows atomic.Pointer[windowsText] // of a calendar, as they were last sent
	lastBan atomic.Pointer[banText]     // the ban that was last sent
}

// windowsText is the windows of a calendar in the form for scripts.
type windowsText struct {
	of   core.Windows
	text any
}

// boundaries returns the windows in the form for scripts.
func (t *terms) boundaries(w *core.Windows) any {
	if last := t.windows.Load(); last != nil && last.of == *w {
		return last.text
	}
	text := strings.Trim(fmt.Sprint(*w), "[]")
	t.windows.Store(&windowsText{*w, text})
	return text
}

// limits remembers valid limits. The zero value is ready for use.
type limits struct {
	recent [64]atomic.Pointer[terms] // each at the index of its numbers' hash
	known  sync.Map                  // core.Limit to *terms
	size   atomic.Int64
}

// termsOf returns the terms of the operation's limit, or an error if the limit is
// not valid.
func (l *limits) termsOf(op *core.Op) (*terms, error) {
	limit := &op.Limit
	mix := (uint64(limit.Quota)*31+uint64(limit.Period))*31 + uint64(limit.Burst)*31 + uint64(limit.Algorithm)
	recent := &l.recent[mix*0x9E3779B97F4A7C15>>58]
	if t := recent.Load(); t != nil && t.limit.Equal(limit) {
		return t, nil
	}
	t, err := l.remember(op)
	if err == nil {
		recent.Store(t)
	}
	return t, err
}

func (l *limits) remember(op *core.Op) (*terms, error) {
	if t, ok := l.known.Load(op.Limit); ok {
		return t.(*terms), nil
	}
	if err := op.Limit.Validate(); err != nil {
		return nil, fmt.Errorf("%w: rule %q: %w", core.ErrOp, op.Rule, err)
	}
	period, quota, extra := op.Limit.ScriptArgs()
	t := &terms{
		limit:    op.Limit,
		text:     fmt.Sprintf("%d %d %d", period, quota, extra),
		shortCut: lua.HasQuick(op.Limit.Algorithm, quota),
		long:     lua.Grows(op.Limit.Algorithm) && op.Limit.MaxRecords() > maxSmall,
	}
	if l.size.Load() >= maxLimits {
		return t, nil
	}
	kept, known := l.known.LoadOrStore(op.Limit, t)
	if !known {
		l.size.Add(1)
	}
	return kept.(*terms), nil
}

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
func (b banTerms) equal(other banTerms) bool {
	return b.terms == other.terms &&
		(b.ban == other.ban || b.ban != noBan && other.ban != noBan && b.ban.of == other.ban.of)
}
