// Package adapterspec specifies what every adapter promises to clients. An adapter's package
// runs it with a driver: [RunHTTP] with an [HTTPFramework], or [RunRPC] with an [RPCFramework]. It
// runs over the memory store and over Redis, with requests over loopback and a clock that stands
// still. A promise for HTTP and for calls is made once, on a [bench]; the files http_*.go
// and rpc_*.go have the others. Drivers have no expected answers, but for the framework's own.
package adapterspec
