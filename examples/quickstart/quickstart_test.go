package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/redisstore"
)

// asProgram is a variable of the environment that makes the test binary the
// program, for a test that needs it as a process of its own.
const asProgram = "HEADGATE_QUICKSTART"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// launch runs the program until the test ends and returns where it listens.
func launch(t *testing.T, args ...string) string {
	t.Helper()
	url, _ := launchFor(t, args...)
	return url
}

// launchFor is launch for a test that ends the program itself.
func launchFor(t *testing.T, args ...string) (url string, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	done := make(chan int, 1)

	go func() {
		done <- run(ctx, append([]string{"-addr", "127.0.0.1:0", "-timeout", "1m"}, args...), w, os.Stderr)
	}()

	// A test that has ended the program itself ends it once more, which changes nothing.
	t.Cleanup(func() {
		cancel()
		if status := <-done; status != 0 {
			t.Errorf("exit status %d", status)
		}
	})
	return listening(t, r), cancel
}

// listening reads where a program says that it listens.
func listening(t *testing.T, out io.Reader) string {
	t.Helper()
	line, err := bufio.NewReader(out).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		t.Fatalf("said %q: %v", line, err)
	}
	return url
}

func get(t testing.TB, url string) (int, http.Header, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(body)
}

// redisURL is -store for a real Redis. Tests differ in the key, which is a header
// here.
func redisURL(t testing.TB) string { return "redis://" + redistest.Addr(t) + "/0" }

func TestQuotaIsAdmittedOnEveryStore(t *testing.T) {
	for _, store := range []string{"memory", "redis"} {
		t.Run(store, func(t *testing.T) {
			if store == "redis" {
				store = redisURL(t)
			}
			admitsFive(t, launch(t, "-store", store, "-rule", "5/1h sliding-log", "-key", "header:X-Key"))
		})
	}
}

// admitsFive sends eight requests with a key of their own, and one that no rule is
// about.
func admitsFive(t *testing.T, url string) {
	t.Helper()
	subject := redistest.Prefix(t)

	for i := range 8 {
		req, _ := http.NewRequest("GET", url+"/", nil)
		req.Header.Set("X-Key", subject)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}

		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()

		// Five pass and three are refused, and each says what is left.
		if i < 5 && (resp.StatusCode != 200 || string(body) != "ok") || i >= 5 && resp.StatusCode != 429 {
			t.Errorf("request %d: %d %s", i, resp.StatusCode, body)
		}
		if want := strconv.Itoa(max(0, 4-i)); resp.Header.Get("X-RateLimit-Remaining") != want {
			t.Errorf("request %d: %v", i, resp.Header)
		}
	}

	// Health checks are no callers: no rule counts them.
	if status, header, body := get(t, url+"/healthz"); status != 200 || body != "ok" || header.Get("RateLimit") != "" {
		t.Errorf("healthz: %d %s %v", status, body, header)
	}
}

func TestSeveralRulesAreOneDecision(t *testing.T) {
	url := launch(t, "-rule", "2/1h sliding-log", "-rule", "5/1h sliding-log", "-key", "global")
	for range 5 {
		get(t, url+"/")
	}
	_, header, _ := get(t, url+"/")
	// A request that the first rule refuses costs the second nothing.
	if want := `"rule1";r=0;t=3600, "rule2";r=3;t=3600`; header.Get("RateLimit") != want {
		t.Errorf("RateLimit: %s, want %s", header.Get("RateLimit"), want)
	}
}

func TestOverFlagDecides(t *testing.T) {
	for over, want := range map[string]string{"reject": "429 ", "degrade": "200 degraded", "shadow": "200 ok"} {
		url := launch(t, "-rule", "1/1h", "-over", over)
		get(t, url+"/")
		status, _, body := get(t, url+"/")
		if status == 429 {
			body = ""
		}
		if got := fmt.Sprint(status, " ", body); got != want {
			t.Errorf("%s: %s", over, got)
		}
	}
}

func TestWaitAnswersTheSecondRequestWhenItIsDue(t *testing.T) {
	url := launch(t, "-rule", "1/100ms", "-over", "wait:1h")
	start := time.Now()
	get(t, url+"/")
	if status, _, _ := get(t, url+"/"); status != 200 {
		t.Errorf("status %d", status)
	}
	if took := time.Since(start); took < 99*time.Millisecond { // the store counts whole microseconds
		t.Errorf("two requests were answered within %v", took)
	}
}

