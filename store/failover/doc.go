// Package failover keeps deciding while the store that keeps the counts is unavailable, or
// cannot decide in time.
//
//	counts := redisstore.MustNew(client, redisstore.Options{Prefix: "shop:"})
//	store, err := failover.New(counts, failover.Options{
//		Fallback:  memstore.MustNew(memstore.Options{}),
//		Instances: instances.Live,
//	})
//	if err != nil {
//		log.Fatal(err)
//	}
//	defer store.Close()
//	l := limiter.MustNew(limiter.Config{Store: store, Rules: rules})
//
// A [Store] is a [core.Store] over two others: a primary, usually in Redis, and a fallback,
// usually in memory, which decides what the primary does not. [Options] say when. [Instances]
// count the processes that share the primary. A Store and an Instances are safe for concurrent
// use.
//
// A limiter over a redisstore.Store has such a fallback without this package, which is for other
// settings and other stores. The file docs/internals.md says how it works inside.
//
// # When the primary is bypassed
//
// The fallback decides the steps that fail. After [Options.Failures] calls in a row that fail
// or take longer than [Options.Slow], and whenever more than half of all calls do for long, no
// request goes to that shard of the primary, until probes are answered in time again; see
// [Options.ProbeInterval]. A primary that answers but cannot write stays bypassed. A step whose
// keys lie on several shards is decided by the fallback as a whole while one of them is
// bypassed.
//
// # What the fallback grants
//
// The fallback grants each instance its part: Quota and Burst are divided by the number of
// live instances ([Options.Instances]), rounded down, but to no less than one unit. Periods
// and segments stay. A cost that fits the limit but not the part is refused with RetryAfter
// [core.Never]: this instance never admits it by itself. Decisions of the fallback have
// [core.Decision.Fallback] set, and [Store.Cause] is the reason for them.
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
// Units are given back to the store that granted them. A ban that the primary reports to this
// instance holds in the fallback too, and leases of the primary are held in both.
package failover
