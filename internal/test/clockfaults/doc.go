// Package clockfaults tests limits while the clock of a real redis-server steps: of a
// single server, and of a replica that is promoted. The tests need Linux and a C
// compiler, for a preloaded library that moves the clock.
package clockfaults
