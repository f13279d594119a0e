// Package failover keeps deciding while the store that keeps the counts is
// away. A [Store] is a core.Store over two: a primary, usually in Redis, and a
// fallback, usually in memory, which decides what the primary cannot.
//
// # When the primary is bypassed
//
// Calls of the primary are counted: one that fails, or takes longer than
// [Options.Slow], counts one up and any other counts one down, not below zero.
// At [Options.Failures] the breaker opens: after that many failures in a row,
// and as surely when more than half of all calls fail. A call that fails before
// is decided by the fallback too. An operation that no store may carry out and
// a caller whose context has ended say nothing about the primary: they are not
// counted, and the caller gets the error.
//
// While the breaker is open no request goes to the primary. One probe at a time
// does, a Peek that changes nothing, about the key whose call opened the
// breaker; the wait before each is drawn from half of [Options.ProbeInterval]
// to all of it, so that instances do not knock together. The breaker closes
// when four probes in a row were answered in time. A primary that comes and
// goes faster than that stays bypassed, and one that has come back is in use
// again after at most four intervals and the answers to five probes: less than
// a second, by default. The first failures after that open the breaker at once.
//
// # What the fallback grants
//
// The fallback grants each instance its part: Quota and Burst are divided by
// the number of live instances ([Options.Instances]), rounded down, but to no
// less than one unit. Periods and segments stay.
//
// It is kept warm. What the primary admits is charged to the fallback too, as
// far as the instance's part goes, and whenever the primary has said how much a
// key has left, the fallback has no more for it. So who has used up a limit
// and was told so by this instance finds nothing left when the outage begins.
// Leases are the exception: who was refused one may get one in an outage, if the
// instance holds fewer than its part.
//
// What was granted in an outage is not charged to the primary afterwards. In
// any span of time a key is therefore granted at most what its limit admits by
// the primary, and once more what the parts of all instances admit. That is no
// more than the limit again, or one unit an instance where the quota is smaller
// than their number, however often the primary goes and comes.
//
// A cost that fits the limit but not the part is refused until the primary is
// back.
//
// # What is given back
//
// Units are given back to the store that granted them. What the primary granted
// and cannot take back now waits for its return: up to 4096 operations, after
// which an error tells that units come back only as time passes. A
// decision of the fallback has an [core.Decision.Origin], by which the store knows
// it again when it is undone.
//
// Leases that the primary granted are held in the fallback too, renewed there
// during an outage, and released in both. Those granted in an outage are taken
// from the primary when they are renewed after it.
package failover
