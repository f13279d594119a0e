package live

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Memory returns how much memory Redis uses and how much it may use, of the fullest server of a
// Cluster. The limit is 0 if there is none, if Redis makes room by itself, or if it does not tell.
func Memory(ctx context.Context, client redis.UniversalClient) (used, limit int64, err error) {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		text, err := client.Info(ctx, "memory").Result()
		used, limit = memoryOf(text)
		return used, limit, err
	}

	var mu sync.Mutex
	// The servers are asked at the same time, so what they answer is guarded by mu.
	err = cluster.ForEachMaster(ctx, func(ctx context.Context, server *redis.Client) error {
		text, err := server.Info(ctx, "memory").Result()
		mu.Lock()
		defer mu.Unlock()
		// The fullest server uses the greatest share of its limit, and not the most bytes.
		if u, l := memoryOf(text); l > 0 && (limit == 0 || float64(u)/float64(l) > float64(used)/float64(limit)) {
			used, limit = u, l
		}
		return err
	})
	return used, limit, err
}

// memoryOf reads an answer of INFO.
func memoryOf(info string) (used, limit int64) {
	evicts := false
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "used_memory":
			used, _ = strconv.ParseInt(value, 10, 64)
		case "maxmemory":
			limit, _ = strconv.ParseInt(value, 10, 64)
		case "maxmemory_policy":
			evicts = strings.HasPrefix(value, "allkeys-")
		}
	}

	// A server that evicts keys makes room by itself, and never becomes full.
	if evicts {
		limit = 0
	}
	return used, limit
}
