package faults

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
)

// openCluster starts three masters with a replica each, and a lane for each
// mode.
func openCluster(t testing.TB, f *fault, cs clients) *scene {
	masters, replicas := redistest.Replicated(t, 3)
	s := &scene{t: t, masters: masters, replicas: replicas}
	addrs := redistest.Addrs(append(masters[:3:3], replicas...))

	s.past = func() redis.UniversalClient {
		c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, DialTimeout: patience,
			ReadTimeout: patience, WriteTimeout: patience})
		t.Cleanup(func() { c.Close() })
		return c
	}

	for i := range modes {
		// The client reads the topology under its own timeouts.
		o := &redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true, ReadTimeout: 200 * time.Millisecond}
		if d := f.timeout(); d > 0 {
			o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = d, d, d, d
		}
		s.lanes = append(s.lanes, openLane(t, f, &modes[i], cs.cluster(t, o)))
	}

	return s
}

// A replaced master proves that there was a fault, even if no request came in time to
// notice it.
func clusterFaults() []fault {
	return []fault{
		// The reference: no fault, and every request is decided.
		{name: "none", sees: nothing, inflict: func(s *scene) { s.hold(time.Second) }},
		{name: "master-killed", inflict: func(s *scene) {
			i := s.home()
			s.replaceHome()
			s.masters[i].Kill()
			s.untilMaster(s.replicas[i])
		}},
		// The client also asks the frozen node before it uses the answer of another.
		{name: "master-frozen", recovery: 2 * time.Second, inflict: func(s *scene) {
			i := s.home()
			s.replaceHome()
			s.masters[i].Freeze()
			s.untilMaster(s.replicas[i])
			s.lifted = time.Now()
			s.hold(1500 * time.Millisecond)
			s.masters[i].Thaw()
		}},
		// The timeout is long, so that a busy machine keeps no request from the masters that
		// are there.
		{name: "master-gone", sees: something, within: time.Second, inflict: loseMaster, after: wantOthersDecided},
		{name: "manual-failover", inflict: func(s *scene) {
			i := s.home()
			s.elected++
			if err := adminOf(s.t, s.replicas[i].Addr).ClusterFailover(context.Background()).Err(); err != nil {
				s.t.Error(err)
			}
			s.untilMaster(s.replicas[i])
		}},
		// Clients follow a slot that moves by the redirections of the servers, and lose no request.
		{name: "slot-moved-to-and-fro", sees: nothing, inflict: func(s *scene) {
			slot, from := s.slot(), s.home()
			for range 6 {
				to := (from + 1) % len(s.masters)
				m := s.depart(slot, from, to)
				m.carry()
				m.arrive()
				from = to
			}
		}},
		// While the slot is on its way a key is at one master or the other, and requests are
		// redirected one by one.
		{name: "slot-half-moved", sees: nothing, inflict: func(s *scene) {
			m := s.depart(s.slot(), s.home(), (s.home()+1)%len(s.masters))
			m.carry()
			s.hold(time.Second)
			m.carry()
			m.arrive()
		}},
		// The clients do not know the node that gets the slots.
		{name: "node-added", sees: nothing, inflict: addNode},
	}
}

// replaceHome records that a replica is about to take the place of the master that has
// the slot, and the instant from which counts may be lost.
func (s *scene) replaceHome() {
	s.t.Helper()
	i := s.home()
	s.elected++
	s.forgotSince(s.inStep(adminOf(s.t, s.masters[i].Addr), adminOf(s.t, s.replicas[i].Addr)))
}

// loseMaster lets a master hang that no replica replaces.
func loseMaster(s *scene) {
	i := s.home()
	s.leaveUnreplaced(i)
	s.masters[i].Freeze()
	s.crowd(20) // so many failures at once that a breaker opens
	s.sustain(3 * time.Second)
	s.masters[i].Thaw()
	s.until("the master to serve again", func() bool {
		info := adminOf(s.t, s.masters[i].Addr).ClusterInfo(context.Background()).Val()
		return strings.Contains(info, "cluster_state:ok")
	})
}

// addNode adds a master and moves slots to it, and one of them back.
func addNode(s *scene) {
	slot, from := s.slot(), s.home()

	// The new server's waits count too, because requests are held up by it.
	joined := redistest.Join(s.t, s.masters)
	s.waits.add(joined.Pid())
	s.masters = append(s.masters, joined)

	for _, next := range []int{slot, (slot + 1) % 16384, (slot + 2) % 16384} {
		m := s.depart(next, homeOf(next, 3), 3)
		m.carry()

		// Requests come while the slot is on its way.
		s.hold(100 * time.Millisecond)
		m.carry()
		m.arrive()
	}
	s.hold(300 * time.Millisecond)

	// Moved back, the slot is no longer where the clients have just learnt that it is.
	m := s.depart(slot, 3, from)
	m.carry()
	m.arrive()
}

// leaveUnreplaced lets no replica take the place of a master, and the other masters serve
// their slots without it.
func (s *scene) leaveUnreplaced(i int) {
	s.t.Helper()
	set := func(server *redistest.Server, name, value string) {
		if err := adminOf(s.t, server.Addr).ConfigSet(context.Background(), name, value).Err(); err != nil {
			s.t.Fatal(err)
		}
	}
	set(s.replicas[i], "cluster-replica-no-failover", "yes")
	for _, server := range s.servers() {
		set(server, "cluster-require-full-coverage", "no")
	}
}

