package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/store/redisstore"
)

// asProcess is the variable of the environment that has the task of a process.
const asProcess = "HEADGATE_LLM"

// task is what a process is to do.
type task struct {
	Addr, Prefix string
	Tokens       core.Limit
	Process      uint64
	Streams      int
}

// outcome is what a process has done.
type outcome struct {
	Admitted, Refused, Failed int
	Used                      int64 // tokens, as stream returns them
	Steps                     []step
}

func TestMain(m *testing.M) {
	if text := os.Getenv(asProcess); text != "" {
		if err := process(text); err != nil {
			log.Fatal(err)
		}
		return
	}
	test.Exit(m.Run())
}

// connect returns a store that waits for Redis however busy the machine is.
func connect(addr, prefix string) (*recorder, io.Closer) {
	const patience = time.Minute
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true,
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience})
	return record(redisstore.MustNew(client, redisstore.Options{Prefix: prefix, Timeout: patience})), client
}

// use gives the program the limits of the tests, under which nothing comes back with time.
func use(limit core.Limit) {
	requests, tokens, streams = core.MustParseLimit("1000/24h fixed-window"), limit,
		core.MustParseLimit("5 concurrent ttl=1h")
}

// process carries out a task when its standard input ends.
func process(text string) error {
	var job task
	if err := json.Unmarshal([]byte(text), &job); err != nil {
		return err
	}

	log.SetOutput(io.Discard)
	use(job.Tokens)

	store, client := connect(job.Addr, job.Prefix)
	defer client.Close()

	// Each process has an API and a proxy of its own. Only Redis is shared.
	api := httptest.NewServer(http.HandlerFunc(model))
	defer api.Close()
	target, err := url.Parse(api.URL)
	if err != nil {
		return err
	}

	server := httptest.NewServer(newHandler(target, store))
	defer server.Close()

	// The parent lets all processes go on at once, when each of them is ready.
	fmt.Println("ready")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}

	var all sync.WaitGroup
	var did struct{ admitted, refused, failed, used atomic.Int64 }
	for i := range job.Streams {
		all.Go(func() {
			// A seed for each stream makes a run repeatable, apart from the order.
			r := rand.New(rand.NewPCG(job.Process, uint64(i)))
			status, used, err := stream(server.URL, r)
			switch {
			case err != nil:
				fmt.Fprintln(os.Stderr, err)
				did.failed.Add(1)
			case status == http.StatusOK:
				did.admitted.Add(1)
				did.used.Add(used)
			case status == http.StatusTooManyRequests:
				did.refused.Add(1)
			default:
				did.failed.Add(1)
			}
		})
	}

	// The settlement of a stream may come after its answer: the outcome needs all of them.
	all.Wait()
	store.await(int(did.admitted.Load()), ends)

	return json.NewEncoder(os.Stdout).Encode(outcome{int(did.admitted.Load()), int(did.refused.Load()),
		int(did.failed.Load()) + store.failed, did.used.Load(), store.steps})
}

// stream asks for an answer of random usage, and leaves one in ten before its end. It
// returns how many tokens the API has reported, and at least the estimate for an answer
// that was left.
func stream(url string, r *rand.Rand) (status int, used int64, err error) {
	// Most answers differ from the estimate, and both ways.
	input, output, leaves := r.Int64N(1000), 1+r.Int64N(1500), r.IntN(10) == 0
	ctx, leave := context.WithCancel(context.Background())
	defer leave()

	resp, err := begin(ctx, url, "", fmt.Sprint(input, output, leaves))
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()

	if resp.StatusCode != http.StatusOK {
		return resp.StatusCode, 0, nil
	}

	// The beginning is all that was reported then, so the estimate counts unless that is more.
	if leaves {
		_, err = io.ReadFull(resp.Body, make([]byte, len(start(input))))
		return resp.StatusCode, max(input+1, 1000), err
	}

	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, input + output, err
}

// start returns the first event of an answer.
func start(input int64) string {
	return fmt.Sprintf("data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":%d,\"output_tokens\":1}}}\n\n",
		input)
}

// model answers as the request asks for. A client that is to leave gets no more than the
// first event.
func model(w http.ResponseWriter, r *http.Request) {
	var input, output int64
	var leaves bool
	if _, err := fmt.Sscan(r.Header.Get("X-Usage"), &input, &output, &leaves); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}

	// The first event names the prompt, whatever comes after it.
	_, _ = io.WriteString(w, start(input))
	w.(http.Flusher).Flush()

	if leaves {
		<-r.Context().Done()
		return
	}

	for n := int64(1); n < output; n *= 4 { // all tokens so far
		fmt.Fprintf(w, "data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":%d}}\n\n", n)
		w.(http.Flusher).Flush()
	}
	fmt.Fprintf(w, "data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":%d}}\n\n", output)
}

