// Package adapterspec specifies what every adapter promises to clients. An adapter's package
// runs the specification with a driver: [RunHTTP] with an [HTTPFramework], or [RunRPC] with an
// [RPCFramework]. It runs over the memory store and over Redis, with requests over loopback and
// a clock that stands still. The drivers contain no expected answers, except the framework's own.
//
// A promise that holds for HTTP and for calls stands once. It is made on a [bench], which asks
// its [transport] how a request is sent and what an answer looks like. What only one of the two
// has stands in the files http_*.go and rpc_*.go.
package adapterspec
