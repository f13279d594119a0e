package faults

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/headgate/headgate/internal/test"
	"github.com/redis/go-redis/v9"
)

// results are those of all runs, of which -count may ask for many.
var results table

var tableFile = flag.String("table", "", "write what was measured to this file, as a table in Markdown")

// quiet drops what the Redis client logs: here its every complaint is asked for.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	flag.Parse()
	redis.SetLogger(quiet{})
	if *tableFile == "" && !given("test.parallel") {
		flag.Set("test.parallel", strconv.Itoa(atOnce*runtime.GOMAXPROCS(0)))
	}
	code := m.Run()
	if *tableFile != "" {
		if err := os.WriteFile(*tableFile, []byte(results.markdown()), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	test.Exit(code)
}

// given reports whether a flag stands on the command line.
func given(name string) (found bool) {
	flag.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// TestFaults inflicts those faults that every run of the tests does.
func TestFaults(t *testing.T) {
	t.Parallel()
	inflict(t, func(f fault) bool { return f.brief })
}

// TestMoreFaults inflicts all others.
func TestMoreFaults(t *testing.T) {
	if *tableFile == "" {
		test.Long(t, "it inflicts every other fault, behind TLS, Sentinels and in a Cluster too")
	}
	inflict(t, func(f fault) bool { return !f.brief })
}

// inflict runs those faults that are chosen.
func inflict(t *testing.T, chosen func(fault) bool) {
	w := newWaits()
	defer w.stop()
	for _, p := range []place{
		{"standalone", openStandalone, standaloneFaults()},
		{"tls", openTLS, tlsFaults()},
		{"sentinel", openSentinel, sentinelFaults()},
		{"cluster", openCluster, clusterFaults()},
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
