// Package redisstore keeps the state of keys in Redis: standalone, behind
// Sentinel, in a Cluster or in a Ring, through a go-redis client.
//
// A step is decided by one Lua script in one round trip, at the server's own
// time. Every key that it writes has a time to live. A call ends at its
// deadline. A script is called again only after an error which proves that it
// did not run: if a reply is late or lost, the step may have been charged,
// once.
//
// # Memory
//
// A limiter over a store has a memory behind it, which decides what Redis does not decide in
// time: this instance's part of each limit. [Store.Back] says how instances are counted.
//
// # Batches
//
// While few calls are in flight, a caller sends its step at once and alone.
// Otherwise the step waits. When a call ends, one script call decides the steps
// that wait by then, one after the other and each as if it were alone. Many
// callers therefore need few round trips, and a single caller never waits for
// others. There is no goroutine while no step waits, and nothing to close, except for a use
// of the memory, which ends with its release.
//
// Two calls are in flight at a time, and up to four full ones. Far from the server, where
// a step would wait for a round trip, up to twelve are: one more begins whenever a tenth of
// the round trip has passed, but at least 0.25 ms. The store measures the round trip by its
// calls, and goes back to fewer if calls take longer while more of them are in flight.
//
// A caller waits no longer than its context and the timeout allow. If it leaves
// before its step is sent, it is never charged; after that it may be charged,
// once. The other steps of its call are not affected and end at their own
// deadlines. If a step is sent with others, the client's hooks do not see the
// values of its caller's context, and the call has seven fifths of the timeout, so that a
// reply that is a little late is not lost with its connection.
//
// After a call that was late, the store has the client connect in the background, as the
// client drops a connection that is not ready when its call ends.
//
// # Who is at fault
//
// An error says who was too late. It wraps [core.ErrOverload] if this process was: more steps
// wait than are answered in time, the caller's own time ended before that of the call, or the
// process noticed a deadline late, because it had no processor or was stopped. A reply that
// has arrived by then counts, and a read, like a caller that waits, goes on for as long as it
// was late, at most one timeout. For that New adds a hook to the client that wraps the
// connections which it dials from then on, those of a client of one server, a Cluster or a
// Ring; with other clients a reply is lost that is read late.
//
// The server is at fault for a call that had its time. The error of a failed call has a method
// Call, which returns its number in this process, the same for all steps of the call. It wraps
// [core.ErrSilent] too if the server has answered no call for seven fifths of the timeout.
// Callers of a server that is silent wait no longer than that, counted from the call with
// which the silence began. Then one call at a time asks it, and other callers get that error
// at once. Any reply ends the silence.
//
// A caller that would be too late, behind more than a full batch, is turned away at once. What
// the server has said about used-up keys to steps that waited is then the answer: see
// [Options.CacheRefusals].
//
// # Clusters
//
// The keys of one subject share a slot, so rules about one subject are decided
// in one step. A step about several subjects is carried out subject by subject,
// and its units are given back if a later subject refuses. It costs a round
// trip for each subject, and in between another request may see those units
// taken. An UpTo Take in such a step is an error. [Options.OneSlot] puts every key into one
// slot instead: every step is atomic, and all of them are on one node. Steps are decided
// together if their keys share a slot; these are mostly steps of one busy subject. On a
// Ring, or a client that is not one of go-redis's own, every step is a call of its own,
// unless OneSlot is set.
//
// # Permissions
//
// The Redis user needs the commands eval, evalsha, get, mget, exists, set, del,
// time, pttl and pexpire on the keys under the prefix, zadd, zremrangebyscore, zrem and zcard
// to count instances, and info for the diagnosis. The error about a missing permission has a
// command that grants it, together with those that other packages of this module need.
package redisstore
