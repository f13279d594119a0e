package redisstore

import (
	"testing"
	"unsafe"

	"github.com/headgate/headgate/core"
)

// A framework's strings may change as soon as their request has ended, and a
// flight may read the step of a caller who has left.
func TestAWaitingCallerOwnsWhatItAsks(t *testing.T) {
	key, lease := []byte("key"), []byte("lease")
	ops := []core.Op{{Rule: "r", Key: unsafe.String(&key[0], len(key)), Lease: unsafe.String(&lease[0], len(lease)), Cost: 2}}
	c := newCaller().(*caller)
	c.own(ops)
	key[0], lease[0], ops[0] = 'x', 'x', core.Op{}
	if want := (core.Op{Rule: "r", Key: "key", Lease: "lease", Cost: 2}); len(c.ops) != 1 || c.ops[0] != want || len(c.out) != 1 {
		t.Errorf("%+v, room for %d", c.ops, len(c.out))
	}
}