// untilDone runs try for a span and again for spans that are longer, as long as try says
// that its span was too short for this machine.
func untilDone(t *testing.T, try func(span time.Duration) (done bool)) {
	t.Helper()
	for span := 250 * time.Millisecond; !try(span); span *= 3 {
		if 3*span > maxHold {
			t.Fatalf("requests that are held for %s do not last", span)
		}
	}
}

// holdFor sends n requests that are held for the span and returns where their
// statuses arrive.
func holdFor(t *testing.T, url string, n int, span time.Duration) <-chan int {
	statuses := make(chan int, n)
	for range n {
		go func() {
			status, _, _ := get(t, fmt.Sprintf("%s/hold?for=%s", url, span))
			statuses <- status
		}()
	}
	return statuses
}

func TestConcurrentRequestsAreHeldToTheLimit(t *testing.T) {
	untilDone(t, func(span time.Duration) bool {
		url := launch(t, "-rule", "2 concurrent ttl=1m")
		held := holdFor(t, url, 2, span)

		// Both requests are held as soon as a third is refused, unless they have ended before.
		for status := 0; status != 429 && len(held) == 0; {
			status, _, _ = get(t, url+"/")
		}

		var refused [3]int
		for i := range refused {
			refused[i], _, _ = get(t, url+"/hold?for=0s")
		}

		// On a slow machine they may have ended in between; then the span was too short.
		if len(held) > 0 {
			return false
		}

		if first, second := <-held, <-held; first != 200 || second != 200 || refused != [3]int{429, 429, 429} {
			t.Errorf("two that were held got %d and %d, those after them %v", first, second, refused)
		}

		if status, _, _ := get(t, url+"/hold?for=0s"); status != 200 {
			t.Errorf("%d after all had left", status)
		}

		// The longest span is a bound of the program.
		if status, _, body := get(t, url+"/hold?for=forever"); status != 400 || !strings.Contains(body, "0s to 1m") {
			t.Errorf("%d %s", status, body)
		}
		return true
	})
}

func TestShutdownAnswersRequestsInFlight(t *testing.T) {
	untilDone(t, func(span time.Duration) bool {
		url, end := launchFor(t, "-rule", "2 concurrent ttl=1m")
		held := holdFor(t, url, 1, span)
		for left := ""; left != "0" && len(held) == 0; { // one for this request and one for the other
			_, header, _ := get(t, url+"/")
			left = header.Get("X-RateLimit-Remaining")
		}

		end()
		inFlight := len(held) == 0

		// The end is reached when the port is closed, and the held request is still on its way.
		for {
			c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			if err != nil {
				break
			}
			c.Close()
		}

		if status := <-held; status != 200 {
			t.Errorf("got %d", status)
		}
		return inFlight
	})
}

func TestMistakesAreListedWithStatus2(t *testing.T) {
	var errs bytes.Buffer
	args := strings.Split("-addr foo -store y -timeout 0s -key z -over wait:0s -rule 0/1s -rule 1/1y", " ")
	if status := run(context.Background(), args, io.Discard, &errs); status != 2 {
		t.Errorf("exit status %d", status)
	}

	lines := strings.Split(strings.TrimSpace(errs.String()), "\n")

	// Every flag is named in the order of the line, not only the first that is wrong.
	for i, want := range []string{"-addr", "-store", "-timeout", "-key", "-over", "-rule", "-rule"} {
		if i >= len(lines) || !strings.HasPrefix(lines[i], "quickstart: "+want+": ") {
			t.Fatalf("line %d is not about %s:\n%s", i, want, errs.String())
		}
	}

	if len(lines) != 7 {
		t.Errorf("%d lines:\n%s", len(lines), errs.String())
	}

	// Other mistakes in the line, and none of their texts shows the password.
	for _, args := range [][]string{{"-bogus"}, {"stray"},
		{"-store", "redis://:secret@127.0.0.1:1/nodb"}, {"-store", "sentinel://a"}, {"-store", "cluster://"}} {
		errs.Reset()
		if status := run(context.Background(), args, io.Discard, &errs); status != 2 ||
			strings.Contains(errs.String(), "secret") {
			t.Errorf("%q: status %d: %s", args, status, errs.String())
		}
	}

	// Asking for help is no mistake.
	if status := run(context.Background(), []string{"-h"}, io.Discard, io.Discard); status != 0 {
		t.Errorf("-h: %d", status)
	}
}

