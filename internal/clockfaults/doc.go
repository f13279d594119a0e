// Package clockfaults holds the tests in which the clock of a real redis-server
// steps while the server runs: a single server, and a replica that is promoted.
// They need Linux and a C compiler, for a preloaded library that moves the
// clock.
package clockfaults
