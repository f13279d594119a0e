package limiter_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

// A page shows a customer what is left of a monthly quota, and when the next month of the
// customer begins.
func ExampleLimiter_Peek() {
	quota := limiter.Rule{Name: "quota", Limit: core.MustParseLimit("10000/month tz=Europe/Berlin start=15")}
	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{quota}})
	if _, err := l.Take(context.Background(), "alice", 700); err != nil {
		log.Fatal(err)
	}

	list, err := l.Peek(context.Background(), "alice")
	if err != nil {
		log.Fatal(err)
	}

	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		log.Fatal(err)
	}

	d := list[0].Decision
	next := time.UnixMicro(d.At).Add(d.ResetAfter).In(berlin)
	fmt.Println(d.Remaining, "of", quota.Limit.Quota, "are left until day", next.Day(), "at", next.Format("15:04"))
	// Output:
	// 9300 of 10000 are left until day 15 at 00:00
}
