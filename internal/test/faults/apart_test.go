package faults

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/store/redisstore"
)

// pair takes steps under two rules about one subject, whose keys share a slot.
type pair struct {
	t     testing.TB
	store *redisstore.Store
	rules [2]core.Op

	admitted, refused, down atomic.Int64
}

func (p *pair) step() {
	ops, out := p.rules, [2]core.Decision{}
	err := p.store.Apply(context.Background(), ops[:], out[:])
	switch {
	case err != nil && down(hit{err: err}):
		p.down.Add(1)
	case err != nil:
		p.t.Error(err)
	case out[0].Allowed && out[1].Allowed:
		p.admitted.Add(1)
	default:
		p.refused.Add(1)
	}
}

// again takes 100 steps a second until end is closed.
func (p *pair) again(end <-chan struct{}) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-end:
			return
		case <-tick.C:
			p.step()
		}
	}
}

// used returns the number of used units of each rule.
func (p *pair) used() [2]int64 {
	p.t.Helper()
	ops, out := p.rules, [2]core.Decision{}
	var used [2]int64

	for i := range ops {
		ops[i].Verb = core.Peek
	}

	if err := p.store.Apply(context.Background(), ops[:], out[:]); err != nil {
		p.t.Fatal(err)
	}

	for i := range ops {
		used[i] = ops[i].Limit.Capacity() - out[i].Remaining
	}
	return used
}

// refusals counts the errors of that name in the masters' statistics.
func (s *scene) refusals(name string) (n int) {
	s.t.Helper()
	for _, m := range s.masters {
		text := adminOf(s.t, m.Addr).Info(context.Background(), "errorstats").Val()
		_, after, _ := strings.Cut(text, "errorstat_"+name+":count=")
		digits, _, _ := strings.Cut(after, "\r")
		count, _ := strconv.Atoi(digits)
		n += count
	}
	return n
}

// While one key of a step has moved and the other has not, no server of a Cluster
// can decide the step, and the servers answer TRYAGAIN. The step is tried again within
// its timeout. It is decided when the keys are together, and is counted once under both
// rules or under none.
func TestStepWithKeysApart(t *testing.T) {
	t.Parallel()
	s := &scene{t: t, masters: redistest.Cluster(t, 3)}
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(s.masters), ContextTimeoutEnabled: true,
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience})
	defer c.Close()

	prefix := redistest.Prefix(t)
	p := &pair{t: t, store: redisstore.MustNew(c, redisstore.Options{Prefix: prefix, Timeout: patience})}

	// The hour never refuses here, so a step that is counted under one rule alone shows as a
	// difference between the two.
	p.rules = [2]core.Op{
		{Rule: "hour", Key: sharedKey, Limit: core.MustParseLimit("100000/24h fixed-window"), Cost: 1},
		{Rule: "day", Key: sharedKey, Limit: core.MustParseLimit("1000/24h fixed-window"), Cost: 1},
	}

	keys := []string{prefix + "{" + sharedKey + "}:hour:f", prefix + "{" + sharedKey + "}:day:f"}
	end, ended := make(chan struct{}), &sync.WaitGroup{}
	for range 4 {
		ended.Go(func() { p.again(end) })
	}

	// The slot moves only once the load runs, or the first keys would be created on the wrong side.
	s.until("a first step", func() bool { return p.admitted.Load() > 0 })
	slot := int(c.ClusterKeySlot(context.Background(), keys[0]).Val())
	home := homeOf(slot, 3)

	// Each move takes one key first, so that a step finds its keys on two servers until the rest
	// follows.
	for i, first := range []int{0, 1, 1, 0} {
		m := s.depart(slot, (home+i)%3, (home+i+1)%3)
		tries := s.refusals("TRYAGAIN")
		m.carryKeys(keys[first])
		s.until("a step whose keys are apart", func() bool { return s.refusals("TRYAGAIN") > tries })

		m.carry()
		m.arrive()
	}

	// After the moves the limit of 1000 is used up, and a few refusals more prove that nothing is
	// given back.
	s.until("a refusal", func() bool { return p.refused.Load() > 10 })
	close(end)
	ended.Wait()

	// As many units as steps, under both rules: no step was counted twice, and none by half.
	if used := p.used(); p.admitted.Load() != 1000 || used != [2]int64{1000, 1000} {
		t.Errorf("%d admitted, %v used of a limit of 1000", p.admitted.Load(), used)
	}

	t.Logf("%d admitted, %d refused, %d while the cluster was down, %d times TRYAGAIN",
		p.admitted.Load(), p.refused.Load(), p.down.Load(), s.refusals("TRYAGAIN"))
}
