package faults

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// failoverTime is what is promised behind Sentinels: the 500 ms after which they
// take a master for dead, and 3 s.
const failoverTime = 3500 * time.Millisecond

// inFlight is how old the latest writes are that a replica may not have got.
const inFlight = 50 * time.Millisecond

// openSentinel starts a master, a replica and three sentinels, and a lane for
// each mode.
func openSentinel(t testing.TB, f *fault) *scene {
	w := redistest.Sentinel(t)
	s := &scene{t: t, watched: w, server: w.Master, admin: adminOf(t, w.Master.Addr)}
	o := &redis.FailoverOptions{MasterName: redistest.MasterName, SentinelAddrs: redistest.Addrs(w.Sentinels)}
	s.past = func() redis.UniversalClient {
		patient := *o
		patient.ReadTimeout = 10 * time.Second
		c := redis.NewFailoverClient(&patient)
		t.Cleanup(func() { c.Close() })
		return c
	}
	for i := range modes {
		stock := *o
		stock.ContextTimeoutEnabled = true
		s.lanes = append(s.lanes, openLane(t, &modes[i], redis.NewFailoverClient(&stock)))
	}
	return s
}

func sentinelFaults() []fault {
	return []fault{
		{name: "master-killed", sees: something, recovery: failoverTime, inflict: killMaster},
		{name: "master-frozen", sees: something, recovery: failoverTime, inflict: freezeMaster},
		{name: "master-killed-and-sentinel-hung", sees: something, inflict: killMasterUnseen},
		{name: "sentinel-hung", sees: nothing, inflict: func(s *scene) {
			s.watched.Sentinels[0].Freeze()
			s.hold(time.Second)
			s.watched.Sentinels[0].Thaw()
		}},
		{name: "manual-failover", sees: whatever, recovery: failoverTime, inflict: func(s *scene) {
			c := redis.NewSentinelClient(&redis.Options{Addr: s.watched.Sentinels[1].Addr, DisableIdentity: true})
			defer c.Close()
			s.forgotSince(time.Now().Add(-inFlight))
			s.lifted = time.Now()
			if err := c.Failover(context.Background(), redistest.MasterName).Err(); err != nil {
				s.t.Error(err)
			}
			s.untilMaster(s.watched.Replica)
		}},
	}
}

func killMaster(s *scene) {
	s.forgotSince(time.Now().Add(-inFlight))
	s.watched.Master.Kill()
	s.lifted = time.Now()
	s.untilMaster(s.watched.Replica)
}

// killMasterUnseen kills the master while a sentinel hangs. A client that had
// chosen this one asks no other until it answers, and then hears of the old
// master until the others have told it.
func killMasterUnseen(s *scene) {
	s.watched.Sentinels[0].Freeze()
	killMaster(s)
	s.hold(time.Second)
	s.watched.Sentinels[0].Thaw()
	s.untilAgreed(s.watched.Replica)
	s.lifted = time.Now()
}

// freezeMaster lets the old master come back when it has been replaced.
func freezeMaster(s *scene) {
	s.forgotSince(time.Now().Add(-inFlight))
	s.watched.Master.Freeze()
	s.lifted = time.Now()
	s.untilMaster(s.watched.Replica)
	s.hold(500 * time.Millisecond)
	s.watched.Master.Thaw()
	s.untilAgreed(s.watched.Replica)
	s.hold(500 * time.Millisecond)
}

// untilAgreed waits until every sentinel names the master. A client that has
// chosen one which does not know of it yet goes on with the old one, whose counts
// are lost.
func (s *scene) untilAgreed(master *redistest.Server) {
	s.t.Helper()
	for _, sentinel := range s.watched.Sentinels {
		c := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr, DisableIdentity: true})
		s.until("the sentinels to agree", 20*time.Second, func() bool {
			named, _ := c.GetMasterAddrByName(context.Background(), redistest.MasterName).Result()
			return strings.Join(named, ":") == master.Addr
		})
		c.Close()
	}
}

// untilMaster waits until a replica is a master.
func (s *scene) untilMaster(replica *redistest.Server) {
	s.t.Helper()
	c := adminOf(s.t, replica.Addr)
	s.until("a promotion", 20*time.Second, func() bool {
		return strings.Contains(c.Info(context.Background(), "replication").Val(), "role:master")
	})
}
