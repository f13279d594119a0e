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

// part is what one of n instances may grant of a limit by itself.
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
	part := l.Part(int64(n))
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
