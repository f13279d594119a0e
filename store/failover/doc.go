// Package failover keeps deciding while the store that keeps the counts is unavailable, or
// cannot decide in time. A [Store] is a core.Store over two others: a primary, usually in
// Redis, and a fallback, usually in memory, which decides what the primary does not.
//
// # When the primary is bypassed
//
// Each call of the primary changes a score: a call that fails, or takes longer than
// [Options.Slow], adds one, and any other call subtracts one, not below zero. At
// [Options.Failures] the breaker opens: after that many failures in a row, and eventually
// whenever more than half of all calls fail. Until then the fallback decides only the steps
// that fail.
//
//	the error                         what it counts
//	core.ErrOverload                  nothing: this process has more to do than it can
//	core.ErrSilent                    the breaker opens at once
//	has a method Call() uint64        once for all steps that shared the call of that number
//	of an invalid operation, or       nothing, and the caller gets it
//	after the caller's context
//	every other                       one
//
// This process may be late itself: it was stopped, or has no processor. A slow call counts
// only if a timer of this process fired in time for as long as the call took. That is not
// known of the first slow call in a while.
//
// While the breaker is open, no request goes to the primary. One probe at a time does. It does
// what failed: it uses the keys and the algorithms of the step that opened the breaker, and
// writes if that step did, under a rule whose counts end within moments and whose name no rule
// of a limiter can have. A primary that answers but cannot write, because its memory is full
// or a permission is missing, therefore stays bypassed. The wait before each probe is drawn
// from half of [Options.ProbeInterval] to all of it, so that instances do not probe in step.
// The breaker closes after four probes in a row were answered in time. So a primary that fails
// more often stays bypassed, and a primary that has recovered is in use again after at most
// four intervals and the answers to five probes. After a silence the first probe is sent at
// once, and one answer closes the breaker, unless there was another silence in the ten seconds
// before. The first failures after that open the breaker at once.
//
// # A primary of several shards
//
// If the primary is a [core.Sharded], as a redisstore.Store over a Cluster or Ring is, each
// shard has a breaker of its own. While a master is away, the fallback decides about its
// keys, and the primary goes on deciding about all others. A shard is known by its name,
// so a master that takes the place of another is asked at once, and so are keys that
// move. The breaker that they leave closes with its next probe, which says nothing about
// its shard any more.
//
// A step whose keys lie on several shards is decided by the fallback as a whole while one
// of them is bypassed. Its error counts against the shard that it names, and against all
// of its shards if it names none; such a step that is merely slow counts against none.
// Keys whose shard is not known share one breaker. So do the shards beyond 1024.
//
// # What the fallback grants
//
// The fallback grants each instance its part: Quota and Burst are divided by the number of
// live instances ([Options.Instances]), rounded down, but to no less than one unit. Periods
// and segments stay. A cost that fits the limit but not the part is refused with RetryAfter
// [core.Never]: this instance never admits it by itself.
//
// The primary's decisions are mirrored. The fallback charges what the primary admits, up to
// the part, and is left no more units of a key than the primary has. So a client that has used
// up a limit, and was told so by this instance, finds nothing left in the fallback.
//
// What the fallback grants by itself is owed to the primary. An admission of the primary that
// leaves fewer units than the key owes becomes a refusal, and its charge pays for owed units.
// Other rules' charges of that step go back. When the primary answers about a key, the rest of
// what it owes is charged there in the background, as far as it fits. A payment of which it
// is not known whether the primary has made it is not repeated. What is owed is never more
// than what the fallback itself has in use, so time pays it back, and a Reset forgets it. So:
//
//   - While no units come back, one instance admits at most the limit, whether the primary or
//     the fallback decides and in whatever order the primary's answers come. When the number
//     of instances falls, it may admit as much more as its part grows by.
//   - Several instances admit at most what the primary has, and the parts of the instances of
//     which the primary does not know yet. Two that both believe to be alone admit at most
//     the limit each.
//   - In any span of time a key is granted at most the units that its limit admits at the
//     primary, and once more those that the parts of all instances admit, however often the
//     primary fails and recovers. Where the quota is smaller than the number of instances, the
//     parts are one unit each.
//
// Some operations are special. A Debit is never refused, and what it charges beyond the limit
// is not undone. An UpTo Take or a booking that the primary admits is refused as a whole if it
// leaves less than is owed, and does not wait behind the owed units. A Peek tells what the
// primary has. A refusal of this kind counts towards no ban.
//
// Leases that the primary and the fallback have granted are at most the quota in one instance:
// the primary's lease is released if the instance holds more with it. A client that was
// refused a lease may get one in an outage, if the instance holds fewer than its part.
//
// A ban that the primary reports to this instance holds in the fallback too, until it ends
// or a Lift comes by this instance. The fallback counts the refusals of an outage towards
// bans of its own. When the primary is back, its bans alone count.
//
// 16384 keys may owe, in 64 parts of 256. What the fallback grants to others comes on top, as
// does what an instance had granted before it was restarted: see [Stats].
//
// Decisions of the fallback have [core.Decision.Fallback] set, and [Store.Cause] is
// the reason for them.
//
// # Refunds
//
// Units are given back to the store that granted them. If the primary granted
// them and cannot take them back now, the refund waits for its return. Up to
// 4096 operations wait for a shard; after that, and after Close, an error reports that the units
// come back only as time passes. By the [core.Decision.Origin] of a decision the
// store recognises in a refund which store granted the units. Units of the fallback that were
// paid less than a minute ago come back from the primary too.
//
// The fallback's copy of a charge of the primary is refunded too, as of the instant
// of the copy: a refund gives back no unit that time has given back before, nor any
// that another request was granted. The latest 8192 copies are remembered. A refund of
// an older one leaves the fallback's count as it is until time passes.
//
// The fallback, or the primary, may itself be a Store: two may be one over another.
//
// Leases granted by the primary are held in the fallback too, renewed there
// during an outage, and released in both. A lease granted in an outage is taken
// from the primary when it is renewed afterwards.
//
// # What is logged
//
// A line tells when a breaker opens or closes, at most two in a minute for each shard; see
// [Options.Logger]. OnChange and the hooks hear of every change.
//
// An error of the primary with a method Unsent() bool that returns true proves that a step was
// not sent. Refunds and payments that end so wait, and all others may have been carried out.
// One with a method WhenDecided(func(ops []core.Op, out []core.Decision)) is of a step that may
// be decided yet: the primary calls the function with its decisions when they come. Their
// charges pay for owed units, and the rest of them goes back.
package failover
