//go:build linux

// This file replays the logs that nginx wrote of a load through a gateway.

package gatewaytest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/accesslog"
	"github.com/headgate/headgate/internal/replay"
	"github.com/headgate/headgate/internal/test/freeport"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/policyyaml"
)

// planned are limits of which each decides about the requests of one path. The first three decide
// by the second of a request alone, as requests come in the first half of every other second: no
// window begins or ends, and no segment leaves a period, in a second that has requests.
const planned = `policies:
- {name: aligned, apps: [default], limit: 20/4s fixed-window aligned, key: ip, match: {path: /aligned/}}
- {name: window, apps: [default], limit: 20/3s fixed-window, key: ip, match: {path: /window/}}
- {name: segments, apps: [default], limit: 20/3s sliding-window segments=3, key: ip, match: {path: /segments/}}
- {name: gcra, apps: [default], limit: 10/1s burst=15, key: ip, match: {path: /gcra/}}
- {name: bucket, apps: [default], limit: 5/500ms token-bucket burst=20, key: ip, match: {path: /bucket/}}
- {name: log, apps: [default], limit: 15/1500ms sliding-log, key: ip, match: {path: /log/}}
`

var (
	bySecond = []string{"aligned", "window", "segments"}
	byMoment = []string{"gcra", "bucket", "log"}
)

// The load: each caller sends requests one after the other, to each path in turn.
const (
	loadCallers  = 4
	loadBursts   = 3
	loadRequests = 240 // of a caller in a burst
)

// logLines returns the lines of nginx's configuration that docs/plan.md has for a log, and such
// for a combined one.
func logLines(t *testing.T, whole, exact string) string {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/plan.md")
	if err != nil {
		t.Fatal(err)
	}
	found := fragment.FindSubmatch(page)
	if found == nil || !strings.Contains(string(found[2]), pageLog) {
		t.Fatalf("the page has no lines for a log at %s", pageLog)
	}
	return strings.Replace(string(found[2]), pageLog, exact, 1) + "access_log " + whole + " combined;\n"
}

// pageLog is where the log of the page is.
const pageLog = "/var/log/nginx/headgate.json"

// A log that nginx wrote gives in headgate plan the refusals of the gateway that nginx asked.
func TestPlanRefusesWhatTheGatewayRefused(t *testing.T) {
	policies := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(policies, []byte(planned), 0o600); err != nil {
		t.Fatal(err)
	}

	program := filepath.Join(t.TempDir(), "headgate")
	if out, err := exec.Command("go", "build", "-o", program, "github.com/headgate/headgate/cmd/headgate").
		CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	// A burst that a busy machine stretches beyond its second says nothing.
	var whole, exact string
	var longest time.Duration
	for try := 1; ; try++ {
		whole, exact = loadThroughNginx(t, policies)
		stretched := ""
		if longest, stretched = tookAtMost(t, exact); stretched == "" {
			break
		}
		t.Logf("stretched: %s", stretched)
		if try == 10 {
			t.Fatalf("ten loads have taken too long, the last with %s", stretched)
		}
	}

	// A request is decided between its beginning and its end, which are known to the millisecond.
	// In the combined log it is so before the end of its second, and begins at most so long before.
	t.Run("JSON with milliseconds", func(t *testing.T) {
		replayed(t, exact, longest+time.Millisecond)
		planSays(t, program, policies, exact, "times are those at which requests began", "times are whole seconds")
	})
	t.Run("combined with seconds", func(t *testing.T) {
		replayed(t, whole, longest+time.Second)
		planSays(t, program, policies, whole, "times are whole seconds", "times are those at which requests began")
	})
}

// loadThroughNginx sends the load through nginx with a new gateway, and returns the paths of the
// logs.
func loadThroughNginx(t *testing.T, policies string) (whole, exact string) {
	t.Helper()
	gateway := Start(t, "-policies", policies, "-trusted-proxy", "127.0.0.1")
	service, addr, dir := Serve(t), freeport.Addr(t), t.TempDir()
	whole, exact = filepath.Join(dir, "access.log"), filepath.Join(dir, "access.json")
	nginx := Nginx(t, Config(t, examples("nginx.conf"), "127.0.0.1:8080", addr, "127.0.0.1:3000", service.Addr,
		"127.0.0.1:8089", gateway.Addr, "127.0.0.1:8189", gateway.Addr,
		"http {", "http {\n"+logLines(t, whole, exact)+temporary(t)), addr)

	paths := slices.Concat(bySecond, byMoment)
	second := time.Now().Truncate(2 * time.Second)
	for range loadBursts {
		second = second.Add(2 * time.Second)
		time.Sleep(time.Until(second.Add(100 * time.Millisecond)))
		var callers sync.WaitGroup
		for caller := range loadCallers {
			client := Client(t, fmt.Sprintf("127.0.0.%d", 20+caller))
			callers.Go(func() {
				for i := 0; i < loadRequests && time.Since(second) < 500*time.Millisecond; i++ {
					Do(t, client, "GET", fmt.Sprintf("http://%s/%s/%d", addr, paths[i%len(paths)], i), nil)
				}
			})
		}
		callers.Wait()
	}

	// A line is written after its answer, so nginx ends before the logs are read.
	nginx.Stop()
	return whole, exact
}

// slow is how long a request takes that says nothing: a second more is the whole burst of a policy.
const slow = 0.3

