package topkeys

// Rule has the keys that a rule refused and admitted most often in the last minutes,
// in this process. Keys are as the key functions of the rules return them, so that secrets
// are digests, but hold whatever clients sent; they have to be escaped where they are
// shown. A request counts once, whatever its cost.
type Rule struct {
	Rule string

	// Refused counts requests over the limit of the rule: those that it refused,
	// and those that passed because it is a Degrade or a Shadow rule. Callers whom
	// Access denies are among them.
	Refused Summary

	// Admitted counts requests that passed within the limit, at once or after a wait.
	Admitted Summary

	// Minute has the keys of both in the last whole minute by this process's clock. It is zero if
	// none was counted then.
	Minute Summary
}
