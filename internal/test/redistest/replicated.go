package redistest

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Replicated starts a Redis Cluster of n masters, as [Cluster] does, and n
// replicas: the i-th replicates the i-th master, and takes its place when the
// master is silent for a second. It waits until all replicas are in step and
// every node knows all others. The nodes end with the test, which is skipped as
// by [Start].
func Replicated(t testing.TB, n int) (masters, replicas []*Server) {
	t.Helper()
	masters = form(t, n)
	first := dial(t, masters[0].Addr)
	for range masters {
		replica, bus := startNode(t)
		replicas = append(replicas, replica)
		host, port, _ := net.SplitHostPort(replica.Addr)
		if err := first.Do(context.Background(), "CLUSTER", "MEET", host, port, bus).Err(); err != nil {
			t.Fatal(err)
		}
	}

	// A node takes a master only when it has met it, and refuses until then.
	for i, replica := range replicas {
		id := dial(t, masters[i].Addr).ClusterMyID(context.Background()).Val()
		c := dial(t, replica.Addr)
		until(t, "replica", func(ctx context.Context) bool { return c.ClusterReplicate(ctx, id).Err() == nil })
	}

	// Replicas are asked too, as clients may read the slots from any node.
	for _, s := range append(masters[:n:n], replicas...) {
		c := dial(t, s.Addr)
		until(t, "replicated cluster", func(ctx context.Context) bool { return inStep(ctx, c, n) })
	}
	return masters, replicas
}

// inStep reports whether the node sees n masters, each with one replica and all
// of them well, and is linked to its master if it is a replica.
func inStep(ctx context.Context, c *redis.Client, n int) bool {
	if !complete(ctx, c, n) {
		return false
	}

	text, err := c.ClusterNodes(ctx).Result()
	if err != nil || strings.Count(text, "slave ") != n {
		return false
	}
	if strings.Contains(text, "fail") || strings.Contains(text, "handshake") {
		return false
	}

	info, err := c.Info(ctx, "replication").Result()
	if err != nil || strings.Contains(info, "role:master") {
		return err == nil && Feeds(info)
	}
	return strings.Contains(info, "master_link_status:up")
}

// Feeds reports whether a master, according to info, its section on
// replication, sends a replica all writes. For up to a second after the replica
// has its copy, until it has confirmed that, the master holds new writes back.
func Feeds(info string) bool {
	return strings.Contains(info, "state=online") && !strings.Contains(info, ",offset=0,")
}
