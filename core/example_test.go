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

// The cost of a request is known when it has ended. Beyond the limit it is a debt, for
// which later requests wait.
func ExampleDecide_debit() {
	var state core.State
	out := make([]core.Decision, 1)
	for _, step := range []struct {
		at   time.Duration
		verb core.Verb
		cost int64
	}{
		// The second request turns out to cost 11, of which 5 are beyond what remained.
		{0, core.Take, 4},
		{1 * time.Second, core.Debit, 11},
		{1 * time.Second, core.Take, 1},
		{6 * time.Second, core.Take, 1},
		{6 * time.Second, core.Debit, 100},
	} {
		op := core.Op{Verb: step.verb, Rule: "tokens", Key: "alice", Limit: core.MustParseLimit("10/10s debt=5"),
			Cost: step.cost}

		core.Decide([]core.Op{op}, []*core.State{&state}, step.at.Microseconds(), out)
		d := out[0]
		fmt.Println(step.at, step.verb, step.cost, "charged", d.Taken, "remain", d.Remaining, "retry", d.RetryAfter,
			"fresh", d.ResetAfter)
	}

	// Output:
	// 0s take 4 charged 4 remain 6 retry 0s fresh 4s
	// 1s debit 11 charged 11 remain 0 retry 0s fresh 14s
	// 1s take 1 charged 0 remain 0 retry 5s fresh 14s
	// 6s take 1 charged 1 remain 0 retry 0s fresh 10s
	// 6s debit 100 charged 5 remain 0 retry 0s fresh 15s
}

// A quota follows the days of a time zone. In Berlin the last Sunday of March has 23 hours.
func ExampleLimit_Windows() {
	limit, state, out := core.MustParseLimit("5/day tz=Europe/Berlin"), core.State{}, make([]core.Decision, 1)
	for _, step := range []struct {
		utc   string
		units int64
	}{
		// Five units on the 28th, and the sixth a second before and at Berlin's midnight, which is
		// 23:00 UTC.
		{"2026-03-28T11:00:00Z", 5},
		{"2026-03-28T22:59:59Z", 1},
		{"2026-03-28T23:00:00Z", 5},
		{"2026-03-29T10:00:00Z", 1},
	} {
		at, _ := time.Parse(time.RFC3339, step.utc)
		now := at.UnixMicro()
		op := core.Op{Verb: core.Take, Rule: "quota", Key: "alice", Limit: limit, Windows: limit.Windows(now),
			Cost: step.units}

		core.Decide([]core.Op{op}, []*core.State{&state}, now, out)
		fmt.Println(step.utc, step.units, out[0].Allowed, "remain", out[0].Remaining, "retry", out[0].RetryAfter,
			"fresh", out[0].ResetAfter)
	}

	// Output:
	// 2026-03-28T11:00:00Z 5 true remain 0 retry 0s fresh 12h0m0s
	// 2026-03-28T22:59:59Z 1 false remain 0 retry 1s fresh 1s
	// 2026-03-28T23:00:00Z 5 true remain 0 retry 0s fresh 23h0m0s
	// 2026-03-29T10:00:00Z 1 false remain 0 retry 12h0m0s fresh 12h0m0s
}

// A store decides a step with the states of its keys and the time of its clock.
func ExampleDecide() {
	// A store checks the ops once, before it reads any state.
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

func Example() {
	limit := core.MustParseLimit("5/10s")
	ops := []core.Op{{Verb: core.Take, Rule: "api", Key: "alice", Limit: limit, Cost: 1}}

	var state core.State // what a store keeps of the key
	out := make([]core.Decision, 1)
	core.Decide(ops, []*core.State{&state}, time.Now().UnixMicro(), out)
	fmt.Println(out[0].Allowed, out[0].Remaining)
	// Output: true 4
}
