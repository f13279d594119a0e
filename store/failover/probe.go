package failover

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
)

// probeRule is the rule under which probes peek. Nothing is ever counted there.
const probeRule = "failover.probe"

// probeOf is a question about the first key of a step: where several servers
// share the keys, it goes to the one that failed.
func probeOf(ops []core.Op) core.Op {
	return core.Op{
		Verb: core.Peek, Rule: probeRule, Key: strings.Clone(ops[0].Key), Cost: 1,
		Limit: core.Limit{Quota: 1, Period: time.Second},
	}
}

// pause is how long to wait before the next probe.
func (s *Store) pause() time.Duration {
	half := s.interval / 2
	return s.interval - half + time.Duration(s.jitter()*float64(half))
}

// backgroundStep is what has to be done from time to time while the breaker is open or
// something waits for the primary. It reports whether there is more to do.
func (s *Store) backgroundStep(ctx context.Context) (more bool) {
	if s.State() == Open {
		if !s.ping(ctx) {
			s.confirmed = 0
			return true
		}
		if s.confirmed++; s.confirmed < confirmations {
			return true
		}
		s.confirmed = 0
		s.close()
	}
	s.settleUp(ctx)
	return s.State() == Open || s.waiting.len() > 0
}

// ping asks the primary whether it is back.
func (s *Store) ping(ctx context.Context) bool {
	s.breaker.changing.Lock()
	op := s.breaker.probe
	s.breaker.changing.Unlock()
	s.probes.Add(1)
	ctx, cancel := context.WithTimeout(ctx, s.slow)
	defer cancel()
	start := time.Now()
	err := s.call(ctx, op)
	return err == nil && time.Since(start) <= s.slow
}

// call asks the primary outside of any request.
func (s *Store) call(ctx context.Context, op core.Op) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("failover: the primary panicked: %v", v)
		}
	}()
	return s.primary.Apply(ctx, []core.Op{op}, make([]core.Decision, 1))
}

// blames reports whether an error of the primary is the primary's.
func blames(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !errors.Is(err, core.ErrOp)
}
