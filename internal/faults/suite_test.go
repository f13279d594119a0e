package faults

import (
	"context"
	"flag"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
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
	goleak.VerifyTestMain(m)
}

func TestFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("\n" +
			"**********************************************************************\n" +
			"* NO FAULT WAS EXERCISED: -short leaves the fault suite out.\n" +
			"**********************************************************************")
	}
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
				t.Run(f.name, func(t *testing.T) {
					t.Parallel()
					f.run(t, p, w, repeats, &results)
				})
			}
		})
	}
	if *tableFile == "" {
		return
	}
	if err := os.WriteFile(*tableFile, []byte(results.markdown()), 0o644); err != nil {
		t.Error(err)
	}
}
