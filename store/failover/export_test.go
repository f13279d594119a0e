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

// Patience bounds every wait.
const Patience = patience

// Trusts reports whether the primary has no failure on record.
func Trusts(s *Store) bool { return s.breaker.score.Load() == 0 }
