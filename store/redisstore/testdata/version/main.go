// Version is a service of one version of the library: for each line on its standard input,
// which is an order in JSON, it makes many calls at once and writes a report, in JSON too. The
// test that runs it builds it of two commits.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/store/redisstore"
)

// ban is a core.Ban whose form in JSON is that of its fields in every version.
type ban struct {
	Strikes          int64
	Within, For, Max time.Duration
}

// order is what the test asks for: N calls by so many callers.
type order struct {
	Limit, Key, Lease string
	Verb              core.Verb
	Cost              int64
	N, Callers        int
	Ban               *ban
}

// report counts the decisions on the calls of an order.
type report struct {
	Allowed, Banned, Errors, Taken atomic.Int64
	err                            atomic.Pointer[string] // the first error
}

func (r *report) MarshalJSON() ([]byte, error) {
	fields := map[string]any{
		"Allowed": r.Allowed.Load(), "Banned": r.Banned.Load(), "Errors": r.Errors.Load(), "Taken": r.Taken.Load(),
	}
	if err := r.err.Load(); err != nil {
		fields["Err"] = *err
	}
	return json.Marshal(fields)
}

func main() {
	addr := flag.String("redis", "", "address of the server")
	prefix := flag.String("prefix", "", "prefix of the keys")
	now := flag.Int64("now", 0, "the instant of all calls")
	flag.Parse()
	c := redis.NewClient(&redis.Options{Addr: *addr, ContextTimeoutEnabled: true, ReadTimeout: time.Minute})
	clock := func() int64 { return *now }
	s := redisstore.MustNew(c, redisstore.Options{Prefix: *prefix, Timeout: time.Minute, Clock: clock})
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for in.More() {
		var o order
		if err := in.Decode(&o); err != nil {
			log.Fatal(err)
		}
		if err := out.Encode(carryOut(s, &o, *now)); err != nil {
			log.Fatal(err)
		}
	}
}

// carryOut makes the calls of an order.
func carryOut(s *redisstore.Store, o *order, now int64) *report {
	l, err := core.ParseLimit(o.Limit)
	if err != nil {
		log.Fatal(err)
	}
	var r report
	var next atomic.Int64
	var all sync.WaitGroup
	for range o.Callers {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(o.N); i = next.Add(1) - 1 {
				op := core.Op{Verb: o.Verb, Rule: "r", Key: o.Key, Limit: l, Windows: l.Windows(now), Cost: o.Cost, Ban: (*core.Ban)(o.Ban)}
				if l.Leased() {
					op.Lease = fmt.Sprint(o.Lease, i)
				}
				r.ask(s, op)
			}
		})
	}
	all.Wait()
	return &r
}

// ask makes a call and counts its decision.
func (r *report) ask(s *redisstore.Store, op core.Op) {
	out := make([]core.Decision, 1)
	if err := s.Apply(context.Background(), []core.Op{op}, out); err != nil {
		text := err.Error()
		r.Errors.Add(1)
		r.err.CompareAndSwap(nil, &text)
		return
	}
	if out[0].Allowed {
		r.Allowed.Add(1)
	}
	if out[0].Banned {
		r.Banned.Add(1)
	}
	r.Taken.Add(out[0].Taken)
}
