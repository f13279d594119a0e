// Package prefetch saves a store most of the calls about busy keys: an instance takes units of such
// a key ahead, several at once, and hands them out by itself.
//
//	store, err := prefetch.New(counts, prefetch.Options{Units: 100})
//	if err != nil {
//		log.Fatal(err)
//	}
//	defer store.Close(ctx)
//	l := limiter.MustNew(limiter.Config{Store: store, Rules: rules})
//
// A [Store] is a [core.Store] over another one, usually in Redis, and safe for concurrent use.
// [Options] say how many units it may hold, and of how many keys. Its Close gives back the units
// that are held.
//
// It never admits more than the limit does. A held unit has been charged in the
// store, and it is dropped no later than the store counts it as come back. So
// the units used in any span stay within the algorithm's own bound: for GCRA
// and TokenBucket burst and refill, for FixedWindow and CalendarWindow the quota of each window.
// SlidingLog and SlidingWindow promise more than units taken ahead can keep,
// and Concurrency has leases: their Takes go to the store one by one, and so do
// all Takes that may book.
//
// The price is fairness between instances: up to Units units of a key may lie
// unused in each instance, until they would have come back, while another
// instance refuses. The nearer a key is to its limit, the fewer units are taken
// ahead, never more than a quarter of the remaining ones. An instance never
// refuses a request for units that it holds or is about to hold: the request
// waits for the call that brings them. Remaining and ResetAfter of a request
// that was decided here are as of the last call to the store. A Reset, or a
// lower limit, that another instance sends takes effect here when the held
// units are used up, and so does a ban that begins by the refusals of another
// instance. A request that is refused while units of its key are on their way is
// asked for again, and counts as one strike even if it is admitted then.
package prefetch
