// Package redisstore keeps the counts of all instances of a service in Redis: standalone, behind
// Sentinel, in a Cluster or in a Ring, through a go-redis client.
//
//	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true})
//	store, err := redisstore.New(client, redisstore.Options{Prefix: "shop:"})
//	if err != nil {
//		log.Fatal(err)
//	}
//	l := limiter.MustNew(limiter.Config{Store: store, Rules: []limiter.Rule{
//		{Name: "ip", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("100/1m")},
//	}})
//
// A [Store] is a [core.Store], safe for concurrent use. [Options] have the prefix, which is the
// name of the service, and the timeout of a call. A [ClientLogger] bounds what the client logs.
//
// A step is decided by one Lua script in one round trip, at the server's own time. Every key that
// it writes has a time to live. A call ends at its deadline. A script is called again only after
// an error which proves that it did not run: if a reply is late or lost, the step may have been
// charged, once. If the reply comes within a second, the units of a caller that was answered
// otherwise go back.
//
// A limiter over a store has a memory behind it, which decides what Redis does not decide in
// time: this instance's part of each limit. [Store.Back] says how instances are counted.
//
// # Many callers
//
// Steps of callers at the same time share script calls, each decided as if it were alone;
// [Options.Batch] bounds how many. A caller waits no longer than its context and the timeout
// allow. If it leaves before its step is sent, it is never charged; after that it may be
// charged, once. If a step is sent with others, the client's hooks do not see the values of its
// caller's context.
//
// # Errors
//
// An error says who was too late. It wraps [core.ErrOverload] if this process was, and
// [core.ErrSilent] if the server has answered no call for a while. While a server is silent, one
// call at a time asks it, and other callers get that error at once. [ErrPermission],
// [ErrCredentials] and [ErrTooManyClients] are mistakes of the set-up, and [ErrFormat] and
// [ErrUnreadable] are about the value of one key.
//
// # Clusters
//
// The keys of one subject share a slot, so rules about one subject are decided
// in one step. A step about several subjects is carried out subject by subject,
// and its units are given back if a later subject refuses. It costs a round
// trip for each subject, and in between another request may see those units
// taken. An UpTo Take in such a step is an error. [Options.OneSlot] puts every key into one
// slot instead: every step is atomic, and all of them are on one node.
//
// The file docs/redis.md has the permissions that the user of Redis needs, and docs/internals.md
// how calls are shared and who is at fault for a late one.
package redisstore
