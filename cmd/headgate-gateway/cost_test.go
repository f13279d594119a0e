// This file measures what the proxy costs.

package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test"
)

// cpu returns the processor time that the threads of the process have used.
func (p *process) cpu(t *testing.T) time.Duration {
	t.Helper()

	dir := fmt.Sprintf("/proc/%d/task", p.cmd.Process.Pid)
	tasks, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}

	var sum time.Duration
	for _, task := range tasks {
		text, err := os.ReadFile(dir + "/" + task.Name() + "/schedstat")
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}

		// The first field is the time on a processor, in nanoseconds.
		sum += time.Duration(n)
	}
	return sum
}

const (
	costRounds   = 9
	costRequests = 3000 // of a round
	costCallers  = 8
)

// load sends requests, and returns the processor time of the process for each.
func load(t *testing.T, p *process, face string, c *http.Client) time.Duration {
	t.Helper()
	url := "http://" + p.address(t, face) + "/some/path?x=1"

	before := p.cpu(t)
	var callers sync.WaitGroup
	for range costCallers {
		callers.Go(func() {
			for range costRequests / costCallers {
				res, err := c.Get(url)
				if err != nil {
					t.Error(err)
					return
				}
				n, err := io.Copy(io.Discard, res.Body)
				res.Body.Close()
				if err != nil || res.StatusCode != 200 || n != int64(len(answer)) {
					t.Errorf("%d, %d bytes, %v", res.StatusCode, n, err)
					return
				}
			}
		})
	}

	callers.Wait()
	return (p.cpu(t) - before) / costRequests
}

// The proxy needs at most 1.3 times the processor time of httputil.ReverseProxy alone,
// under a policy by address in memory, for an answer of a kilobyte.
func TestProxyCosts(t *testing.T) {
	if !test.Measures() {
		test.Skip(t, "it measures the processor time of the proxy")
	}
	if _, err := os.Stat("/proc/self/schedstat"); err != nil {
		test.Skip(t, "this system does not say how much processor time a thread has used")
	}

	// Each is a process of its own, so that its processor time is its own too.
	upstream := begin(t, "upstream")
	limits := t.TempDir() + "/limits.yaml"
	if err := os.WriteFile(limits, []byte("policies:\n- {name: all, apps: [default], limit: 100000000/1h, key: ip}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}

	bare := begin(t, "bare", "http://"+upstream.address(t, "bare"))
	gateway := begin(t, "gateway", "-listen", "127.0.0.1:0", "-upstream", "http://"+upstream.address(t, "bare"),
		"-policies", limits)

	transport := &http.Transport{MaxIdleConnsPerHost: costCallers}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}

	// A round of each that is not counted: connections are opened, and the callers become known.
	load(t, bare, "bare", client)
	load(t, gateway, "proxy", client)

	var alone, ours []time.Duration
	for range costRounds { // in turns, as the machine may become slower
		alone = append(alone, load(t, bare, "bare", client))
		ours = append(ours, load(t, gateway, "proxy", client))
	}

	// The median leaves out rounds in which the machine did something else.
	slices.Sort(alone)
	slices.Sort(ours)

	a, b := alone[costRounds/2], ours[costRounds/2]
	test.AtMost(t,
		fmt.Sprintf("processor time of the proxy a request, %.2f times the %v of httputil.ReverseProxy",
			float64(b)/float64(a), a), b, a*13/10)
}
