package faults

import (
	"cmp"
	"context"
	"runtime/pprof"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
)

const (
	// added is the maximum delay of a request: the store's timeout and 20 ms.
	added = 70 * time.Millisecond

	// usual is how soon after a fault requests must be decided again, unless the
	// fault says otherwise.
	usual = time.Second

	// calm is the time without an undecided request after which a fault is over.
	calm = 250 * time.Millisecond

	// patience bounds every wait. It is long, because a busy machine delays
	// everything.
	patience = time.Minute

	// unhurried is the store's timeout under a fault that must not affect requests,
	// so that no request fails for lack of a processor.
	unhurried = 10 * time.Second
)

// sight is the effect of a fault on requests.
type sight int

const (
	whatever  sight = iota
	something       // some request cannot be decided, or the fault was none
	nothing         // every request is decided
)

// fault is one way in which the dependencies of a limiter fail.
type fault struct {
	name string

	// args are added to the server's command line.
	args []string

	// options changes the options of the clients.
	options func(*redis.Options)

	// inflict causes the fault and ends it before it returns.
	inflict func(s *scene)

	// brief reports whether every run of the tests inflicts the fault.
	brief bool

	sees sight

	// within replaces the store's timeout.
	within time.Duration

	// limits replace the usual limits of the rules that they name.
	limits map[string]string

	// unless are the rules whose requests may go undecided where sees is
	// nothing.
	unless []string

	// recovery is how soon after inflict all requests are meant to be decided
	// again; 0 means usual.
	recovery time.Duration

	// after checks what is special to the fault.
	after func(s *scene)
}

// timeout is the timeout of the store in Redis; 0 means its default.
func (f *fault) timeout() time.Duration {
	if f.sees == nothing {
		return unhurried
	}
	return f.within
}

// limitOf returns the limit of a rule under the fault.
func (f *fault) limitOf(rule string) string { return cmp.Or(f.limits[rule], limits[rule]) }

// place is a deployment of Redis.
type place struct {
	name   string
	open   func(t testing.TB, f *fault, c clients) *scene
	faults []fault
	clients
}

// scene holds the servers of a fault, and a lane for each mode.
type scene struct {
	t     testing.TB
	waits *waits
	lanes []*lane
	sees  sight

	server *redistest.Server            // that is met; nil in a Cluster
	admin  *redis.Client                // of that server, past all proxies
	past   func() redis.UniversalClient // makes a patient client for all that is kept
	all    redis.UniversalClient        // what past has made
	secret *password

	watched           *redistest.Watched  // by Sentinel
	masters, replicas []*redistest.Server // of a Cluster

	begun, lifted    time.Time
	losses           int       // how many times the server forgot
	lossFrom, lossTo time.Time // what was counted before and after is not lost
	elected          int       // how many masters the fault replaces
	surprised        bool      // a master was replaced that the fault left alone
}

// run puts every mode under load, inflicts the fault and checks the promises.
func (f fault) run(t *testing.T, p place, w *waits, results *table) {
	label := t.Name()

	// Goroutines that the fault starts have its label, by which those that outlive it are found.
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("fault", label)))
	t.Cleanup(func() { wantNoGoroutines(t, label) })

	s := p.open(t, &f, p.clients)
	s.t, s.waits, s.sees = t, w, f.sees
	if f.recovery == 0 {
		f.recovery = usual
	}

	// The waits of the servers for a processor are subtracted from times, as are those of this
	// process.
	for _, server := range s.servers() {
		w.add(server.Pid())
	}

	s.suffer(&f)
	entry := entry{fault: f.name, place: p.name}
	for _, l := range s.lanes {
		t.Run(l.mode.name, func(t *testing.T) { entry.of(s.verdictOf(t, &f, l)) })
	}

	s.wantNoImmortalKeys(t)
	if f.after != nil {
		f.after(s)
	}

	// The bounds are without the time in which no processor was free, so that a busy machine does
	// not break them.
	test.AtMost(t, "the longest that a request is held up, with a processor", entry.net, f.within+added)
	test.AtMost(t, "until Redis decides every request again", entry.recovery, f.recovery)

	results.add(entry, t.Failed())
}

// suffer puts the lanes under load before, during and after the fault.
func (s *scene) suffer(f *fault) {
	ctx, cancel := context.WithCancel(context.Background())
	var loads sync.WaitGroup

	// The loads end before the verdicts, whatever happens in between.
	defer loads.Wait()
	defer cancel()

	for _, l := range s.lanes {
		loads.Go(func() { l.load(ctx) })
	}

	// Redis decides before the fault begins: what goes undecided later is due to it.
	elections := s.elections()
	s.awaitRecovery("Redis decides before", time.Now(), 10*time.Second)
	s.begun = time.Now()
	f.inflict(s)

	s.lossTo = time.Now()

	// A fault that was over before inflict returned has set the instant itself.
	if s.lifted.IsZero() {
		s.lifted = s.lossTo
	}

	s.awaitRecovery("Redis decides again", s.lifted, f.recovery+time.Second)
	s.until("requests are settled again", s.settles)

	// A master that was replaced without the fault's doing has lost counts at an unknown time, so
	// the bounds have to allow for that.
	if n := s.elections() - elections - s.elected; n > 0 {
		s.t.Logf("%d masters were replaced for being silent: the machine had no processor for them", n)
		s.surprised, s.losses, s.lossFrom, s.lossTo = true, s.losses+n, time.Unix(0, 0), time.Now()
	}
}