// run has four processes carry out 50 streams each at the same time.
func run(t *testing.T, addr, prefix string, limit core.Limit) (sum outcome) {
	t.Helper()
	const processes = 4

	var lines []*bufio.Reader
	var starts []io.Closer
	for i := range processes {
		text, err := json.Marshal(task{addr, prefix, limit, uint64(i), 200 / processes})
		if err != nil {
			t.Fatal(err)
		}

		cmd := exec.Command(os.Args[0])
		// A program with the race detector sleeps for a second when it ends.
		cmd.Env = append(os.Environ(), asProcess+"="+string(text), "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
		cmd.Stderr = os.Stderr

		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}

		// What the test has closed already is no failure of the process.
		t.Cleanup(func() {
			if err := errors.Join(in.Close(), cmd.Wait()); err != nil && !errors.Is(err, os.ErrClosed) {
				t.Errorf("a process: %v", err)
			}
		})
		lines, starts = append(lines, bufio.NewReader(out)), append(starts, in)
	}

	// No process begins before the last one is ready.
	for _, r := range lines {
		if line, err := r.ReadString('\n'); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
	}

	for _, s := range starts {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}

	// The outcomes arrive as each process ends.
	for _, r := range lines {
		var did outcome
		if err := json.NewDecoder(r).Decode(&did); err != nil {
			t.Fatal(err)
		}
		sum = outcome{sum.Admitted + did.Admitted, sum.Refused + did.Refused, sum.Failed + did.Failed,
			sum.Used + did.Used, append(sum.Steps, did.Steps...)}
	}
	return sum
}

// Two hundred streams in four processes, which share a Redis.
func TestTokensOfFourProcesses(t *testing.T) {
	addr := redistest.Addr(t)
	for text, admitted := range map[string]func(int) bool{
		"10000000/24h fixed-window":         func(n int) bool { return n == 200 },
		"100000/24h fixed-window debt=2000": func(n int) bool { return n < 200 },
	} {
		t.Run(text, func(t *testing.T) {
			// The first limit is never reached. The second one is, in the middle of the streams.
			limit, prefix := core.MustParseLimit(text), redistest.Prefix(t)
			did := run(t, addr, prefix, limit)
			if did.Failed > 0 || did.Admitted+did.Refused != 200 || !admitted(did.Admitted) {
				t.Errorf("%d admitted, %d refused, %d failed", did.Admitted, did.Refused, did.Failed)
			}

			// What a settlement could not charge beyond the debt is not in the count.
			end, uncharged := 0, int64(0)
			for _, s := range did.Steps {
				if ends(s) {
					end++
				}
				for i, op := range s.Ops {
					if op.Verb == core.Debit {
						uncharged += op.Cost - s.Out[i].Taken
					}
				}
			}

			if end != did.Admitted {
				t.Errorf("%d steps at the ends of %d requests", end, did.Admitted)
			}
			wantOneOrder(t, did.Steps, limit)

			// The count of Redis is read with the limits of the run.
			before := limitsInUse()
			defer before()
			use(limit)
			store, client := connect(addr, prefix)
			defer client.Close()

			got := [3]int64{
				used(t, store, "alice", "requests", requests),
				used(t, store, "alice", "tokens", tokens),
				used(t, store, "alice", "streams", streams),
			}

			// No stream is left, and each token that was used is counted, but for those beyond the
			// debt.
			if want := [3]int64{int64(did.Admitted), did.Used - uncharged, 0}; got != want {
				t.Errorf("%d requests, tokens and streams are counted, want %d", got, want)
			}

			t.Logf("%d of 200 admitted, %d tokens used, %d beyond the debt, %d steps",
				did.Admitted, did.Used, uncharged, len(did.Steps))
		})
	}
}

// limitsInUse returns a function that restores the limits of the program.
func limitsInUse() func() {
	r, n, s := requests, tokens, streams
	return func() { requests, tokens, streams = r, n, s }
}

