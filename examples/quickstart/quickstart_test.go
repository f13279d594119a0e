package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
)

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
	go func() { done <- run(ctx, append([]string{"-addr", "127.0.0.1:0"}, args...), w, os.Stderr) }()
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

// redisURL is -store for a real Redis whose keys no other test uses: rules are
// told apart by the key, which is a header here.
func redisURL(t testing.TB) string { return "redis://" + redistest.Addr(t) + "/0" }

func TestEveryFrameworkAdmitsTheQuotaOnEveryStore(t *testing.T) {
	for name := range frameworks {
		for _, store := range []string{"memory", "miniredis", "redis"} {
			t.Run(name+"/"+store, func(t *testing.T) {
				if store == "redis" {
					store = redisURL(t)
				}
				url := launch(t, "-framework", name, "-store", store, "-rule", "5/1h sliding-log", "-key", "header:X-Key")
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
					if i < 5 && (resp.StatusCode != 200 || string(body) != "ok") || i >= 5 && resp.StatusCode != 429 {
						t.Errorf("request %d: %d %s", i, resp.StatusCode, body)
					}
					if want := strconv.Itoa(max(0, 4-i)); resp.Header.Get("X-RateLimit-Remaining") != want {
						t.Errorf("request %d: %v", i, resp.Header)
					}
				}
				if status, header, body := get(t, url+"/healthz"); status != 200 || body != "ok" || header.Get("RateLimit") != "" {
					t.Errorf("healthz: %d %s %v", status, body, header)
				}
			})
		}
	}
}

func TestSeveralRulesAreOneDecision(t *testing.T) {
	url := launch(t, "-rule", "2/1h sliding-log", "-rule", "5/1h sliding-log", "-key", "global")
	for range 5 {
		get(t, url+"/")
	}
	_, header, _ := get(t, url+"/")
	// What the first rule refuses costs the second nothing.
	if want := `"rule1";r=0;t=3600, "rule2";r=3;t=3600`; header.Get("RateLimit") != want {
		t.Errorf("RateLimit: %s, want %s", header.Get("RateLimit"), want)
	}
}

func TestOverTheLimitTheFlagDecides(t *testing.T) {
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

func TestWaitLetsTheSecondComeWhenItIsDue(t *testing.T) {
	url := launch(t, "-rule", "1/100ms", "-over", "wait:5s")
	get(t, url+"/")
	start := time.Now()
	if status, _, _ := get(t, url+"/"); status != 200 {
		t.Errorf("status %d", status)
	}
	if took := time.Since(start); took < 90*time.Millisecond {
		t.Errorf("did not wait: %v", took)
	}
}

func TestConcurrentRequestsAreHeldToTheLimit(t *testing.T) {
	for name := range frameworks {
		url := launch(t, "-framework", name, "-rule", "2 concurrent ttl=1m")
		var refused, passed atomic.Int64
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				switch status, _, _ := get(t, url+"/hold?for=1s"); status {
				case 200:
					passed.Add(1)
				case 429:
					refused.Add(1)
				}
			})
		}
		all.Wait()
		if passed.Load() != 2 || refused.Load() != 3 {
			t.Errorf("%s: %d passed, %d were refused", name, passed.Load(), refused.Load())
		}
		if status, _, _ := get(t, url+"/hold?for=0s"); status != 200 {
			t.Errorf("%s: %d after all had left", name, status)
		}
		if status, _, body := get(t, url+"/hold?for=forever"); status != 400 || !strings.Contains(body, "0s to 1m") {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
}

func TestARequestInFlightIsAnsweredWhenTheProgramEnds(t *testing.T) {
	for name := range frameworks {
		url, end := launchFor(t, "-framework", name, "-rule", "2 concurrent ttl=1m")
		held := make(chan int, 1)
		go func() {
			status, _, _ := get(t, url+"/hold?for=1s")
			held <- status
		}()
		for left := ""; left != "0"; { // one for this request and one for the other
			_, header, _ := get(t, url+"/")
			left = header.Get("X-RateLimit-Remaining")
		}
		end()
		for {
			c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			if err != nil {
				break
			}
			c.Close()
		}
		if status := <-held; status != 200 {
			t.Errorf("%s: %d", name, status)
		}
	}
}

func TestEveryMistakeIsNamedInALineAndTheExitStatusIs2(t *testing.T) {
	var errs bytes.Buffer
	args := strings.Split("-addr foo -framework x -store y -key z -over wait:0s -rule 0/1s -rule 1/1y", " ")
	if status := run(context.Background(), args, io.Discard, &errs); status != 2 {
		t.Errorf("exit status %d", status)
	}
	lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
	for i, want := range []string{"-addr", "-framework", "-store", "-key", "-over", "-rule", "-rule"} {
		if i >= len(lines) || !strings.HasPrefix(lines[i], "quickstart: "+want+": ") {
			t.Fatalf("line %d is not about %s:\n%s", i, want, errs.String())
		}
	}
	if len(lines) != 7 {
		t.Errorf("%d lines:\n%s", len(lines), errs.String())
	}
	for _, args := range [][]string{{"-bogus"}, {"stray"}, {"-store", "redis://:secret@127.0.0.1:1/nodb"}, {"-store", "sentinel://a"}, {"-store", "cluster://"}} {
		errs.Reset()
		if status := run(context.Background(), args, io.Discard, &errs); status != 2 || strings.Contains(errs.String(), "secret") {
			t.Errorf("%q: status %d: %s", args, status, errs.String())
		}
	}
	if status := run(context.Background(), []string{"-h"}, io.Discard, io.Discard); status != 0 {
		t.Errorf("-h: %d", status)
	}
}

// Four processes on one Redis admit exactly the quota between them.
func TestFourProcessesShareOneQuota(t *testing.T) {
	store := redisURL(t)
	binary := filepath.Join(t.TempDir(), "quickstart")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, rule := range []string{"37/1h", "37/1h fixed-window", "37/1h sliding-log", "37/1h sliding-window", "37/1h token-bucket"} {
		subject := redistest.Prefix(t)
		var admitted, refused atomic.Int64
		var all sync.WaitGroup
		for i := range 4 {
			cmd := exec.Command(binary, "-addr", "127.0.0.1:0", "-store", store, "-rule", rule, "-key", "header:X-Key")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			url := listening(t, out)
			defer func() { cmd.Process.Signal(os.Interrupt); cmd.Wait() }()
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
		all.Wait()
		if admitted.Load() != 37 || refused.Load() != 63 {
			t.Errorf("%s: %d admitted, %d refused of 100", rule, admitted.Load(), refused.Load())
		}
	}
}
