package memstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// reset is a Reset of the key.
func reset(key string, l core.Limit) core.Op {
	op := takes(key, l)
	op.Verb = core.Reset
	return op
}

// A key that was reset is held, and its bytes are counted, until its takes are void no longer.
func TestVoidTakesAreHeldAsLongAsNeeded(t *testing.T) {
	l := limit("5/1h fixed-window")
	s, c := bounded(t)
	empty := s.Bytes()
	op := takes("key", l)
	d := do(t, s, op)[0]
	held := s.Bytes()

	// A reset makes the Take before it void: its refund, which may still come, must give nothing
	// back. The store has to remember that.
	c.move(time.Minute)
	do(t, s, reset("key", l))
	if s.Len() != 1 || s.Bytes() != held+asideBytes {
		t.Errorf("%d keys, %d bytes, want 1 and %d", s.Len(), s.Bytes(), held+asideBytes)
	}
	checkCounts(t, s)

	// The Take after the reset counts; the refund of the one before does not.
	do(t, s, op)
	if d := do(t, s, op.Refund(d))[0]; d.Remaining != 4 {
		t.Errorf("%d remain after a void refund", d.Remaining)
	}

	// It is remembered until the window of the void Take would have ended, to the microsecond.
	c.move(time.Hour - time.Minute - time.Microsecond)
	s.shards[0].sweep(c.read(), 100, 0)
	do(t, s, op)
	if s.Len() != 1 || s.Bytes() != held+asideBytes {
		t.Errorf("%d keys, %d bytes a microsecond before, want 1 and %d", s.Len(), s.Bytes(), held+asideBytes)
	}

	c.move(time.Microsecond)
	do(t, s, op)
	if s.Bytes() != held {
		t.Errorf("%d bytes once no take is void, want %d", s.Bytes(), held)
	}

	c.move(time.Hour)
	s.shards[0].sweep(c.read(), 100, 0)
	if s.Len() != 0 || s.Bytes() != empty {
		t.Errorf("%d keys, %d bytes, want 0 and %d", s.Len(), s.Bytes(), empty)
	}
}

// Where strikes have no room, resets have none either: the key is forgotten.
func TestResetsNeverTakeTheRoomOfBuckets(t *testing.T) {
	l := limit("5/1h fixed-window")
	s, _ := bounded(t)

	// The store is filled to the last key of its part.
	n := 0
	for ; s.Bytes() <= s.keyBytes-bytesOf(len("k"), &l, s.classIDOf(t, l)); n++ {
		do(t, s, takes(fmt.Sprint(n), l))
	}

	// Each reset needs bytes to remember; where they are missing, the key goes instead. The
	// buckets' part is never used.
	for i := range n {
		do(t, s, reset(fmt.Sprint(i), l))
		if s.Bytes() > s.struckBytes {
			t.Fatalf("%d bytes after %d resets, want at most %d", s.Bytes(), i+1, s.struckBytes)
		}
	}

	// Both happened: some resets are remembered, and some keys went.
	if kept := s.Len(); kept == 0 || kept == n {
		t.Errorf("%d of %d keys are held", kept, n)
	}
	checkCounts(t, s)
}
