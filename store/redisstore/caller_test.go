package redisstore

import (
	"testing"
	"unsafe"

	"github.com/headgate/headgate/core"
)

// A framework's strings may change as soon as their request has ended, and a
// batch may read the step of a caller who has left.
func TestAWaitingCallerOwnsWhatItAsks(t *testing.T) {
	key, lease := []byte("key"), []byte("lease")
	ops := []core.Op{{Rule: "r", Key: unsafe.String(&key[0], len(key)), Lease: unsafe.String(&lease[0], len(lease)), Cost: 2}}
	w := newWaiter().(*waiter)
	w.own(ops)
	key[0], lease[0], ops[0] = 'x', 'x', core.Op{}
	if want := (core.Op{Rule: "r", Key: "key", Lease: "lease", Cost: 2}); len(w.ops) != 1 || w.ops[0] != want || len(w.out) != 1 {
		t.Errorf("%+v, room for %d", w.ops, len(w.out))
	}
}
