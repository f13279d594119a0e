package main

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/redisstore"
)

// openStore opens a store and returns a function that closes it. A store in Redis
// waits for Redis no longer than the timeout; a store in memory ignores it.
type openStore func(timeout time.Duration) (core.Store, func(), error)

// stores lists the forms that parseStore accepts, for the help text.
const stores = "memory, redis://…, sentinel://… or cluster://…"

// parseStore accepts
//
//	memory
//	redis://user:password@host:port/db, and rediss:// for TLS
//	sentinel://host:port,host:port/master
//	cluster://host:port,host:port
//
// and returns a function that opens the store. Its error holds no password.
func parseStore(text string) (openStore, error) {
	if text == "memory" {
		return openMemory, nil
	}

	scheme, rest, _ := strings.Cut(text, "://")
	switch scheme {
	case "redis", "rediss":
		o, err := redis.ParseURL(text)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", redacted(text), err)
		}

		// Without it the client ignores deadlines, and a decision may take as long as the client's
		// own time-outs.
		o.ContextTimeoutEnabled = true
		return func(d time.Duration) (core.Store, func(), error) { return openRedis(redis.NewClient(o), d) }, nil

	case "sentinel":
		hosts, master, _ := strings.Cut(rest, "/")
		if hosts == "" || master == "" {
			return nil, fmt.Errorf("%q is not sentinel://host:port,host:port/master", text)
		}
		o := &redis.FailoverOptions{
			MasterName: master, SentinelAddrs: strings.Split(hosts, ","), ContextTimeoutEnabled: true,
		}
		open := func(d time.Duration) (core.Store, func(), error) { return openRedis(redis.NewFailoverClient(o), d) }
		return open, nil

	case "cluster":
		if rest == "" {
			return nil, fmt.Errorf("%q is not cluster://host:port,host:port", text)
		}
		o := &redis.ClusterOptions{Addrs: strings.Split(rest, ","), ContextTimeoutEnabled: true}
		return func(d time.Duration) (core.Store, func(), error) { return openRedis(redis.NewClusterClient(o), d) }, nil
	}

	return nil, fmt.Errorf("%q is none of memory, redis://host:port/db, sentinel://…, cluster://…", redacted(text))
}

// redacted returns the text without a password.
func redacted(text string) string {
	if u, err := url.Parse(text); err == nil {
		return u.Redacted()
	}
	return "the address"
}

func openMemory(time.Duration) (core.Store, func(), error) {
	s, err := memstore.New(memstore.Options{})
	return s, func() {}, err
}

func openRedis(c redis.UniversalClient, timeout time.Duration) (core.Store, func(), error) {
	s, err := redisstore.New(c, redisstore.Options{Prefix: "quickstart:", Timeout: timeout})
	return s, func() { _ = c.Close() }, err
}
