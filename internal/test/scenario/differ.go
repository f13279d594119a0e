package scenario

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/store/memstore"
)

// Differ plays the same random requests twice: to metrics that count plain requests, and to
// ones that observe every request. Both have to say the same all the time. start is that of
// Play. Its metrics should have room for few rules, so that rules share a place and one that
// was removed gives its place to another.
func Differ(t *testing.T, start func(t *testing.T) (install func(*limiter.Config), read func() []string)) {
	for seed := range uint64(20) {
		// An observer of every request is not asked to count plain ones.
		counted, asked := random(t, seed, start, false)
		observed, none := random(t, seed, start, true)
		if asked == 0 || none != 0 {
			t.Fatalf("seed %d: %d and %d plain requests were counted without an event", seed, asked, none)
		}

		for i := range counted {
			if !slices.Equal(counted[i], observed[i]) {
				t.Fatalf("seed %d, reading %d: with RuleCounter instead of Observe\n%s",
					seed, i, difference(counted[i], observed[i]))
			}
		}
	}
}

// random plays random requests, and returns what each reading said, and how many requests were
// plain and counted.
func random(t *testing.T, seed uint64, start func(t *testing.T) (func(*limiter.Config), func() []string),
	observe bool) (readings [][]string, plain int) {

	synctest.Test(t, func(t *testing.T) {
		install, read := start(t)
		d := &dice{Rand: rand.New(rand.NewPCG(seed, 0))}
		memory := memstore.MustNew(memstore.Options{Logger: slog.New(slog.DiscardHandler)})
		store := apply(func(ctx context.Context, ops []core.Op, out []core.Decision) error {
			if d.down {
				return errors.New("down")
			}
			return memory.Apply(ctx, ops, out)
		})

		var limiters [3]*limiter.Limiter
		for i := range limiters {
			c := limiter.Config{Logger: slog.New(slog.DiscardHandler), Rules: d.rules(), Store: store}
			install(&c)

			// A Func observes requests and counts none, whatever the observer in it can do.
			if observe {
				c.Observer = events.Func(c.Observer.Observe)
			} else {
				c.Observer = counting{c.Observer.(events.Counter), &plain}
			}
			limiters[i] = limiter.MustNew(c)
			defer limiters[i].Close()
		}

		for range 600 {
			d.step(t, limiters[d.IntN(len(limiters))])
			if d.IntN(20) == 0 {
				synctest.Wait()
				readings = append(readings, sorted(read()))
			}
		}

		// Leases that are held at the last reading end after it.
		for _, end := range d.ends {
			end()
		}
	})
	return readings, plain
}

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}

// counting is a Counter that also counts how often it is called.
type counting struct {
	events.Counter
	n *int
}

func (c counting) CountRequest(ctx context.Context, r events.Plain) {
	*c.n++
	c.Counter.CountRequest(ctx, r)
}

// dice says what happens.
type dice struct {
	*rand.Rand
	down bool
	ends []func()
}

// rules returns up to three rules of six names, each under any limit and action.
func (d *dice) rules() (list []limiter.Rule) {
	names := d.Perm(6)
	for _, n := range names[:1+d.IntN(3)*d.IntN(2)] {
		texts := []string{"2/10s", "3/1m fixed-window", "100/1m burst=50", "2 concurrent ttl=1h"}
		r := limiter.Rule{Name: fmt.Sprint("r", n), OnStoreError: limiter.FailOpen, Limit: limit(texts[d.IntN(4)])}
		if !r.Limit.Leased() {
			r.OnLimit = []limiter.Action{limiter.Reject, limiter.Shadow, limiter.Degrade}[d.IntN(3)]
		}
		list = append(list, r)
	}
	return list
}

// step makes one request, or changes the rules, the store or the time.
func (d *dice) step(t *testing.T, l *limiter.Limiter) {
	ctx := t.Context()
	switch d.IntN(40) {
	case 0, 1:
		if err := l.SetRules(d.rules()); err != nil {
			t.Fatal(err)
		}
	case 2:
		time.Sleep(16 * time.Minute) // rules that are no longer in force are forgotten
	case 3:
		d.down = !d.down
	case 4:
		l.Close() // it goes on deciding, and its rules are in force no more
	case 5, 6:
		_, _ = l.TakeUpTo(ctx, d.key(), d.Int64N(3))
	case 7, 8:
		ctx, end := context.WithTimeout(ctx, time.Duration(d.IntN(20))*time.Second)
		_, _ = l.TakeWithin(ctx, d.key(), 1, time.Minute)
		end()
	case 9:
		time.Sleep(time.Duration(d.IntN(10)) * time.Second)
	default:
		res, _ := l.Take(ctx, d.key(), []int64{0, 1, 1, 1, 1, 2}[d.IntN(6)])

		// A lease is released some requests later.
		if res.HoldsLeases() {
			d.ends = append(d.ends, func() { _ = res.Release(context.Background()) })
		}
		if len(d.ends) > 0 && d.IntN(3) == 0 {
			d.ends[0]()
			d.ends = d.ends[1:]
		}
	}
}

func (d *dice) key() string { return fmt.Sprint("k", d.IntN(3)) }
