package failover

// What the tests of this package in another one use, because a store that they use may
// import this package.
var (
	Silent = silent

	Admitted        = admitted
	Begin           = begin
	Connect         = connect
	EveryKeyExpires = everyKeyExpires
	Leasing         = lease
	Memory          = memory
	One             = one
	Patiently       = patiently
	Remaining       = remaining
	Taking          = take
	Try             = try
	Undo            = undo
	Until           = until
)

// Racing reports whether the race detector is on.
const Racing = racing

// Patience bounds every wait.
const Patience = patience

// Trusts reports whether the primary has no failure on record, and no key owes it anything,
// so that no payment is on its way.
func Trusts(s *Store) bool { return s.primary.breaker.score.Load() == 0 && s.owes() == 0 }

// owes returns the units that are owed.
func (s *Store) owes() (units int64) {
	for i := range s.mirror.owed.shards {
		h := &s.mirror.owed.shards[i]
		h.mu.Lock()
		for _, k := range h.keys {
			units += k.units
		}
		h.mu.Unlock()
	}
	return units
}