// tookAtMost returns how long the longest request of the log took, and which request was not in the
// second of its burst from its beginning to its end or was slow, or which policy has refused none,
// if any.
func tookAtMost(t *testing.T, log string) (longest time.Duration, stretched string) {
	t.Helper()
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}

	refused := map[string]bool{} // by path
	for line := range strings.Lines(string(data)) {
		var x struct {
			Msec        json.Number `json:"msec"`
			RequestTime json.Number `json:"request_time"`
			Request     string
			Status      string
		}
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatalf("%v: %s", err, line)
		}

		end, err := x.Msec.Float64()
		took, err2 := x.RequestTime.Float64()
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}

		if path := strings.Split(x.Request, "/"); x.Status == "429" && len(path) > 1 {
			refused[path[1]] = true
		}
		longest = max(longest, time.Duration(took*float64(time.Second)))
		if second := int64(end); second%2 != 0 || end-took < float64(second) || took > slow {
			stretched = line
		}
	}
	for _, name := range slices.Concat(bySecond, byMoment) {
		if !refused[name] {
			stretched = "no request to " + name + " that was refused"
		}
	}
	return longest, stretched
}

// replayed compares the refusals in a log with those of a replay. A request was decided at the time
// of the log or at most so much later, but for a shift that all have in common.
func replayed(t *testing.T, log string, later time.Duration) {
	t.Helper()
	set, err := policyyaml.Decode([]byte(planned))
	if err != nil {
		t.Fatal(err)
	}

	// Request for request where the second decides.
	refused, replayed := refusals(t, log, set, bySecond)
	for _, name := range bySecond {
		if n := replayed[name]; n != refused[name] || n == 0 {
			t.Errorf("%s: the replay refuses %d requests, and the gateway %d", name, n, refused[name])
		}
	}

	// Between a limit that is so much looser and one that is so much stricter elsewhere.
	_, most := refusals(t, log, varied(t, set, later, -1), nil)
	_, least := refusals(t, log, varied(t, set, later, 1), nil)
	for _, name := range byMoment {
		t.Logf("%s: %d refused, %d in the replay, %d to %d are possible", name, refused[name], replayed[name],
			least[name], most[name])
		if n := refused[name]; n < least[name] || n > most[name] || n == 0 {
			t.Errorf("%s: the gateway refuses %d requests, want %d to %d", name, n, least[name], most[name])
		}
	}
}

// varied returns the policies of byMoment such that they admit at least what they would have at
// times that are by so much later than those of the log, some more than others, or at most that.
//
// A bucket that is filled at a rate has at most rate·later more or less in it than one of the true
// times, so as much more room, or less, makes up for it. One that is filled in steps is at most a
// step behind. A sliding log admits as many requests as it can such that one more than its quota
// spans a period; so a period that is shorter or longer by that much makes up for it.
func varied(t *testing.T, set policy.Set, later time.Duration, more int64) (list policy.Set) {
	t.Helper()
	for _, p := range set {
		if !slices.Contains(byMoment, p.Name) {
			continue
		}

		l := &p.Limit
		units := (int64(later)*l.Quota + int64(l.Period) - 1) / int64(l.Period)
		switch p.Name {
		case "gcra":
			l.Burst += more * units
		case "bucket":
			*l = core.MustParseLimit(fmt.Sprintf("%d/%s burst=%d", l.Quota, l.Period, l.Burst+more*(units+l.Quota)))
		case "log":
			l.Period -= time.Duration(more) * later
		}
		if err := l.Validate(); err != nil {
			t.Fatalf("%s by %s: %v", p.Name, later, err)
		}
		list = append(list, p)
	}
	return list
}

// refusals returns how many requests the gateway has refused by the log, and how many the policies
// refuse in a replay, by their path. Under those that are exact the same requests are refused.
func refusals(t *testing.T, log string, set policy.Set, exact []string) (gateway, replayed map[string]int64) {
	t.Helper()
	f, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	in, err := accesslog.New(log, f, accesslog.Options{Reorder: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	r, err := replay.NewReplay(replay.Options{Policies: set, App: "default"}, in.Stats().Has)
	if err != nil {
		t.Fatal(err)
	}

	gateway, replayed = map[string]int64{}, map[string]int64{}
	for before := int64(0); ; {
		e, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}

		path := strings.Clone(strings.Split(e.Target, "/")[1])
		switch e.Status {
		case 429:
			gateway[path]++
		case 200:
		default:
			t.Fatalf("%s was answered with %d", e.Target, e.Status)
		}

		r.Add(e)
		n := r.Report().Refused
		replayed[path] += n - before
		if slices.Contains(exact, path) && (n > before) != (e.Status == 429) {
			t.Fatalf("%s of %s: the replay refuses it: %t, and the gateway answered with %d", e.Target, e.Address,
				n > before, e.Status)
		}
		before = n
	}
	if s := in.Stats(); s.Broken > 0 || s.Late > 0 || s.Requests < 100 {
		t.Fatalf("%+v", s)
	}
	return gateway, replayed
}

// planSays calls headgate plan for the log, which prints the refusals of a replay, and a text, and
// not another one.
func planSays(t *testing.T, program, policies, log, text, not string) {
	t.Helper()
	args := []string{"plan", "-policies", policies, "-app", "default", log}
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), text) || strings.Contains(string(out), not) {
		t.Errorf("%v: want the note that %s, and not that %s:\n%s", err, text, not, out)
	}

	if out, err = exec.Command(program, append(args, "-json")...).Output(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var report replay.Report
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatal(err)
	}

	set, err := policyyaml.Decode([]byte(planned))
	if err != nil {
		t.Fatal(err)
	}
	_, want := refusals(t, log, set, nil)
	got := map[string]int64{}
	for _, p := range report.Policies {
		got[p.Policy] = p.Refused
	}
	if !maps.Equal(got, want) {
		t.Errorf("plan says that %v are refused, want %v", got, want)
	}
}