// Four processes on one Redis admit exactly the quota between them.
func TestFourProcessesShareOneQuota(t *testing.T) {
	store := redisURL(t)
	for _, rule := range []string{"37/1h", "37/1h fixed-window", "37/1h sliding-log",
		"37/1h sliding-window", "37/1h token-bucket"} {
		t.Run(rule, func(t *testing.T) { shareQuota(t, store, rule) })
	}
}

func shareQuota(t *testing.T, store, rule string) {
	subject := redistest.Prefix(t)
	var admitted, refused atomic.Int64

	// Four processes and five callers in each: 100 requests for 37 units.
	var all sync.WaitGroup
	for i := range 4 {
		url := start(t, "-addr", "127.0.0.1:0", "-store", store, "-timeout", "1m",
			"-rule", rule, "-key", "header:X-Key")
		for range 5 {
			all.Go(func() {
				for range 5 {
					req, _ := http.NewRequest("GET", url+"/", nil)
					req.Header.Set("X-Key", subject)

					resp, err := http.DefaultClient.Do(req)
					if err != nil {
						t.Errorf("process %d: %v", i, err)
						return
					}

					resp.Body.Close()
					switch resp.StatusCode {
					case 200:
						admitted.Add(1)
					case 429:
						refused.Add(1)
					}
				}
			})
		}
	}

	// A process that counted on its own would admit 37 by itself.
	all.Wait()
	if admitted.Load() != 37 || refused.Load() != 63 {
		t.Errorf("%d admitted, %d refused of 100", admitted.Load(), refused.Load())
	}
}

// start runs the program as a process until the test ends and returns where it
// listens.
func start(t *testing.T, args ...string) (url string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	// A program with the race detector sleeps for a second when it ends.
	cmd.Env = append(os.Environ(), asProgram+"=1", "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr

	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if runtime.GOOS == "windows" { // which has no such signal
			cmd.Process.Kill()
			cmd.Wait()
			return
		}
		if err := errors.Join(cmd.Process.Signal(os.Interrupt), cmd.Wait()); err != nil {
			t.Errorf("the process: %v", err)
		}
	})
	return listening(t, out)
}

func TestTimeoutDefaultsToThatOfTheLibrary(t *testing.T) {
	// A flag that is left out leaves the option of the store as it is.
	for _, test := range []struct {
		args []string
		want time.Duration
	}{
		{nil, redisstore.DefaultTimeout},
		{[]string{"-timeout", "2s"}, 2 * time.Second},
	} {
		s, faults := parse(test.args)
		if len(faults) > 0 {
			t.Fatalf("%v: %v", test.args, faults)
		}

		if s.timeout != test.want {
			t.Errorf("%v: the timeout is %s, want %s", test.args, s.timeout, test.want)
		}
	}
}

func TestAddressInUseIsStatus1(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var out, errs strings.Builder
	status := run(t.Context(), []string{"-addr", l.Addr().String()}, &out, &errs)
	if status != 1 || out.Len() != 0 || strings.Count(errs.String(), "\n") != 1 {
		t.Errorf("%d %q %q", status, out.String(), errs.String())
	}
}

func TestProgramStoppedBeforeItServesEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs strings.Builder
	status := run(ctx, []string{"-addr", "127.0.0.1:0"}, &out, &errs)
	if status != 0 || errs.Len() != 0 || !strings.HasPrefix(out.String(), "listening on http://127.0.0.1:") {
		t.Errorf("%d %q %q", status, out.String(), errs.String())
	}
}

// broken is a listener that fails.
type broken struct {
	net.Listener
	fault error
}

func (b broken) Accept() (net.Conn, error) { return nil, b.fault }
func (b broken) Close() error              { return nil }

func TestProgramEndsWithItsServer(t *testing.T) {
	fault := errors.New("out of order")
	l := limiter.MustNew(limiter.Config{})
	if err := serve(t.Context(), broken{fault: fault}, l, newServer(l)); err != fault {
		t.Errorf("%v, want %v", err, fault)
	}
}

func TestStoreMistakesHidePasswords(t *testing.T) {
	for text, want := range map[string]string{
		"y":                             `"y" is none of memory, redis://host:port/db, sentinel://…, cluster://…`,
		"redis://:secret@127.0.0.1:1/x": `"redis://:xxxxx@127.0.0.1:1/x": redis: invalid database number: "x"`,
	} {
		if _, err := parseStore(text); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
