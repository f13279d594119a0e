package limiter_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/store/memstore"
)

// counting is an Observer that counts verdicts, as a package of metrics does.
type counting struct {
	requests, decisions [events.Verdicts]atomic.Int64
}

func (c *counting) Observe(_ context.Context, e *events.Request) {
	c.requests[e.Verdict].Add(1)
	for i := range e.Rules {
		c.decisions[e.Rules[i].Verdict].Add(1)
	}
}

// counterOfAll is a counting that is a Counter too.
type counterOfAll struct {
	counting
	plain, decisions atomic.Int64
}

func (c *counterOfAll) CountRequest(context.Context, events.Plain) { c.plain.Add(1) }

func (c *counterOfAll) RuleCounter(string) events.RuleCounter { return c }

func (c *counterOfAll) Count(context.Context, events.Verdict) { c.decisions.Add(1) }

// BenchmarkObserver compares decisions with and without an Observer that counts, one that is
// a Counter, and hooks besides.
func BenchmarkObserver(b *testing.B) {
	for _, n := range []int{1, 3} {
		for _, row := range []struct {
			name string
			set  func(*limiter.Config)
		}{
			{"none", func(*limiter.Config) {}},
			{"counting", func(c *limiter.Config) { c.Observer = &counting{} }},
			{"counter", func(c *limiter.Config) { c.Observer = &counterOfAll{} }},
			{"counting and hooks", func(c *limiter.Config) {
				c.Observer = &counting{}
				c.Hooks = &events.Hooks{Queue: func(events.Queue) {}, Lease: func(events.Lease) {},
					Units: func(events.Units) {},
					Ban:   func(events.Ban) {}, StoreCall: func(events.StoreCall) {}}
			}},
		} {
			b.Run(fmt.Sprintf("rules=%d/%s", n, row.name), func(b *testing.B) {
				c := limiter.Config{Store: memstore.MustNew(memstore.Options{})}
				for i := range n {
					c.Rules = append(c.Rules, rule(b, fmt.Sprint("r", i), "1000000000/1s"))
				}

				row.set(&c)
				l := limiter.MustNew(c)
				defer l.Close()

				b.ReportAllocs()
				for b.Loop() {
					if d, err := l.Allow(b.Context(), "k", 1); err != nil || !d.Allowed {
						b.Fatal(d, err)
					}
				}
			})
		}
	}
}
