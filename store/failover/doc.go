// Package failover keeps deciding while the store that keeps the counts is
// unavailable. A [Store] is a core.Store over two others: a primary, usually in
// Redis, and a fallback, usually in memory, which decides when the primary
// cannot.
//
// # When the primary is bypassed
//
// Each call of the primary changes a score: a call that fails, or takes longer
// than [Options.Slow], adds one, and any other call subtracts one, not below
// zero. At [Options.Failures] the breaker opens: after that many failures in a
// row, and eventually whenever more than half of all calls fail. Until then the
// fallback decides only the calls that fail. Errors of invalid operations, and
// errors after the caller's context has ended, say nothing about the primary:
// they are not counted, and the caller gets them.
//
// While the breaker is open, no request goes to the primary. One probe at a
// time does. It does what failed: it uses the keys and the algorithms of the step
// that opened the breaker, and writes if that step did, under the rule
// "failover.probe", whose counts end within moments. A primary that answers but
// cannot write, because its memory is full or a permission is missing, therefore
// stays bypassed. The wait before each probe is drawn from half of
// [Options.ProbeInterval] to all of it, so that instances do not probe in step.
// The breaker closes after four probes in a row were answered in time. So a
// primary that fails more often stays bypassed, and a primary that has
// recovered is in use again after at most four intervals and the answers to
// five probes: less than a second, by default. The first failures after that
// open the breaker at once.
//
// # A primary of several shards
//
// If the primary is a [Sharded], as a redisstore.Store over a Cluster or Ring is, each
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
// The fallback grants each instance its part: Quota and Burst are divided by
// the number of live instances ([Options.Instances]), rounded down, but to no
// less than one unit. Periods and segments stay.
//
// The primary's decisions are mirrored. The fallback charges what the primary
// admits, up to the instance's part, and whenever the primary has reported how
// much a key has left, the fallback grants no more for that key. So a client
// that has used up a limit, and was told so by this instance, finds nothing
// left when the outage begins. Leases are the exception: a client that was
// refused a lease may get one in an outage, if the instance holds fewer than
// its part.
//
// A ban that the primary reports to this instance holds in the fallback too, until it ends
// or a Lift comes by this instance. The fallback counts the refusals of an outage towards
// bans of its own. When the primary is back, its bans alone count.
//
// Units granted in an outage are not charged to the primary afterwards. In any
// span of time a key is therefore granted at most the units that its limit
// admits at the primary, and once more the units that the parts of all
// instances admit. The latter are no more than the limit again, or one unit for
// each instance where the quota is smaller than their number, however often the
// primary fails and recovers.
//
// A cost that fits the limit but not the part is refused until the primary is
// back.
//
// An instance that is restarted in an outage has forgotten the units that it granted,
// and grants its part anew.
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
// store recognises in a refund which store granted the units.
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
package failover
