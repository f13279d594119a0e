package gatewaytest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/freeport"
)

// asked is what nginx asks, as it is in examples/gateway, for a request of a browser.
const asked = "GET /auth?deny_status=403 HTTP/1.1\r\nHost: headgate\r\n" +
	"X-Original-Method: GET\r\nX-Original-URI: /api/users/1234?sort=name\r\nX-Forwarded-Host: shop.test\r\nX-Forwarded-For: 192.0.2.1\r\n" +
	"User-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\nAccept: text/html,application/xhtml+xml\r\nAccept-Language: de,en;q=0.7\r\n" +
	"Cookie: session=0123456789abcdef0123456789abcdef\r\nReferer: https://shop.test/\r\n\r\n"

// bareVariable makes this test binary a server at the address that it holds, which answers
// 204 to all requests.
const bareVariable = "HEADGATE_TEST_BARE_SERVER"

func init() {
	if addr := os.Getenv(bareVariable); addr != "" {
		fmt.Fprintln(os.Stderr,
			http.ListenAndServe(addr, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusNoContent)
			})))
		os.Exit(1)
	}
}

// TestForwardAuthSpeed prints how many questions a second a gateway answers, and at which
// CPU time, beside a server that answers 204 to the same bytes. It fails for no figure, as
// a busy machine changes all. The aim is 0.6 of the bare server's answers a second.
func TestForwardAuthSpeed(t *testing.T) {
	test.Long(t, "takes ten seconds to measure")

	file := filepath.Join(t.TempDir(), "policies.yaml")
	const text = "policies:\n- {name: all, apps: [default], limit: 1000000000/1h, key: ip}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	gateway := Start(t, "-policies", file, "-trusted-proxy", "127.0.0.1")
	addr := freeport.Addr(t)
	bare := Run(t, Answers("http://"+addr, 204), "/usr/bin/env", bareVariable+"="+addr, os.Args[0])
	var rates, costs []float64

	// In turns, as the machine may become slower meanwhile. The fourth of seven is the median.
	for range 7 {
		rate1, cost1 := measure(t, addr, bare)
		rate2, cost2 := measure(t, gateway.Addr, gateway.Process)
		rates, costs = append(rates, rate2/rate1), append(costs, cost2/cost1)
		t.Logf("bare server %6.0f/s, %4.1f µs of CPU; forward-auth %6.0f/s, %4.1f µs", rate1, cost1, rate2, cost2)
	}

	slices.Sort(rates)
	slices.Sort(costs)
	t.Logf("medians: %.2f of the bare server's answers a second, %.2f of its CPU time", rates[3], costs[3])
}

// measure returns the answers a second to clients on eight connections, and the CPU time
// of the server for one, in microseconds.
func measure(t *testing.T, addr string, server *Process) (rate, cost float64) {
	t.Helper()
	const connections, requests = 8, 16000

	var wg sync.WaitGroup
	begun, cpu := time.Now(), cpuTime(t, server)
	for range connections {
		wg.Go(func() {
			if err := hammer(addr, requests/connections); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	return requests / time.Since(begun).Seconds(), float64((cpuTime(t, server) - cpu).Microseconds()) / requests
}

// hammer sends n questions on one connection. It reads the answers without net/http, whose
// client costs more than its server.
func hammer(addr string, n int) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()

	in := bufio.NewReader(c)
	for range n {
		if _, err := io.WriteString(c, asked); err != nil {
			return err
		}

		// An answer to a question has no body: it ends with the empty line.
		for first := true; ; first = false {
			line, err := in.ReadSlice('\n')
			if err != nil {
				return err
			}
			if first && !strings.HasPrefix(string(line), "HTTP/1.1 2") {
				return fmt.Errorf("the answer begins with %q", line)
			}
			if len(line) == 2 {
				break
			}
		}
	}
	return nil
}

// cpuTime returns the CPU time that a program has taken, which Linux counts in hundredths
// of a second.
func cpuTime(t *testing.T, p *Process) time.Duration {
	t.Helper()

	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), ") ") // of the name

	// The fields are utime and stime, the 14th and 15th, of which two stand before the closing
	// bracket.
	fields := strings.Fields(after)
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}