// wantOneOrder fails unless the steps of all processes are those of one store which
// carries them out one after another, at the instants of the decisions, and which never
// counts more tokens than the limit and its debt, and more than five streams.
func wantOneOrder(t *testing.T, steps []step, limit core.Limit) {
	t.Helper()
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.Out[0].At, b.Out[0].At) })

	states, tries := reference{}, 0
	for len(steps) > 0 {
		n := 1 // a call of Redis decides several steps at one instant
		for n < len(steps) && steps[n].Out[0].At == steps[0].Out[0].At {
			n++
		}

		next, ok := states.explain(steps[:n], &tries)
		if !ok {
			t.Fatalf("no order of these steps explains the decisions after %+v: %+v", states, steps[:n])
		}

		states, steps = next, steps[n:]

		// The bounds hold at every instant, and not only in the end.
		for id, s := range states {
			switch most := limit.Capacity() + limit.MaxDebt(); {
			case id.Rule == "tokens" && s.Used > most:
				t.Fatalf("%d tokens at an instant, at most %d", s.Used, most)
			case id.Rule == "streams" && len(s.Leases) > 5:
				t.Fatalf("%d streams at an instant", len(s.Leases))
			}
		}
	}
}

// reference is a store of the arithmetic of core.
type reference map[core.ID]core.State

// explain carries out the steps of one instant in an order in which the decisions are
// theirs, and reports whether there is one.
func (r reference) explain(steps []step, tries *int) (reference, bool) {
	if len(steps) == 0 {
		return r, true
	}

	// The number of orders grows fast, so the tries have a bound.
	for i, s := range steps {
		if *tries++; *tries > 1_000_000 {
			return nil, false
		}

		next, changed, ok := r.apply(s)
		if !ok {
			continue
		}

		// A step that changes nothing fits anywhere, so no other place of it need be tried.
		if next, ok = next.explain(slices.Delete(slices.Clone(steps), i, i+1), tries); ok || !changed {
			return next, ok
		}
	}
	return nil, false
}

// apply carries out a step, and reports whether the decisions are its own.
func (r reference) apply(s step) (next reference, changed, ok bool) {
	next = maps.Clone(r)

	// A step works on copies: another order may be tried with the states as they were.
	states, out := make([]*core.State, len(s.Ops)), make([]core.Decision, len(s.Ops))
	for i := range s.Ops {
		state := r[s.Ops[i].ID()]
		state.Leases, state.Changed = slices.Clone(state.Leases), false
		states[i] = &state
	}

	// The instant is that of the recorded decision.
	core.Decide(s.Ops, states, s.Out[0].At, out)

	for i := range s.Ops {
		if states[i].Changed {
			next[s.Ops[i].ID()], changed = *states[i], true
		}
	}
	return next, changed, slices.Equal(out, s.Out)
}

// A request under limits of requests, tokens and streams is two calls of Redis, with the
// release of its lease and its settlement, and one if it is refused.
func TestStreamIsTwoCallsOfRedis(t *testing.T) {
	defer limitsInUse()()
	server := redistest.Start(t)

	// The quota is used up by the fifth row, so the last one is refused.
	use(core.MustParseLimit("20000/24h fixed-window"))
	store, client := connect(server.Addr, redistest.Prefix(t))
	defer client.Close()

	url := serve(t, newHandler(serve(t, http.HandlerFunc(model)), store)).String()
	admin := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer admin.Close()

	for i, row := range []struct {
		usage  string
		status int
		want   int
	}{
		{"1 1 false", 200, 2},
		{"100 200 false", 200, 2},
		{"100 900 false", 200, 2}, // as estimated
		{"3000 5000 false", 200, 2},
		{"30000 5000 false", 200, 2},
		{"1 1 false", 429, 1},
	} {
		before := calls(t, admin)
		resp, err := begin(t.Context(), url, "", row.usage)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		if err != nil {
			t.Fatal(err)
		}

		// The second call is made after the answer: it must be counted before the next row.
		store.await(min(i+1, 5), ends)
		if n := calls(t, admin) - before; n != row.want || resp.StatusCode != row.status {
			t.Errorf("%s: %d calls and status %d, want %d and %d", row.usage, n, resp.StatusCode, row.want, row.status)
		}
	}
}

// calls returns how often a script was called.
func calls(t *testing.T, admin *redis.Client) (sum int) {
	t.Helper()
	info, err := admin.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}

	// Only scripts count: the client's own commands belong to its connections.
	for line := range strings.Lines(info) {
		var n int
		if _, rest, ok := strings.Cut(line, ":calls="); ok && strings.HasPrefix(line, "cmdstat_eval") {
			if _, err := fmt.Sscanf(rest, "%d", &n); err != nil {
				t.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}
