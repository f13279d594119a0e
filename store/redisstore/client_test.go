package redisstore

import (
	"crypto/tls"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Only those that may read on after a deadline take a goroutine for each call.
func TestClientsOverTLSOverstayUnlessTheyKnowNoPushMessages(t *testing.T) {
	addrs := []string{"127.0.0.1:1"}
	for _, row := range []struct {
		config   *tls.Config
		protocol int
		want     bool
	}{
		{nil, 0, false},
		{nil, 3, false},
		{&tls.Config{}, 0, true},
		{&tls.Config{}, 3, true},
		{&tls.Config{}, 2, false},
	} {
		for name, c := range map[string]redis.UniversalClient{
			"client": redis.NewClient(&redis.Options{
				Addr: addrs[0], TLSConfig: row.config, Protocol: row.protocol, ContextTimeoutEnabled: true}),
			"behind sentinels": redis.NewFailoverClient(&redis.FailoverOptions{
				MasterName: "m", SentinelAddrs: addrs, TLSConfig: row.config, Protocol: row.protocol, ContextTimeoutEnabled: true}),
			"cluster": redis.NewClusterClient(&redis.ClusterOptions{
				Addrs: addrs, TLSConfig: row.config, Protocol: row.protocol, ContextTimeoutEnabled: true}),
			"ring": redis.NewRing(&redis.RingOptions{
				Addrs: map[string]string{"a": addrs[0]}, TLSConfig: row.config, Protocol: row.protocol, ContextTimeoutEnabled: true}),
		} {
			if s := MustNew(c, Options{}); s.heedsDeadline == row.want || ignoresDeadlines(c) {
				t.Errorf("%s, TLS %t, protocol %d: heeds deadlines %t, is said to ignore them %t",
					name, row.config != nil, row.protocol, s.heedsDeadline, ignoresDeadlines(c))
			}
			c.Close()
		}
	}
}
