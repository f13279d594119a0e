package faults

import (
	"cmp"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/headgate/headgate/store/redisstore"
	rueidisstore "github.com/headgate/headgate/store/redisstore/rueidis"
)

// client is a client of Redis, over which a lane has its store.
type client struct {
	store func(redisstore.Options) *redisstore.Store
	close func()
}

// clients opens clients, each with the options of go-redis's.
type clients struct {
	standalone func(testing.TB, *redis.Options) client
	sentinel   func(testing.TB, *redis.FailoverOptions) client
	cluster    func(testing.TB, *redis.ClusterOptions) client
}

var goRedis = clients{
	standalone: func(_ testing.TB, o *redis.Options) client { return ofGoRedis(redis.NewClient(o)) },
	sentinel:   func(_ testing.TB, o *redis.FailoverOptions) client { return ofGoRedis(redis.NewFailoverClient(o)) },
	cluster:    func(_ testing.TB, o *redis.ClusterOptions) client { return ofGoRedis(redis.NewClusterClient(o)) },
}

func ofGoRedis(c redis.UniversalClient) client {
	return client{
		store: func(o redisstore.Options) *redisstore.Store { return redisstore.MustNew(c, o) },
		close: func() { c.Close() },
	}
}

var viaRueidis = clients{
	standalone: func(t testing.TB, o *redis.Options) client {
		return ofRueidis(t, rueidis.ClientOption{
			InitAddress: []string{o.Addr}, ForceSingleClient: true, TLSConfig: o.TLSConfig,
			Dialer: dialer(o.DialTimeout), BlockingPoolSize: o.PoolSize,
			AuthCredentialsFn: func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
				user, secret := o.CredentialsProvider()
				return rueidis.AuthCredentials{Username: user, Password: secret}, nil
			},
		})
	},
	sentinel: func(t testing.TB, o *redis.FailoverOptions) client {
		return ofRueidis(t, rueidis.ClientOption{
			InitAddress: o.SentinelAddrs, Dialer: dialer(o.DialTimeout),
			Sentinel: rueidis.SentinelOption{MasterSet: o.MasterName, Dialer: dialer(o.DialTimeout),
				TopologyRefreshInterval: time.Second},
		})
	},
	cluster: func(t testing.TB, o *redis.ClusterOptions) client {
		return ofRueidis(t, rueidis.ClientOption{InitAddress: o.Addrs, Dialer: dialer(o.DialTimeout)})
	},
}

func dialer(timeout time.Duration) net.Dialer {
	return net.Dialer{Timeout: cmp.Or(timeout, rueidis.DefaultDialTimeout)}
}

func ofRueidis(t testing.TB, o rueidis.ClientOption) client {
	c, err := rueidisstore.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	return client{
		store: func(o redisstore.Options) *redisstore.Store { return rueidisstore.MustNew(c, o) },
		close: c.Close,
	}
}
