//go:build linux

package load

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/store/redisstore"
)

// asService is a variable of the environment that makes the test binary a service. It has
// the settings.
const asService = "HEADGATE_LOAD_SERVICE"

func TestMain(m *testing.M) {
	if text := os.Getenv(asService); text != "" {
		if err := runService(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	test.Exit(m.Run())
}

// settings are what a program says about its limiter.
type settings struct {
	Redis  string // the address, or "" for a store in memory
	Prefix string
	Limits []string // the first by the caller's key, the others by its address

	MemoryKeys int
	Wait       time.Duration // how long requests may wait under the first limit; 0 means that none does
}

// counts are what a service has done.
type counts struct {
	Served map[string]int64 // requests by key
	Local  int64            // decisions of the memory
	Passed int64            // requests that were not counted
}

// runService serves until its standard input ends.
func runService(text string) error {
	var o settings

	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}

	l, err := limiter.New(o.config())
	if err != nil {
		return err
	}
	defer l.Close()

	// Port 0 lets the system choose. The address goes to the parent process by standard output.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}

	server := &http.Server{Handler: handler(l), ReadHeaderTimeout: time.Minute}
	go server.Serve(listener)
	defer server.Close()

	fmt.Println(listener.Addr())

	// The parent closes the pipe to end the service, or dies, which closes it too.
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func (o *settings) config() (c limiter.Config) {
	for i, text := range o.Limits {
		// The first rule is by client, the others by address; only the first may wait.
		r := limiter.Rule{Name: fmt.Sprint("r", i), Key: keyfuncs.APIKey("X-Api-Key"), Limit: core.MustParseLimit(text)}
		if i > 0 {
			r.Key = keyfuncs.RemoteIP
		} else if o.Wait > 0 {
			r.OnLimit = limiter.Wait(o.Wait)
		}
		c.Rules = append(c.Rules, r)
	}

	if o.Redis != "" {
		// Without an address of Redis the limits are in memory.
		client := redis.NewClient(&redis.Options{Addr: o.Redis, ContextTimeoutEnabled: true})
		c.Store = redisstore.MustNew(client, redisstore.Options{Prefix: o.Prefix, MemoryKeys: o.MemoryKeys})
	}

	return c
}

// handler answers limited requests at /, and what became of them at /counts.
func handler(l *limiter.Limiter) http.Handler {
	var served tally

	mux := http.NewServeMux()
	mux.Handle("/", nethttp.New(l)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.add(r.Header.Get("X-Api-Key"))
		io.WriteString(w, "hello\n")
	})))

	mux.HandleFunc("/counts", func(w http.ResponseWriter, _ *http.Request) {
		c := counts{Served: served.counts()}

		// What the store could not decide was counted in memory, or passed.
		for _, t := range l.Status().Troubles {
			c.Local += t.Local
			c.Passed += t.Passed
		}
		json.NewEncoder(w).Encode(c)
	})

	return mux
}

// service is a service in a process of its own.
type service struct {
	t       testing.TB
	addr    string
	process *os.Process
	log     *test.Log
}

// start starts a service, which ends with the test.
func start(t testing.TB, o settings) *service {
	t.Helper()

	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	s := &service{t: t, log: &test.Log{}}

	// The test binary is the service too, if the environment says so.
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), asService+"="+string(text), "GOCOVERDIR="+t.TempDir())

	// Its coverage goes to a directory of its own, so that the profile of the test stays whole.
	c.Stderr = s.log

	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	s.process = c.Process

	// An exit status other than 0 is a failure of the test: the service has crashed.
	t.Cleanup(func() {
		in.Close()
		if err := c.Wait(); err != nil {
			t.Errorf("the service: %v", err)
		}
		if t.Failed() {
			t.Logf("its log:\n%s", s.log)
		}
	})

	// The first line of output is the address, which is printed once the listener is open.
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the service does not listen: %v\n%s", err, s.log)
	}

	s.addr = strings.TrimSpace(line)
	return s
}

// counts returns what the service has done. It waits until its requests have ended.
func (s *service) counts() (c counts) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	r, err := http.NewRequestWithContext(ctx, "GET", "http://"+s.addr+"/counts", nil)
	if err != nil {
		s.t.Fatal(err)
	}

	// A connection of its own, so that the service's last answers are not behind it.
	r.Close = true

	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}

	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&c); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// lines returns how many lines of the log have the text.
func (s *service) lines(text string) int { return strings.Count(s.log.String(), text) }

// tally counts by key. The zero value is ready for use.
type tally struct {
	mu    sync.Mutex
	byKey map[string]int64 // guarded by mu
}

func (t *tally) add(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byKey == nil {
		t.byKey = map[string]int64{}
	}
	t.byKey[key]++
}

func (t *tally) counts() map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.byKey)
}
