// Package rpcspec specifies what the adapters for gRPC and for Connect promise to clients,
// as internal/test/httpspec does for those of HTTP frameworks. Each adapter's package runs the
// specification with a driver, over the memory store and over Redis, with a client and a
// server on loopback and a clock that stands still.
package rpcspec
