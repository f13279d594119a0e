package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test"
)

// wrkThreads is how many threads of wrk send requests, one at a time each.
const wrkThreads = 4

// tally is how many requests were sent, and how they were answered.
type tally struct{ sent, ok, refused int64 }

func (a *tally) add(b tally) {
	a.sent += b.sent
	a.ok += b.ok
	a.refused += b.refused
}

// startWrk runs a wrk that sends n requests to an address. n is a multiple of wrkThreads.
func startWrk(t testing.TB, address string, n int) *program {
	t.Helper()
	return run(t, "wrk", test.Program(t, "wrk", "wrk"), nil,
		"--threads", strconv.Itoa(wrkThreads),
		"--connections", strconv.Itoa(wrkThreads),
		"--duration", fmt.Sprintf("%.0fs", patience.Seconds()),
		"--script", filepath.Join("testdata", "exact.lua"),
		"http://"+address+"/", "--", strconv.Itoa(n/wrkThreads))
}

var wrkSays = regexp.MustCompile(`^requests=(\d+) ok=(\d+) refused=(\d+) failed=(\d+)$`)

// tally waits until every thread of wrk has sent its requests, ends wrk, and returns its figures.
func (p *program) tally() tally {
	p.t.Helper()

	for i := range wrkThreads {
		p.await(0, regexp.MustCompile(fmt.Sprintf("^thread %d is done$", i+1)))
	}

	p.interrupt()
	says := p.await(0, wrkSays)

	var n [4]int64
	for i, text := range says[1:] {
		var err error
		if n[i], err = strconv.ParseInt(text, 10, 64); err != nil {
			p.t.Fatal(err)
		}
	}

	a := tally{n[0], n[1], n[2]}

	// A request that failed was neither admitted nor refused, so no sum would be right.
	if a.sent != a.ok+a.refused || n[3] != 0 {
		p.t.Errorf("wrk says %s", says[0])
	}
	return a
}

// interrupt has wrk end before its time and print its figures. wrk ignores the signal until it
// waits for its time to pass.
func (p *program) interrupt() {
	p.t.Helper()

	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()

	// Once is not enough, as a signal that comes too early is lost.
	for deadline := time.Now().Add(patience); ; {
		p.process.Signal(os.Interrupt)
		select {
		case <-p.ended:
			return
		case <-tick.C:
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s does not end within %s of an interrupt", p.name, patience)
		}
	}
}

// TestWrkSaysWhatAServerReceived compares the figures of wrk with those of a server.
func TestWrkSaysWhatAServerReceived(t *testing.T) {
	t.Parallel()
	var received atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if received.Add(1)%3 == 0 {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer server.Close()
	const n = 300 * wrkThreads
	got := startWrk(t, strings.TrimPrefix(server.URL, "http://"), n).tally()
	if want := (tally{n, n - n/3, n / 3}); got != want || received.Load() != n {
		t.Errorf("wrk says %+v, want %+v; the server received %d", got, want, received.Load())
	}
}
