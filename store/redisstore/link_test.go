//go:build !race

// The race detector makes frames larger.

package redisstore

import (
	"testing"
	"unsafe"

	"github.com/redis/go-redis/v9"
)

// A call of the client in a new goroutine fits into the stack that was reserved for it: a stack
// that grows is moved, and its variables get other addresses.
func TestStackIsReserved(t *testing.T) {
	c := redis.NewClient(&redis.Options{Addr: mini(t).Addr()})
	t.Cleanup(func() { c.Close() })
	if err := c.Ping(t.Context()).Err(); err != nil { // connects
		t.Fatal(err)
	}

	moved := make(chan bool)
	go func() {
		reserveStack()
		var here byte
		before := uintptr(unsafe.Pointer(&here))
		if err := c.Eval(t.Context(), "return {1, 2}", []string{"key"}, 1, 2, 3).Err(); err != nil {
			t.Error(err)
		}
		moved <- before != uintptr(unsafe.Pointer(&here))
	}()
	if <-moved {
		t.Error("the stack grew during a call of the client")
	}

	if n := testing.AllocsPerRun(100, reserveStack); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
