package readme

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/freeport"
	"github.com/headgate/headgate/internal/test/redistest"
)

// Each step of the first page does what the page prints. Linux alone has a second loopback address
// for the other caller.
func TestStartIsTrue(t *testing.T) {
	s := &start{module: newModule(t), page: read(t, "docs/start.md"), front: freeport.Addr(t), back: freeport.Addr(t)}
	programs := slices.DeleteFunc(snippets(t, "docs/start.md"), func(s string) bool { return !isProgram(s) })
	if len(programs) != 2 {
		t.Fatalf("the page has %d programs, not 2", len(programs))
	}

	// The server of nginx stands in the page.
	_, config, _ := strings.Cut(s.page, "\n    server {\n")
	config, _, _ = strings.Cut(config, "\n    }\n\n")
	config = replaced(t, replaced(t, config, "127.0.0.1:8000", s.front), "127.0.0.1:8080", s.back)
	startNginx(t, "server {\n"+config+"\n}\n", s.front)

	t.Run("memory", func(t *testing.T) { s.memory(t, programs[0]) })
	t.Run("users in Redis", func(t *testing.T) {
		server := redistest.Start(t)
		second := replaced(t, programs[1], "127.0.0.1:6379", server.Addr)

		// Two runs share their counts.
		t.Run("first", func(t *testing.T) {
			s.run(t, second)
			s.sixRequests(t, s.front, "alice-token")
		})
		t.Run("again", func(t *testing.T) {
			s.run(t, second)
			s.restarted(t)
		})
	})
}

// start is the page, and the addresses of nginx and of the service behind it.
type start struct{ module, page, front, back string }

// run starts a program of the page.
func (s *start) run(t *testing.T, program string) (output func() string) {
	t.Helper()
	return run(t, s.module, "service", replaced(t, program, "127.0.0.1:8080", s.back), s.back)
}

// sixRequests asks for as many, of which five pass.
func (s *start) sixRequests(t *testing.T, address, token string) {
	t.Helper()
	for i := range 6 {
		if got, want := status(t, "GET", "http://"+address+"/things", token), 200+i/5*229; got != want {
			t.Errorf("request %d: status %d, want %d", i, got, want)
		}
	}
}

// memory takes the steps with a limit in memory.
func (s *start) memory(t *testing.T, program string) {
	log := s.run(t, program)
	s.sixRequests(t, s.back, "")

	// A caller with an address of its own shares the count of nginx.
	client := &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{
		LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext}}
	defer client.CloseIdleConnections()
	answer, err := client.Get("http://" + s.front + "/things")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != 429 {
		t.Errorf("another caller: status %d", answer.StatusCode)
	}

	const finding = "headgate: a proxy forwards the addresses of callers, but the rule counts by the address of " +
		"the proxy"
	if !strings.Contains(s.page, finding) {
		t.Errorf("the page does not say %q", finding)
	}

	// What the program has written arrives a moment later.
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		got := log()
		if strings.Contains(got, finding) && strings.Contains(got, "code=HG001") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the log is\n%s", got)
		}
	}
}

// restarted takes the steps after a restart of the program with its counts in Redis.
func (s *start) restarted(t *testing.T) {
	if got := status(t, "GET", "http://"+s.front+"/things", "alice-token"); got != 429 {
		t.Errorf("alice after a restart: status %d", got)
	}
	if got := status(t, "GET", "http://"+s.front+"/things", "bob-token"); got != 200 {
		t.Errorf("bob: status %d", got)
	}
	if key := firstRefused(t, s.back); key != `"alice"` || !strings.Contains(s.page, "\n    "+key+"\n") {
		t.Errorf("%s is refused", key)
	}
}

// startNginx starts an nginx with one server.
func startNginx(t *testing.T, server, address string) {
	t.Helper()
	program, dir := test.Program(t, "nginx", "nginx-light"), t.TempDir()
	write(t, filepath.Join(dir, "nginx.conf"), []byte("events {}\nhttp {\naccess_log off;\n"+server+"}\n"))
	serve(t, exec.Command(program, "-p", dir, "-c", "nginx.conf", "-e", "stderr",
		"-g", "daemon off; master_process off; pid "+filepath.Join(dir, "pid")+";"), address)
}

// firstRefused returns what the command of the page prints: the keys that users are refused by.
func firstRefused(t *testing.T, address string) string {
	t.Helper()
	answer, err := http.Get("http://" + address + "/debug/limits?format=json")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()

	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}

	// The names are those of debug.Report.
	var report struct {
		Limiters []struct {
			Rules []struct {
				Refused struct{ Keys []struct{ Key string } }
			}
		}
	}
	if err := json.Unmarshal(body, &report); err != nil || len(report.Limiters) != 2 ||
		len(report.Limiters[1].Rules) != 1 || len(report.Limiters[1].Rules[0].Refused.Keys) != 1 {
		t.Fatalf("%v: %s", err, body)
	}
	return report.Limiters[1].Rules[0].Refused.Keys[0].Key
}
