package main

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
)

// Each number of callers is measured, and nothing is left behind, in a Cluster too.
func TestBenchMeasuresAndLeavesNothing(t *testing.T) {
	server := redistest.Start(t)
	nodes := redistest.Cluster(t, 3)
	for url, servers := range map[string][]*redistest.Server{
		"redis://" + server.Addr: {server},
		"redis+cluster://" + strings.Join(redistest.Addrs(nodes), ","): nodes,
	} {
		got := call(t, "", "bench", "-for", "1s", "-json", "-redis", url)
		var b benchResult
		if err := json.Unmarshal([]byte(got.out), &b); err != nil || len(b.Rounds) != 3 {
			t.Fatalf("%v: %s%s", err, got.out, got.err)
		}

		for i, r := range b.Rounds {
			if r.Callers != rounds[i].callers || !r.sound() {
				t.Errorf("%+v", r)
			}
		}
		if (got.code == fine) != b.Fits {
			t.Errorf("exit code %d, and it fits: %t", got.code, b.Fits)
		}

		// The scripts stay, and no key does.
		for _, s := range servers {
			if n := direct(t, s).DBSize(t.Context()).Val(); n != 0 {
				t.Errorf("%d keys are left in %s", n, s.Addr)
			}
		}
	}
}

// sound reports whether the figures fit each other.
func (r *roundResult) sound() bool {
	times := 0 < r.P50 && r.P50 <= r.P99 && 0 < r.PingP50 && r.PingP50 <= r.PingP99
	return times && r.Decisions > 0 && r.Failed == 0 && r.OfPing == float64(r.P50)/float64(r.PingP50)
}

func TestBenchRemovesItsKeysAfterAnInterrupt(t *testing.T) {
	server := redistest.Start(t)
	c := direct(t, server)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()

	// The interrupt comes while there are keys.
	go func() {
		for c.DBSize(ctx).Val() == 0 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		interrupt()
	}()

	var out strings.Builder
	e := &env{out: &out, err: &out, ctx: ctx}
	code := run(e, []string{"bench", "-for", "30s", "-redis", "redis://" + server.Addr})
	if code != usage || out.String() != "headgate: bench: interrupted; the keys are removed\n" {
		t.Errorf("exit code %d: %s", code, out.String())
	}
	if n := c.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}

func TestBenchRefusesWhatCannotBe(t *testing.T) {
	for args, want := range map[string]string{
		"-for soon":                    "invalid value",
		"-for 0":                       "-for: 0s is not within 1s to 1m",
		"-for 0s":                      "-for: 0s is not within 1s to 1m",
		"-for 61s":                     "-for: 1m1s is not within 1s to 1m",
		"-for -1s":                     "-for: -1s is not within 1s to 1m",
		"now":                          `"now" is no flag`,
		"-redis redis://127.0.0.1:1":   "the Redis at 127.0.0.1:1: it cannot be reached",
		"-redis redis://h -prefix {a}": "-prefix: ",
	} {
		call(t, "", append([]string{"bench"}, strings.Fields(args)...)...).want(t, usage, want)
	}
}

// The sentence says whether 99 of 100 decisions are in time with every number of callers.
func TestBenchSaysWhetherTheTimeSuffices(t *testing.T) {
	print := func(r roundResult, err string) result {
		b := &benchResult{BudgetMS: 50, Fits: r.fits(), Error: err, Rounds: []roundResult{r}}
		var out strings.Builder
		code := b.print(&env{out: &out}, false)
		return result{code: code, out: out.String()}
	}
	quick := roundResult{Callers: 10, Decisions: 12000, Seconds: 2, P50: 200, P99: 50_000, PingP50: 100, PingP99: 300,
		OfPing: 2, Documented: 1.7, Late: 12}

	print(quick, "").want(t, fine, "       10        6,000  200µs  50ms     100µs     300µs            2.0         1.7\n",
		"the 50 ms of a call suffice: 99 of 100 decisions took at most 50ms; 12 of 12,000 took longer\n")

	slow, broken := quick, quick
	slow.P99 = 50_001
	print(slow, "").want(t, findings, "the 50 ms of a call do not suffice: 12 of 12,000 decisions took longer, and 0 failed")
	broken.Failed = 3
	print(broken, "no answer\x1b").want(t, findings, "and 3 failed; ", `the first that failed: no answer\x1b`)
}

func TestSamples(t *testing.T) {
	for _, span := range []time.Duration{time.Nanosecond, 20 * time.Millisecond} {
		calls := 0
		s := measure(t.Context(), 1, span, func(context.Context, int) error {
			if calls++; calls%2 == 0 {
				return errors.New("even")
			}
			return nil
		})

		// The first call is none of the sample, which has at least one, and every second has
		// failed.
		if n := len(s.took) + s.failed; n != calls-1 || s.failed != calls/2 || s.err == nil {
			t.Errorf("%s: %d of %d calls, %d failed, %v", span, n, calls, s.failed, s.err)
		}
	}

	s := &sample{}
	for i := range 200 {
		s.took = append(s.took, time.Duration(i+1)*time.Millisecond)
	}
	if s.part(50) != 100_000 || s.part(99) != 198_000 || s.above(50*time.Millisecond) != 150 {
		t.Errorf("%d %d %d", s.part(50), s.part(99), s.above(50*time.Millisecond))
	}
}

// What is documented is what the page of benchmarks says, to about a quarter.
func TestBenchmarksSayWhatIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), "### Redis: decisions a second by number of callers\n")
	if !ok {
		t.Fatal("the table is missing")
	}

	// A row has the name, and the rate of each number of callers. Each of these asks again once it
	// is answered, so a lower rate is a longer time in proportion.
	rates := map[string][]string{}
	for line := range strings.Lines(table) {
		if strings.HasPrefix(line, "#") {
			break
		}
		if cells := strings.Split(line, " | "); len(cells) > 3 {
			rates[strings.TrimPrefix(cells[0], "| ")] = cells[1:]
		}
	}

	for i, r := range rounds {
		is := rateOf(t, rates["PING, go-redis"][i]) / rateOf(t, rates["headgate"][i])
		if math.Abs(is/r.documented-1) > 0.25 {
			t.Errorf("with %d callers a decision takes %.1f times a PING by the page, and %.1f by the command",
				r.callers, is, r.documented)
		}
	}
}

// rateOf reads a rate as the page writes it, such as 6239 or 15k.
func rateOf(t *testing.T, cell string) float64 {
	t.Helper()

	digits, thousands := strings.CutSuffix(cell, "k")
	rate, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		t.Fatal(err)
	}
	if thousands {
		rate *= 1000
	}
	return rate
}
