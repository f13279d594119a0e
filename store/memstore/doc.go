// Package memstore keeps the counts of a single process in its memory.
//
// A decision about a known key allocates nothing, but for a note of a few bytes
// when the key was asked for many times in a row; from then on it needs no lock,
// until something else than a take of it comes by. Keys are compared as they are, never by a hash alone, and are copied when
// they are first kept, so that a caller may reuse its memory. Those of up to 39
// bytes lie where their counts are. There is no goroutine and nothing to close:
// the decisions themselves look, a few keys at a time, for those that are as
// good as new, forget them and give their memory back. A store that nobody
// asks any more keeps what it holds.
//
// # When the store is full
//
// A store holds at most [Options.MaxKeys] keys. When it is full and a new key
// is to be charged, it looks at a bounded number of keys for some that are as
// good as new and forgets those. If it finds none, the new key is counted in an
// overflow bucket, which it shares with others: the store is cut into at least
// 64 shards by a seeded hash, and a shard has one such bucket for each pair of
// rule and limit. Nobody can choose or lookup with whom a key shares.
//
// So a flood of random keys costs no memory, lets nobody be forgotten who used
// up a limit, and admits nobody for free. Its price is paid by new keys alone:
// until there is room again they have the limit in common with the others of
// their bucket, and may be refused because of them. Keys that the store held
// before are not touched.
//
// A key that is given room later starts from what its bucket had used, so that
// it gains nothing by the move. Leases of Concurrency stay where they were
// taken until they end. A Reset of a key that is counted in a bucket changes
// nothing, as it would free the others too. A limit that is changed while the
// store is full starts new buckets.
//
// Overflow buckets come on top of MaxKeys, at most 64 a shard. When a shard has
// that many, of as many pairs of rule and limit, one more pair is refused with
// [ErrFull].
package memstore
