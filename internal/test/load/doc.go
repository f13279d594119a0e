// Package load holds the tests of services under load: processes that serve HTTP over a
// Redis, with the settings that a program has which sets none, and clients with thousands of
// connections. Whatever the clients do, a key is served at most its limit by one instance,
// and at most one limit more by several together.
package load

// Each service is the test binary as a process of its own, so that it is starved and stopped
// as a service is. The tests are run as
//
//	HEADGATE_LONG=1 go test ./internal/test/load
//	HEADGATE_LONG=1 go test ./internal/test/load -run Connections -count=10 \
//	    -args -conns 500,4000 -span 4s
//
// and need redis-server, and open files for as many connections.
