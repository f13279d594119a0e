package redisstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/freeport"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/findings"
)

// codes returns the codes of the findings of a store on the client.
func codes(t testing.TB, c redis.UniversalClient) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	var list []string
	for _, f := range MustNew(c, Options{Prefix: DefaultPrefix}).Report().Diagnose(ctx, nil) {
		list = append(list, f.Code)
	}
	return strings.Join(list, " ")
}

func TestDiagnoseFindsAServerThatEvicts(t *testing.T) {
	s := redistest.Start(t)
	c := connect(t, s.Addr)
	rows := []struct{ memory, policy, want string }{
		{"0", "noeviction", ""},
		{"0", "allkeys-lru", ""}, // no bound, so nothing is evicted
		{"100mb", "noeviction", ""},
		{"100mb", "volatile-ttl", "HG007"},
		{"100mb", "allkeys-lru", "HG007"},
	}

	for _, row := range rows {
		// The server keeps the settings from row to row, so both are set each time.
		for name, value := range map[string]string{"maxmemory": row.memory, "maxmemory-policy": row.policy} {
			if err := c.ConfigSet(context.Background(), name, value).Err(); err != nil {
				t.Fatal(err)
			}
		}

		if got := codes(t, c); got != row.want {
			t.Errorf("%s %s: %q, want %q", row.memory, row.policy, got, row.want)
		}

		// A Ring asks each of its servers, of which there is one.
		ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": s.Addr}, ContextTimeoutEnabled: true})
		if got := codes(t, ring); got != row.want {
			t.Errorf("%s %s in a ring: %q, want %q", row.memory, row.policy, got, row.want)
		}
		ring.Close()
	}
}

// Under the documented permissions a server that evicts is found.
func TestDiagnoseFindsAServerThatEvictsUnderTheDocumentedPermissions(t *testing.T) {
	s := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	setUser(t, connect(t, s.Addr), documentedACL(t)...)
	if got := codes(t, asUser(t, s.Addr)); got != "HG007" {
		t.Errorf("%q", got)
	}
}

func TestDiagnoseFindsAClusterServerThatEvicts(t *testing.T) {
	t.Parallel()
	nodes := redistest.Cluster(t, 3)

	// The client learns of the others from the one that it is given.
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nodes[0].Addr}, ContextTimeoutEnabled: true})
	defer c.Close()

	// Nothing is found while no server evicts. Then one of three does.
	if got := codes(t, c); got != "" {
		t.Errorf("%q", got)
	}

	var once sync.Once
	err := c.ForEachMaster(context.Background(), func(ctx context.Context, one *redis.Client) (err error) {
		once.Do(func() {
			err = one.ConfigSet(ctx, "maxmemory", "100mb").Err()
			if err == nil {
				err = one.ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err()
			}
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	if got := codes(t, c); got != "HG007" {
		t.Errorf("%q", got)
	}
}

func TestDiagnoseFindsAClientThatIgnoresDeadlines(t *testing.T) {
	m := miniredis.RunT(t) // which knows no CONFIG

	// Each kind of client is asked, and one of another package, of which nothing can be known.
	for heeds, want := range map[bool]string{true: "", false: "HG006"} {
		single := redis.NewClient(&redis.Options{Addr: m.Addr(), ContextTimeoutEnabled: heeds})
		ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": m.Addr()}, ContextTimeoutEnabled: heeds})
		cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{m.Addr()},
			ContextTimeoutEnabled: heeds})

		for _, c := range []redis.UniversalClient{single, ring, cluster, struct{ redis.UniversalClient }{single}} {
			want := want
			if _, foreign := c.(struct{ redis.UniversalClient }); foreign {
				want = ""
			}
			if got := codes(t, c); got != want {
				t.Errorf("%T, heeds %t: %q, want %q", c, heeds, got, want)
			}
		}

		for _, c := range []redis.UniversalClient{single, ring, cluster} {
			c.Close()
		}
	}
}

func TestDiagnoseReportsAServerThatDoesNotAnswer(t *testing.T) {
	for name, addr := range map[string]string{"silent": silent(t), "refused": freeport.Addr(t)} {
		single := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
		cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}, ContextTimeoutEnabled: true})
		ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": addr}, ContextTimeoutEnabled: true})

		// Each has 30ms in all, and ends with one finding.
		for _, c := range []redis.UniversalClient{single, cluster, ring} {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
			found := MustNew(c, Options{Prefix: DefaultPrefix}).Report().Diagnose(ctx, nil)
			cancel()

			if len(found) != 1 || found[0].Code != findings.Unanswered {
				t.Errorf("%s %T: %v", name, c, found)
			}
			c.Close()
		}
	}
}

