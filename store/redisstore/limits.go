package redisstore

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/lua"
)

// maxLimits is how many limits are remembered as valid. Others are checked
// each time.
const maxLimits = 4096

// terms are what scripts need of a valid limit: its numbers, as a text that is
// an argument already.
type terms struct {
	limit    core.Limit
	text     any
	shortCut bool // the script has a quick function for takes
}

// limits remembers which limits were found valid. The zero value is ready.
type limits struct {
	recent [64]atomic.Pointer[terms] // each in the place of its numbers
	known  sync.Map                  // core.Limit to *terms
	size   atomic.Int64
}

// of returns the terms of the operation's limit, or what is wrong with it.
func (k *limits) of(op *core.Op) (*terms, error) {
	l := &op.Limit
	mix := (uint64(l.Quota)*31+uint64(l.Period))*31 + uint64(l.Burst)*31 + uint64(l.Algorithm)
	recent := &k.recent[mix*0x9E3779B97F4A7C15>>58]
	if t := recent.Load(); t != nil && t.limit == *l {
		return t, nil
	}
	t, err := k.remember(op)
	if err == nil {
		recent.Store(t)
	}
	return t, err
}

func (k *limits) remember(op *core.Op) (*terms, error) {
	if t, ok := k.known.Load(op.Limit); ok {
		return t.(*terms), nil
	}
	if err := op.Limit.Validate(); err != nil {
		return nil, fmt.Errorf("%w: rule %q: %w", core.ErrOp, op.Rule, err)
	}
	period, quota, extra := op.Limit.ScriptArgs()
	t := &terms{op.Limit, fmt.Sprintf("%d %d %d", period, quota, extra), lua.ShortCut(op.Limit.Algorithm, quota)}
	if k.size.Load() >= maxLimits {
		return t, nil
	}
	kept, known := k.known.LoadOrStore(op.Limit, t)
	if !known {
		k.size.Add(1)
	}
	return kept.(*terms), nil
}
