// The suite is run as
//
//	go -C internal/test/faults test .
//	HEADGATE_LONG=1 go -C internal/test/faults test -timeout 20m .
//	HEADGATE_LONG=1 go -C internal/test/faults test . -run 'Faults/standalone/garbage' -count=20
//	go -C internal/test/faults test . -count=5 -timeout 120m -args -table $PWD/docs/faults.md
//
// and needs redis-server. The first form inflicts a few faults and the second all
// of them. The last writes what was measured as a table: the worst of all runs. Each place is there
// twice: with clients of go-redis, and with those of rueidis. The suite is a module of its own,
// because the root does without rueidis.

package faults

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test"
)

// results holds the results of all runs; -count may ask for many.
var results table

var tableFile = flag.String("table", "", "write what was measured to this file, as a table in Markdown")

// quiet drops the log of the Redis client, whose errors are intended here.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	flag.Parse()
	redis.SetLogger(quiet{})

	// Without a table to be written, several faults run at the same time, since most of their time
	// is waiting.
	if *tableFile == "" && !given("test.parallel") {
		flag.Set("test.parallel", strconv.Itoa(atOnce*runtime.GOMAXPROCS(0)))
	}

	code := m.Run()

	// The table is written even if promises did not hold: it shows which.
	if *tableFile != "" {
		if err := os.WriteFile(*tableFile, []byte(results.markdown()), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}

	test.Exit(code, test.SentinelLeak()...)
}

// given reports whether a flag is on the command line.
func given(name string) (found bool) {
	flag.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// TestFaults inflicts the faults of every run of the tests.
func TestFaults(t *testing.T) {
	t.Parallel()
	inflict(t, func(f fault) bool { return f.brief })
}

// TestMoreFaults inflicts the other faults.
func TestMoreFaults(t *testing.T) {
	if *tableFile == "" {
		test.Long(t, "it inflicts every other fault, behind TLS, Sentinels and in a Cluster too")
	}
	inflict(t, func(f fault) bool { return !f.brief })
}

// inflict runs the chosen faults.
func inflict(t *testing.T, chosen func(fault) bool) {
	w := newWaits()
	defer w.stop()

	// The waits are measured over all places together: they share the machine.
	for _, p := range []place{
		{"standalone", openStandalone, standaloneFaults(), goRedis},
		{"tls", openTLS, tlsFaults(), goRedis},
		{"sentinel", openSentinel, sentinelFaults(), goRedis},
		{"cluster", openCluster, clusterFaults(), goRedis},

		{"standalone-rueidis", openStandalone, standaloneFaults(), viaRueidis},
		{"tls-rueidis", openTLS, tlsFaults(), viaRueidis},
		{"sentinel-rueidis", openSentinel, sentinelFaults(), viaRueidis},
		{"cluster-rueidis", openCluster, clusterFaults(), viaRueidis},
	} {
		t.Run(p.name, func(t *testing.T) {
			for _, f := range p.faults {
				if !chosen(f) {
					continue
				}

				t.Run(f.name, func(t *testing.T) {
					t.Parallel()
					f.run(t, p, w, &results)
				})
			}
		})
	}
}
