package redisstore

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/core"
)

// maxLimits is how many limits are remembered as valid. Others are checked
// each time.
const maxLimits = 4096

// numbers are those of a limit that its script needs.
type numbers struct{ period, quota, extra int64 }

// limits remembers which limits were found valid. The zero value is ready.
type limits struct {
	known sync.Map // core.Limit to *numbers
	size  atomic.Int64
}

// of returns the numbers of the operation's limit, or what is wrong with it.
func (k *limits) of(op *core.Op) (*numbers, error) {
	if n, ok := k.known.Load(op.Limit); ok {
		return n.(*numbers), nil
	}
	if err := op.Limit.Validate(); err != nil {
		return nil, fmt.Errorf("%w: rule %q: %w", core.ErrOp, op.Rule, err)
	}
	var n numbers
	n.period, n.quota, n.extra = op.Limit.Numbers()
	if k.size.Load() < maxLimits {
		if _, known := k.known.LoadOrStore(op.Limit, &n); !known {
			k.size.Add(1)
		}
	}
	return &n, nil
}
