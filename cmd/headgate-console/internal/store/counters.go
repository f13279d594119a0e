package store

// The counters. A transaction that raises a counter locks it, so transactions that
// raise the same counter run one after the other.
const (
	CounterPolicies  = "policies"  // the version of the set of policies
	CounterPublished = "published" // the version that was published last
	CounterOverrides = "overrides" // the revision of the last override
	CounterUsers     = "users"     // changes of users and roles
	CounterTraffic   = "traffic"   // writes of collected counts
	CounterAlerts    = "alerts"    // checks of the conditions of alerts
	CounterWebhooks  = "webhooks"  // changes of webhooks
	CounterAttempts  = "attempts"  // times that all counts of failed log-ins were dropped

	// CounterOverridesPublished is the revision of the overrides that was published last.
	CounterOverridesPublished = "overrides_published"
)

// Counter is the value of a counter.
type Counter struct {
	Value int64
	At    int64 // µs; when it was changed last, or 0
}

// Counter returns a counter, or ErrNotFound.
func (t *Tx) Counter(name string) (Counter, error) {
	return readOne[Counter](t, "SELECT value, at FROM counters WHERE name = ?", name)
}

// RaiseCounter adds 1 to a counter at the time at in µs. If a transaction raises its counters
// before all other calls, its reads are at least as new as each of them. A counter that is raised
// after a read leaves the later reads as old as the first one.
func (t *Tx) RaiseCounter(name string, at int64) error {
	return t.execOne(ErrNotFound, "UPDATE counters SET value = value + 1, at = ? WHERE name = ?", at, name)
}

// LockCounter is RaiseCounter without a change of the counter.
func (t *Tx) LockCounter(name string) error {
	return t.execOne(ErrNotFound, "UPDATE counters SET value = value WHERE name = ?", name)
}

// AdvanceCounter sets a counter at the time at in µs, or returns ErrStale if that
// would lower it.
func (t *Tx) AdvanceCounter(name string, value, at int64) error {
	const q = "UPDATE counters SET value = ?, at = ? WHERE name = ? AND value <= ?"
	return t.execOne(ErrStale, q, value, at, name, value)
}
