package redistest

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/freeport"
)

// slots is the number of hash slots of a Redis Cluster.
const slots = 16384

// Cluster starts a Redis Cluster of n masters that share the slots evenly, and
// waits until each of them sees it complete. The nodes consider a node dead only
// after a minute of silence, because no other could take its place. The cluster
// ends with the test, which is skipped as by [Start].
func Cluster(t testing.TB, n int) []*Server {
	t.Helper()
	nodes := form(t, n)
	for _, s := range nodes {
		if err := dial(t, s.Addr).ConfigSet(context.Background(), "cluster-node-timeout", "60000").Err(); err != nil {
			t.Fatal(err)
		}
	}
	return nodes
}

// form starts a cluster of n masters that consider a node dead after a second.
func form(t testing.TB, n int) []*Server {
	t.Helper()
	nodes := make([]*Server, n)
	buses := make([]string, n)
	clients := make([]*redis.Client, n)
	for i := range nodes {
		nodes[i], buses[i] = startNode(t)
		clients[i] = dial(t, nodes[i].Addr)
	}

	// The slots are given out before the nodes meet, while none has to be agreed on.
	for i, c := range clients {
		if err := c.ClusterAddSlotsRange(context.Background(), i*slots/n, (i+1)*slots/n-1).Err(); err != nil {
			t.Fatal(err)
		}
	}

	// Each node has to see the others itself: what one knows reaches another by gossip.
	met := meeting{}
	for _, c := range clients {
		until(t, "cluster", func(ctx context.Context) bool {
			if complete(ctx, c, n) {
				return true
			}
			for i := range nodes {
				met.again(ctx, clients[0], nodes[i].Addr, buses[i])
			}
			return false
		})
	}
	return nodes
}

// meeting is when nodes were last told to meet others. Nodes that have not met within a
// second forget the attempt.
type meeting map[string]time.Time

// again tells the node to meet another one, if that has not happened for three seconds.
func (m meeting) again(ctx context.Context, node *redis.Client, addr, bus string) {
	if time.Since(m[addr]) > 3*time.Second {
		m[addr] = time.Now()
		host, port, _ := net.SplitHostPort(addr)
		node.Do(ctx, "CLUSTER", "MEET", host, port, bus)
	}
}

// Join starts a master without slots, adds it to the cluster of the others, and waits
// until all nodes know each other. It ends with the test.
func Join(t testing.TB, others []*Server) *Server {
	t.Helper()
	joined, bus := startNode(t)
	id := dial(t, joined.Addr).ClusterMyID(context.Background()).Val()
	first := dial(t, others[0].Addr)

	// All nodes are asked, the new one too: the others may know it before it knows them.
	met := meeting{}
	for _, s := range append(others[:len(others):len(others)], joined) {
		c := dial(t, s.Addr)
		until(t, "a node that joins", func(ctx context.Context) bool {
			text, err := c.ClusterNodes(ctx).Result()
			if err == nil && strings.Contains(text, id) && !strings.Contains(text, "handshake") {
				return strings.Contains(c.ClusterInfo(ctx).Val(), "cluster_state:ok")
			}
			met.again(ctx, first, joined.Addr, bus)
			return false
		})
	}
	return joined
}

// startNode starts a server for a cluster, whose second port is also chosen
// freely: by default it would be the first plus 10000, which may not exist.
func startNode(t testing.TB) (s *Server, bus string) {
	t.Helper()
	s = start(t, func() []string {
		_, bus, _ = net.SplitHostPort(freeport.Addr(t))
		return append(transient(), "--cluster-enabled", "yes",
			"--cluster-port", bus, "--cluster-node-timeout", "1000", "--repl-diskless-sync-delay", "0",
			"--repl-ping-replica-period", "1")
	})
	return s, bus
}

// complete reports whether the node sees every slot served and n masters.
func complete(ctx context.Context, c *redis.Client, n int) bool {
	info, err := c.ClusterInfo(ctx).Result()
	if err != nil || !strings.Contains(info, "cluster_state:ok") {
		return false
	}
	shards, err := c.ClusterShards(ctx).Result()
	return err == nil && len(shards) == n
}

// Addrs returns the addresses of servers.
func Addrs(servers []*Server) []string {
	addrs := make([]string, len(servers))
	for i, s := range servers {
		addrs[i] = s.Addr
	}
	return addrs
}
