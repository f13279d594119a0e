package core_test

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
)

func ExampleParseLimit() {
	for _, text := range []string{"5/s", "100/1m burst=20", "20 concurrent ttl=30s", "0/1m"} {
		l, err := core.ParseLimit(text)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(l, "at most", l.Capacity(), "at once")
	}
	// Output:
	// 5/1s at most 5 at once
	// 100/1m burst=20 at most 20 at once
	// 20 concurrent ttl=30s at most 20 at once
	// limit "0/1m": quota 0 is not positive
}

// A store decides a step with the states of its keys and the time of its clock.
func ExampleDecide() {
	ops := []core.Op{{Verb: core.Take, Rule: "api", Key: "alice", Limit: core.MustParseLimit("5/10s"), Cost: 1}}
	if err := core.CheckOps(ops, make([]core.Decision, 1)); err != nil {
		fmt.Println(err)
		return
	}
	var state core.State
	out := make([]core.Decision, 1)
	for at := time.Duration(0); at < 5*time.Second; at += 500 * time.Millisecond {
		core.Decide(ops, []*core.State{&state}, at.Microseconds(), out)
		fmt.Println(at, out[0].Allowed, out[0].Remaining, out[0].RetryAfter)
	}
	// Output:
	// 0s true 4 0s
	// 500ms true 3 0s
	// 1s true 2 0s
	// 1.5s true 1 0s
	// 2s true 1 0s
	// 2.5s true 0 0s
	// 3s false 0 1s
	// 3.5s false 0 500ms
	// 4s true 0 0s
	// 4.5s false 0 1.5s
}
