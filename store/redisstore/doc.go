// Package redisstore keeps the state of keys in Redis: standalone, behind
// Sentinel, in a Cluster or in a Ring, through a go-redis client.
//
// A step is decided by one Lua script in one round trip, at the server's own
// time. Every key that it writes has a time to live. A call ends at its
// deadline, and a script is called again only after an error which proves that
// it did not run: a reply that is late or lost may have been charged, once.
//
// # Clusters
//
// The keys of one subject share a slot, so rules about one subject are decided
// in one step. A step about several subjects is carried out subject by subject,
// and what was taken is given back if a later one refuses: it costs a round
// trip a subject, and in between another request may see those units taken.
// [Options.OneSlot] puts every key into one slot instead: strictly one step,
// all of it on one node.
//
// # Permissions
//
// Scripts need eval, evalsha, get, set, del, time, pttl and pexpire on the keys
// under the prefix.
package redisstore
