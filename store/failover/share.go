package failover

import (
	"maps"
	"sync/atomic"

	"github.com/headgate/headgate/core"
)

// maxShares is how many limits are remembered with their parts. Those of others
// are worked out each time.
const maxShares = 1024

// shares gives limits their parts. The zero value is ready.
type shares struct{ known atomic.Pointer[parts] }

// parts are those of one number of instances. It is replaced as a whole.
type parts struct {
	instances int
	of        map[core.Limit]core.Limit
}

// part is what one of n instances may grant of a valid limit by itself.
func (s *shares) part(l core.Limit, n int) core.Limit {
	if n <= 1 {
		return l
	}
	p := s.known.Load()
	if p != nil && p.instances == n {
		if part, ok := p.of[l]; ok {
			return part
		}
	}
	part := divide(l, int64(n))
	next := &parts{instances: n, of: map[core.Limit]core.Limit{}}
	if p != nil && p.instances == n {
		if len(p.of) >= maxShares {
			return part
		}
		next.of = maps.Clone(p.of)
	}
	next.of[l] = part
	s.known.CompareAndSwap(p, next)
	return part
}

// divide leaves whoever divides by more than there are units with one. Where
// rounding makes the refill of a bucket too slow to be valid, the bucket gets
// smaller.
func divide(l core.Limit, n int64) core.Limit {
	part := l
	part.Quota = max(1, l.Quota/n)
	if l.Burst > 0 {
		part.Burst = max(1, l.Burst/n)
	}
	if part.Validate() == nil || l.Validate() != nil {
		return part
	}
	part.Burst = min(part.Burst, 1)
	if part.Validate() == nil {
		return part
	}
	part.Quota = 1
	return part
}
