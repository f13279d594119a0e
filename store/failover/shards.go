// This file knows the breaker of each shard of the primary.

package failover

import (
	"errors"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/core"
)

// maxShards is how many shards have a breaker of their own. The keys of others share
// that of the keys whose shard is not known.
const maxShards = 1024

// shards holds the breakers of the shards that were seen. The zero value is ready for
// use.
type shards struct {
	known atomic.Pointer[map[string]*breaker] // replaced as a whole

	mu     sync.Mutex // held while it is replaced
	closed bool
}

func (s *shards) list() map[string]*breaker {
	if m := s.known.Load(); m != nil {
		return *m
	}
	return nil
}

// close makes breakers that are still to come do nothing in the background, and returns
// the others.
func (s *shards) close() map[string]*breaker {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.list()
}

// breakerOf returns the breaker of the key's shard.
func (p *primary) breakerOf(key string) *breaker {
	if p.shardOf == nil {
		return p.breaker
	}

	shard := p.shardOf(key)
	if shard == "" {
		return p.breaker
	}

	if b := p.shards.list()[shard]; b != nil {
		return b
	}
	return p.addShard(shard)
}

// addShard returns the breaker of a shard that was not seen before. If there are too
// many, it forgets those that are closed, which belong to shards that are well or gone.
func (p *primary) addShard(shard string) *breaker {
	s := &p.shards
	s.mu.Lock()
	defer s.mu.Unlock()

	// Another step may have added it since this one looked.
	list := s.list()
	if b := list[shard]; b != nil {
		return b
	}

	// Readers have no lock, so the table is copied and replaced as a whole.
	next := maps.Clone(list)
	if len(next) >= maxShards {
		maps.DeleteFunc(next, func(_ string, b *breaker) bool { return p.retire(b) })
	}
	if next == nil {
		next = map[string]*breaker{}
	}
	if len(next) >= maxShards {
		return p.breaker
	}

	b := p.newBreaker(shard)
	if s.closed {
		b.end()
	}
	next[shard] = b
	s.known.Store(&next)
	return b
}

// retire reports whether the breaker may be forgotten. If so, the calls in progress no
// longer count.
func (p *primary) retire(b *breaker) bool {
	b.changing.Lock()
	defer b.changing.Unlock()
	if b.state() == Open || b.waiting.len() > 0 {
		return false
	}

	b.generation.Store(p.generations.Add(2))
	return true
}

// breakers returns all breakers.
func (p *primary) breakers() []*breaker {
	all := []*breaker{p.breaker}
	for _, b := range p.shards.list() {
		all = append(all, b)
	}
	return all
}

// opsOn returns the operations whose keys are on the breaker's shard.
func (p *primary) opsOn(b *breaker, ops []core.Op) []core.Op {
	if p.shardOf == nil {
		return ops
	}

	var on []core.Op
	for i := range ops {
		if p.breakerOf(ops[i].Key) == b {
			on = append(on, ops[i])
		}
	}
	return on
}

// route is the breaker of a step, in the generation in which the step is decided.
type route struct {
	*breaker
	generation uint64

	// others are the breakers of all shards of a step on several, and nil otherwise.
	// The first that is open is that of the step.
	others []route
}

// routeOf returns the route of a step.
func (p *primary) routeOf(ops []core.Op) route {
	if p.shardOf == nil || len(ops) == 0 {
		return routeTo(p.breaker)
	}
	return p.routeAmong(ops)
}

// routeAmong is routeOf where the primary has several shards.
func (p *primary) routeAmong(ops []core.Op) route {
	r := routeTo(p.breakerOf(ops[0].Key))
	for i := 1; i < len(ops); i++ {
		if ops[i].Key != ops[i-1].Key {
			r.join(p.breakerOf(ops[i].Key))
		}
	}
	return r
}

func routeTo(b *breaker) route { return route{breaker: b, generation: b.generation.Load()} }

// join adds a breaker to the route.
func (r *route) join(b *breaker) {
	if b == r.breaker {
		return
	}

	for i := range r.others {
		if r.others[i].breaker == b {
			return
		}
	}

	if r.others == nil {
		r.others = []route{{breaker: r.breaker, generation: r.generation}}
	}

	one := routeTo(b)
	r.others = append(r.others, one)

	// The first breaker that is open decides for the step, so that its refusal names that shard.
	if !isOpen(r.generation) && isOpen(one.generation) {
		r.breaker, r.generation = one.breaker, one.generation
	}
}

// succeed counts a step that was answered in time, and that the primary decided at the
// instant.
func (r *route) succeed(at int64) {
	if r.others == nil {
		r.breaker.succeed(r.generation, at)
		return
	}
	for i := range r.others {
		r.others[i].breaker.succeed(r.others[i].generation, at)
	}
}

// shardIn returns the shard that an error names; see [core.Sharded].
func shardIn(err error) (shard string, named bool) {
	var at interface{ Shard() string }
	if errors.As(err, &at) {
		return at.Shard(), true
	}
	return "", false
}
