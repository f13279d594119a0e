package adapterspec

import (
	"slices"
	"testing"
)

// RunHTTP holds an adapter for an HTTP framework to the specification, over each store.
func RunHTTP(t *testing.T, f HTTPFramework) {
	open := func(t *testing.T) transport { return newHTTP(t, f) }
	only := slices.Concat(httpLimiting, httpOptions, httpStatus, httpLeases, httpIdentity, httpUsage)
	if !f.NoRanges {
		only = append(only, httpRanges...)
	}
	overEach(t, open, slices.Concat(common, only))
}

// RunRPC holds an adapter for calls to the specification, over each store.
func RunRPC(t *testing.T, f RPCFramework) {
	overEach(t, rpcOpener(f), slices.Concat(common, rpcOnly))
}

// RunRPCInMemory holds an adapter for calls to the specification over the memory store alone, for
// a framework that [RunRPC] is called with too, which differs only in what is on the wire.
func RunRPCInMemory(t *testing.T, f RPCFramework) {
	run(t, rpcOpener(f), inMemory, slices.Concat(common, rpcOnly))
}

// RunCalls holds an adapter for calls without streams to the specification, over each store. Its
// refusals say in whole seconds when to come again, and what stands for a stream is another way to
// make a call.
func RunCalls(t *testing.T, f RPCFramework) {
	open := func(t *testing.T) transport { return &overRPC{t: t, RPCFramework: f, wholeSeconds: true} }
	overEach(t, open, slices.Concat(common, rpcCalls))
}

// common holds for HTTP and for calls.
var common = slices.Concat(setup, limiting, nesting, options, failing, status, leases, settling, waiting, identity)

// rpcOnly holds for calls alone, and rpcCalls for those without streams too.
var (
	rpcOnly  = slices.Concat(rpcCalls, rpcLimiting, rpcStatus, rpcIdentity, rpcMessages)
	rpcCalls = slices.Concat(rpcCosts, rpcOptions)
)

// A spec is one promise.
type spec struct {
	name string
	hold func(*bench)
}

func overEach(t *testing.T, open opener, promises []spec) {
	t.Run("memory", func(t *testing.T) { run(t, open, inMemory, promises) })
	t.Run("redis", func(t *testing.T) { run(t, open, inRedis(t), promises) })
}

func run(t *testing.T, open opener, stores makeStore, promises []spec) {
	for _, s := range promises {
		t.Run(s.name, func(t *testing.T) { s.hold(newBench(t, open, stores)) })
	}
}