// crowd sends n requests that share a key to every lane at once, and waits for the answers.
func (s *scene) crowd(n int) {
	var all sync.WaitGroup
	for _, l := range s.lanes {
		for range n {
			all.Go(func() { l.record(l.hit("shared", sharedKey)) })
		}
	}
	all.Wait()
}

// wantOthersDecided fails if the fallback, or no store at all, has decided a request for
// a key of another master than the one that was away.
func wantOthersDecided(s *scene) {
	c, away := s.reach().(*redis.ClusterClient), s.masters[s.home()].Addr
	for _, l := range s.lanes {
		during, left := 0, 0
		for _, h := range l.seen() {
			m, err := c.MasterForKey(context.Background(), h.key)
			if err != nil {
				s.t.Fatal(err)
			}

			// Keys of the master that was away may be undecided.
			if m.Options().Addr == away {
				continue
			}

			if h.to.After(s.begun) && h.from.Before(s.lifted) {
				during++
			}
			if !h.decided {
				left++
			}
		}

		// A machine that was too busy to keep the masters alive proves nothing.
		s.t.Logf("%s: %d requests for keys of the other masters in the outage, %d left undecided", l.mode.name,
			during, left)
		if (during == 0 || left > 0) && !s.surprised {
			s.t.Errorf("%s: want some, and none undecided", l.mode.name)
		}
	}
}

// slot returns the slot of the keys that requests share. There is one, because the prefixes
// of the lanes are not hashed.
func (s *scene) slot() int {
	s.t.Helper()
	c := adminOf(s.t, s.masters[2].Addr)
	slot, err := c.ClusterKeySlot(context.Background(), sharedKeyOf(s.lanes[0])).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	return int(slot)
}

// home returns the index of the master that has that slot at first.
func (s *scene) home() int { return homeOf(s.slot(), len(s.masters)) }

// homeOf returns which of n masters has a slot at first.
func homeOf(slot, n int) int { return slot * n / 16384 }

// move is a slot on its way from one master to another.
type move struct {
	scene    *scene
	slot     int
	from, to *redis.Client
	toAddr   string
}

// depart begins to move a slot from one master to another.
func (s *scene) depart(slot, from, to int) *move {
	s.t.Helper()
	m := &move{scene: s, slot: slot, from: adminOf(s.t, s.masters[from].Addr), to: adminOf(s.t, s.masters[to].Addr),
		toAddr: s.masters[to].Addr}
	m.do(m.to, "CLUSTER", "SETSLOT", slot, "IMPORTING", m.id(m.from))
	m.do(m.from, "CLUSTER", "SETSLOT", slot, "MIGRATING", m.id(m.to))
	return m
}

// carry takes the keys of the slot over.
func (m *move) carry() {
	m.scene.t.Helper()
	for {
		keys, err := m.from.ClusterGetKeysInSlot(context.Background(), m.slot, 100).Result()
		if err != nil {
			m.scene.t.Fatal(err)
		}
		if len(keys) == 0 {
			return
		}
		m.carryKeys(keys...)
	}
}

// carryKeys takes some keys of the slot over.
func (m *move) carryKeys(keys ...string) {
	m.scene.t.Helper()
	host, port, _ := net.SplitHostPort(m.toAddr)
	args := []any{"MIGRATE", host, port, "", 0, patience.Milliseconds(), "KEYS"}
	for _, key := range keys {
		args = append(args, key)
	}
	m.do(m.from, args...)
}

// arrive ends the move.
func (m *move) arrive() {
	m.scene.t.Helper()
	id := m.id(m.to)
	m.do(m.to, "CLUSTER", "SETSLOT", m.slot, "NODE", id)
	m.do(m.from, "CLUSTER", "SETSLOT", m.slot, "NODE", id)
	for _, s := range m.scene.masters {
		m.do(adminOf(m.scene.t, s.Addr), "CLUSTER", "SETSLOT", m.slot, "NODE", id)
	}
	m.scene.until("one epoch", m.scene.agree)
}

// agree reports whether all masters know the latest change.
func (s *scene) agree() bool {
	epochs := map[string]bool{}
	for _, m := range s.masters {
		c := adminOf(s.t, m.Addr)
		_, after, _ := strings.Cut(c.ClusterInfo(context.Background()).Val(), "cluster_current_epoch:")
		epoch, _, _ := strings.Cut(after, "\r")
		epochs[epoch] = true
		c.Close()
	}
	return len(epochs) == 1
}

func (m *move) id(c *redis.Client) string {
	m.scene.t.Helper()
	id, err := c.ClusterMyID(context.Background()).Result()
	if err != nil {
		m.scene.t.Fatal(err)
	}
	return id
}

func (m *move) do(c *redis.Client, args ...any) {
	m.scene.t.Helper()
	if err := c.Do(context.Background(), args...).Err(); err != nil {
		m.scene.t.Fatalf("%v: %v", args, err)
	}
}