// A Ring leaves out servers that are down, which are then to be asked later.
func TestDiagnoseReportsAServerThatARingLeavesOut(t *testing.T) {
	t.Parallel()
	m, down := miniredis.RunT(t), miniredis.RunT(t)
	c := redis.NewRing(&redis.RingOptions{
		Addrs: map[string]string{"a": m.Addr(), "b": down.Addr()}, ContextTimeoutEnabled: true,
		HeartbeatFrequency: 5 * time.Millisecond,
	})
	defer c.Close()
	if got := codes(t, c); got != "" {
		t.Errorf("%q with all servers", got)
	}

	// A server that is down is no finding of its own, but it has not been asked.
	down.Close()
	eventuallyTrue(t, "the server is left out", func() bool { return c.Len() == 1 })
	if got := codes(t, c); got != findings.Unanswered {
		t.Errorf("%q without one", got)
	}
}

func TestDiagnoseEndsWithFinalAnswers(t *testing.T) {
	// What the server said of the command is an answer.
	for err, want := range map[error]bool{
		nil:                                   true,
		fault("NOSCRIPT No matching script."): true,
		fault("ERR unknown command 'config'"): true,
		fault("NOPERM this user has no permissions"): true,
		// Whatever passes with time, or with another password, is to be asked again.
		fault("LOADING Redis is loading the dataset in memory"):             false,
		fault("BUSY Redis is busy running a script."):                       false,
		fault("MASTERDOWN Link with MASTER is down"):                        false,
		fault("NOAUTH Authentication required."):                            false,
		fault("WRONGPASS invalid username-password pair"):                   false,
		&net.OpError{Op: "dial", Err: errors.New("refused")}:                false,
		context.DeadlineExceeded:                                            false,
		redis.ErrPoolTimeout:                                                false,
		redis.ErrClosed:                                                     false,
		fmt.Errorf("hello: %w", fault("ERR max number of clients reached")): false,
	} {
		if got := answered(err); got != want {
			t.Errorf("%v: %t", err, got)
		}
	}
}

// firstLine is closed by the first line that is written.
type firstLine struct {
	once sync.Once
	text bytes.Buffer
	done chan struct{}
}

// Write keeps the first finding. Other lines are about errors of the store.
func (w *firstLine) Write(p []byte) (int, error) {
	if !bytes.Contains(p, []byte("code=")) {
		return len(p), nil
	}
	w.once.Do(func() { w.text.Write(p); close(w.done) })
	return len(p), nil
}

func TestDiagnoseFindingsReachTheLog(t *testing.T) {
	m := miniredis.RunT(t)
	c := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer c.Close()

	// The client has no deadlines, which the first finding is about.
	w := &firstLine{done: make(chan struct{})}
	l := limiter.MustNew(limiter.Config{Store: MustNew(c, Options{}), Logger: slog.New(slog.NewTextHandler(w, nil))})
	defer l.Close()

	if _, err := l.Take(context.Background(), "k", 1); err != nil {
		t.Fatal(err)
	}

	// The diagnosis runs beside the first call.
	timer := time.NewTimer(patient)
	defer timer.Stop()
	select {
	case <-w.done:
		if !strings.Contains(w.text.String(), "code=HG006") {
			t.Errorf("%s", &w.text)
		}
	case <-timer.C:
		t.Error("nothing was logged")
	}
}