// awaitRecovery waits for the limiters to recover within a time. If they do not, the
// machine may be too busy, and the load is reduced until Redis decides.
func (s *scene) awaitRecovery(what string, since time.Time, within time.Duration) {
	s.t.Helper()
	if s.poll(within, func() bool { return s.well(since) }) {
		return
	}
	s.ease(true)
	defer s.ease(false)
	if !s.poll(2*patience, func() bool { return s.decides(since) }) {
		s.t.Fatalf("%s: not within %v", what, 2*patience)
	}
}

// ease makes every lane send fewer requests, or as many as before.
func (s *scene) ease(on bool) {
	for _, l := range s.lanes {
		l.eased.Store(on)
	}
}

// decides reports whether the latest requests of every lane since an instant were
// decided, and one of the requests that share a key.
func (s *scene) decides(since time.Time) bool {
	const latest = 5
	for _, l := range s.lanes {
		some, shared := 0, false

		// Backwards from the latest request: old ones are of no interest, and there are many.
		hits := l.seen()
		for i := len(hits) - 1; i >= 0 && hits[i].from.After(since); i-- {
			if !hits[i].decided && some < latest {
				return false
			}
			some++
			shared = shared || hits[i].decided && hits[i].rule == "shared"
		}

		// Too few requests prove nothing.
		if some < latest || !shared {
			return false
		}
	}
	return true
}

// settles reports whether requests of every lane were settled since the fault was over, of
// which one had used more than the estimate, and one less.
func (s *scene) settles() bool {
	for _, l := range s.lanes {
		more, less, hits := false, false, l.seen()
		for i := len(hits) - 1; i >= 0 && hits[i].from.After(s.lifted) && !(more && less); i-- {
			if hits[i].rule == "settled" && !hits[i].trace.settledAt().IsZero() {
				more, less = more || usedBy(hits[i].key) > estimate, less || usedBy(hits[i].key) < estimate
			}
		}
		if !more || !less {
			return false
		}
	}
	return true
}

// noticed reports whether Redis has not decided some request of every lane since
// the fault began.
func (s *scene) noticed() bool {
	for _, l := range s.lanes {
		hits, found := l.seen(), false
		for i := len(hits) - 1; i >= 0 && !found && hits[i].to.After(s.begun); i-- {
			found = !hits[i].decided
		}
		if !found {
			return false
		}
	}
	return true
}

// sustain keeps a fault for d, and if it affects requests, until a request has noticed
// it. On a busy machine no request may have come within d.
func (s *scene) sustain(d time.Duration) {
	s.t.Helper()
	s.hold(d)
	if s.sees == something {
		s.until("a request that meets the fault", s.noticed)
	}
}

// insist repeats a fault that ends by itself until a request has noticed it.
func (s *scene) insist(do func()) {
	s.t.Helper()
	do()
	s.until("a request that meets the fault", func() bool {
		if s.noticed() {
			return true
		}
		do()
		return s.noticed()
	})
}

// well reports whether calm has passed since then and every request within it was
// decided.
func (s *scene) well(since time.Time) bool {
	// The span is the last `calm`, and all of it must be after the fault.
	if past := time.Now().Add(-calm); past.After(since) {
		since = past
	} else {
		return false
	}

	for _, l := range s.lanes {
		hits, some := l.seen(), 0
		for i := len(hits) - 1; i >= 0 && hits[i].from.After(since); i-- {
			if !hits[i].decided {
				return false
			}
			some++
		}

		// A lane without requests is not well, only quiet.
		if some < 5 {
			return false
		}
	}
	return true
}

// hold lets time pass.
func (s *scene) hold(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// every calls do at intervals of pause, until long has passed.
func (s *scene) every(pause, long time.Duration, do func()) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for end := time.Now().Add(long); time.Now().Before(end); <-tick.C {
		do()
	}
}

// poll waits until done returns true, and reports whether it did in time.
func (s *scene) poll(patience time.Duration, done func() bool) bool {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !done(); <-tick.C {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// until fails the test if done does not return true in time.
func (s *scene) until(what string, done func() bool) {
	s.t.Helper()
	if !s.poll(patience, done) {
		s.t.Fatalf("%s: not within %v", what, patience)
	}
}

// do sends the server a command.
func (s *scene) do(args ...any) {
	s.t.Helper()
	if err := s.admin.Do(context.Background(), args...).Err(); err != nil && err != redis.Nil {
		s.t.Fatalf("%v: %v", args, err)
	}
}

// servers returns all servers that were started.
func (s *scene) servers() []*redistest.Server {
	list := append(s.masters[:len(s.masters):len(s.masters)], s.replicas...)
	if s.server != nil {
		list = append(list, s.server)
	}
	if s.watched != nil {
		list = append(append(list, s.watched.Replica), s.watched.Sentinels...)
	}
	return list
}

// reach returns a patient client for the data that is left after the fault.
func (s *scene) reach() redis.UniversalClient {
	if s.all == nil {
		s.all = s.past()
	}
	return s.all
}

// forgot records that the server has lost all counts.
func (s *scene) forgot() {
	s.losses++
	s.lossFrom = time.Unix(0, 0)
}

// forgotSince records that the server has lost all counts since t.
func (s *scene) forgotSince(t time.Time) {
	s.losses++
	s.lossFrom = t
}
