// Package redisstore keeps the state of keys in Redis: standalone, behind
// Sentinel, in a Cluster or in a Ring, through a go-redis client.
//
// A step is decided by one Lua script in one round trip, at the server's own
// time. Every key that it writes has a time to live. A call ends at its
// deadline, and a script is called again only after an error which proves that
// it did not run: a reply that is late or lost may have been charged, once.
//
// # Steps together
//
// While few calls are under way, a step is sent by its caller, at once and alone.
// Otherwise it waits, and when a call ends, those that have come meanwhile are
// decided by one script call, one after the other and each as if alone. So many
// callers cost few round trips, and one caller waits for nobody. There is no
// goroutine while nobody waits, and nothing to close.
//
// A caller waits no longer than its context and the timeout allow. One that
// leaves before its step is sent is never charged; after that it may be, once.
// It takes nothing from the others of its call, whose own deadlines count. A step
// that was sent with others does not carry the values of its caller's context
// to the client's hooks.
//
// # Clusters
//
// The keys of one subject share a slot, so rules about one subject are decided
// in one step. A step about several subjects is carried out subject by subject,
// and what was taken is given back if a later one refuses: it costs a round
// trip a subject, and in between another request may see those units taken.
// [Options.OneSlot] puts every key into one slot instead: strictly one step,
// all of it on one node. Steps are decided together if their keys share a slot,
// which are mostly those of one busy subject. A Ring, and a client that is not
// one of go-redis's own, gets every step alone, unless OneSlot is set.
//
// # Permissions
//
// Scripts need eval, evalsha, get, mget, exists, set, del, time, pttl and pexpire on the
// keys under the prefix.
package redisstore
