package faults

import (
	"context"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
)

// failoverTime is the recovery time promised behind Sentinels: the 500 ms after which
// they consider a master dead, and 3 s.
const failoverTime = 3500 * time.Millisecond

// openSentinel starts a master, a replica and three sentinels, and a lane for
// each mode.
func openSentinel(t testing.TB, f *fault, c clients) *scene {
	w := redistest.Sentinel(t)

	s := &scene{t: t, watched: w, server: w.Master, admin: adminOf(t, w.Master.Addr)}
	o := &redis.FailoverOptions{MasterName: redistest.MasterName, SentinelAddrs: redistest.Addrs(w.Sentinels)}
	s.past = func() redis.UniversalClient { return adminOf(t, s.namedMaster()) }

	for i := range modes {
		// The modes differ in what is over the client, and not in the client's options.
		stock := *o
		stock.ContextTimeoutEnabled = true
		if d := f.timeout(); d > 0 {
			stock.DialTimeout, stock.ReadTimeout, stock.WriteTimeout, stock.PoolTimeout = d, d, d, d
		}
		s.lanes = append(s.lanes, openLane(t, f, &modes[i], c.sentinel(t, &stock)))
	}
	return s
}

// A replaced master proves that there was a fault, even if no request came in time to
// notice it.
func sentinelFaults() []fault {
	return []fault{
		{name: "master-killed", recovery: failoverTime, inflict: killMaster},
		{name: "master-frozen", recovery: failoverTime, inflict: freezeMaster},
		{name: "master-killed-and-sentinel-hung", inflict: killMasterUnseen},
		// A sentinel that hangs is no reason to replace anything, and requests do not ask it.
		{name: "sentinel-hung", sees: nothing, inflict: func(s *scene) {
			s.watched.Sentinels[0].Freeze()
			s.hold(time.Second)
			s.watched.Sentinels[0].Thaw()
		}},
		{name: "manual-failover", recovery: failoverTime, inflict: func(s *scene) {
			c := redis.NewSentinelClient(&redis.Options{Addr: s.watched.Sentinels[1].Addr,
				DisableIdentity: true, ReadTimeout: patience})
			defer c.Close()

			// The instant from which counts may be lost is noted before the failover begins.
			s.replaceMaster()
			if err := c.Failover(context.Background(), redistest.MasterName).Err(); err != nil {
				s.t.Error(err)
			}

			s.untilMaster(s.watched.Replica)
			s.demote()
		}},
	}
}

// replaceMaster records that the replica is about to take the place of the master, and
// the instant from which counts may be lost.
func (s *scene) replaceMaster() {
	s.t.Helper()
	s.elected++
	s.forgotSince(s.inStep(s.admin, adminOf(s.t, s.watched.Replica.Addr)))
	s.lifted = time.Now()
}

func killMaster(s *scene) {
	s.replaceMaster()
	s.watched.Master.Kill()
	s.untilMaster(s.watched.Replica)
}

// killMasterUnseen kills the master while a sentinel hangs. A client that uses this
// sentinel asks no other one until it answers. It then names the old master until the
// others have informed it.
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
	s.replaceMaster()
	s.watched.Master.Freeze()
	s.untilMaster(s.watched.Replica)
	s.hold(500 * time.Millisecond)
	s.watched.Master.Thaw()
	s.demote()
}

// demote makes the old master a replica once the sentinels agree on the new one. The
// sentinels would do so later. Until then a client that does not know the new master
// uses the old one, whose counts are lost.
func (s *scene) demote() {
	s.t.Helper()
	s.untilAgreed(s.watched.Replica)
	s.hold(500 * time.Millisecond)
	host, port, _ := net.SplitHostPort(s.watched.Replica.Addr)
	if err := s.admin.ReplicaOf(context.Background(), host, port).Err(); err != nil {
		s.t.Error(err)
	}
}

// elections returns how often a replica has taken the place of a master.
func (s *scene) elections() (n int) {
	s.t.Helper()

	// Sentinels count their elections in the master's epoch; the highest one is the newest.
	if s.watched != nil {
		for _, sentinel := range s.watched.Sentinels {
			c := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr, DisableIdentity: true,
				ReadTimeout: patience})
			epoch, _ := strconv.Atoi(c.Master(context.Background(), redistest.MasterName).Val()["config-epoch"])
			n = max(n, epoch)
			c.Close()
		}
	}

	// In a Cluster each replica that is a master now was elected.
	for _, replica := range s.replicas {
		if strings.Contains(adminOf(s.t, replica.Addr).Info(context.Background(), "replication").Val(), "role:master") {
			n++
		}
	}
	return n
}

// untilAgreed waits until every sentinel names the master.
func (s *scene) untilAgreed(master *redistest.Server) {
	s.t.Helper()
	s.until("the sentinels to agree", func() bool { return s.namedMaster() == master.Addr })
}

// namedMaster waits until all sentinels name one master and returns its address. The
// client that follows sentinels ends its connections each time that a sentinel names
// another master, which may be late.
func (s *scene) namedMaster() (addr string) {
	s.t.Helper()
	s.until("the sentinels to agree", func() bool {
		addrs := map[string]bool{}

		for _, sentinel := range s.watched.Sentinels {
			c := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr, DisableIdentity: true,
				ReadTimeout: patience})
			named, _ := c.GetMasterAddrByName(context.Background(), redistest.MasterName).Result()

			c.Close()
			addr = strings.Join(named, ":")
			addrs[addr] = true
		}

		return len(addrs) == 1 && addr != ""
	})
	return addr
}

// untilMaster waits until a replica is a master.
func (s *scene) untilMaster(replica *redistest.Server) {
	s.t.Helper()
	c := adminOf(s.t, replica.Addr)
	s.until("a promotion", func() bool {
		return strings.Contains(c.Info(context.Background(), "replication").Val(), "role:master")
	})
}
