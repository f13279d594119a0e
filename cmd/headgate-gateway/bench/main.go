// Bench measures the gateway's face for Envoy: decisions a second, how long they take, and
// the CPU time of the service and of Redis for each, at 1, 10, 100 and 1000 callers over at
// most ten connections. It prints Markdown.
//
//	go -C cmd/headgate-gateway run ./bench [-quick]
//
// It starts a redis-server, which has to be in the PATH, and the gateway's face in a process
// of its own. Each call has one descriptor, which names one of 10,000 users, each with
// 100,000,000 requests an hour.
//
// Another rate limit service for Envoy can be measured beside it, in rounds that take turns, so
// that other work of the machine hits both alike. Start a redis-server and that service on it, with
// the domain bench and a limit by the key user, and name them:
//
//	go -C cmd/headgate-gateway run ./bench \
//	  -redis 127.0.0.1:6379 -rival 127.0.0.1:8081 -rival-pid 4711
//
// For envoyproxy/ratelimit the configuration is the one that -config prints. Ratios carry over
// to other machines, the figures do not. The last table has them, and the bounds that they have to
// keep; with -guard the program fails if one is not kept.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"
)

// config is the folder's file of both services.
const config = `domain: bench
descriptors:
- key: user
  rate_limit: {unit: hour, requests_per_unit: 100000000}
`

func main() {
	var b bench
	flag.StringVar(&b.redis, "redis", "", "the `address` of a Redis; without it one is started")
	flag.StringVar(&b.rival, "rival", "", "the `address` of another service, on the same Redis")
	flag.IntVar(&b.rivalPID, "rival-pid", 0, "the process `id` of that service")
	flag.IntVar(&b.rounds, "rounds", 7, "how many rounds each service has at each number of callers")
	flag.DurationVar(&b.round, "round", 2*time.Second, "how long a round takes")
	flag.StringVar(&b.profile, "profile", "", "write a CPU profile of the gateway into this `file`")
	flag.IntVar(&b.callers, "callers", 0, "measure at this number of callers only")
	flag.IntVar(&b.decisions, "decisions", 0, "how many decisions the gateway makes at a time; 0 means its default")
	quick := flag.Bool("quick", false, "measure for a shorter time")
	guard := flag.Bool("guard", false, "fail if a bound is not kept")
	show := flag.Bool("config", false, "print the configuration file and exit")
	serving := flag.String("serve", "", "serve as the gateway on this Redis; the program calls itself so")
	flag.Parse()

	if *show {
		fmt.Print(config)
		return
	}

	if *quick {
		b.rounds, b.round = 3, 500*time.Millisecond
	}

	// The gateway is measured in a process of its own, as its rival is.
	ctx := context.Background()
	if *serving != "" {
		if err := serve(ctx, *serving, b.profile, b.decisions); err != nil {
			fail(err)
		}
		return
	}

	kept, err := b.run(ctx)
	if err != nil {
		fail(err)
	}
	if *guard && !kept {
		fail(fmt.Errorf("a bound is not kept"))
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(1)
}
