package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/observe/findings"
)

func TestTLSStoreWorksAsItsOwnUser(t *testing.T) {
	server, addr, config := redistest.TLS(t)
	setUser(t, connect(t, server.Addr), documentedACL(t)...)
	options := redis.Options{
		Addr: addr, Username: "limiter", Password: "password", TLSConfig: config,
		ContextTimeoutEnabled: true, DisableIdentity: true,
	}

	c := redis.NewClient(&options)
	defer c.Close()
	s := MustNew(c, Options{Prefix: DefaultPrefix, Timeout: patient})
	op := core.Op{Rule: "r", Key: "k", Limit: limit(t, "2/1h fixed-window"), Cost: 1}

	// Two are granted and one refused: the user may do all that a store does.
	for n, want := range []bool{true, true, false} {
		if d := apply(t, s, op)[0]; d.Allowed != want {
			t.Errorf("take %d: %+v", n, d)
		}
	}

	if found := s.Report().Diagnose(context.Background(), nil); len(found) != 0 {
		t.Errorf("%v", found)
	}

	// A server without a trusted certificate gets no password.
	stranger := options
	stranger.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	d := redis.NewClient(&stranger)
	defer d.Close()
	_, err := takeOne(context.Background(), MustNew(d, Options{Timeout: 200 * time.Millisecond}), "k")
	var unknown *tls.CertificateVerificationError
	if !errors.As(err, &unknown) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a certificate of an unknown authority: %v", err)
	}
}

// The client dials TLS without heeding the deadline of the call; the store does.
func TestTLSStalledHandshakeCostsAtMostTheTimeout(t *testing.T) {
	const timeout = 50 * time.Millisecond
	for _, heeds := range []bool{true, false} {
		c := redis.NewClient(&redis.Options{
			Addr: silent(t), TLSConfig: &tls.Config{InsecureSkipVerify: true}, ContextTimeoutEnabled: heeds,
			DialTimeout: time.Hour, MaxRetries: -1,
		})
		s := MustNew(c, Options{Timeout: timeout})
		costsTheTimeout(t, fmt.Sprint("ContextTimeoutEnabled ", heeds), s)
		c.Close()
	}
}

// Before its first command the client looks for push messages, and if a record of
// TLS has begun for longer than the deadline of the call allows; the store does
// not wait for it.
func TestTLSStalledRecordCostsAtMostTheTimeout(t *testing.T) {
	const timeout = 25 * time.Millisecond
	for _, protocol := range []int{2, 3} {
		addr, config, begun := beginsRecords(t)
		c := redis.NewClient(&redis.Options{
			TLSConfig: config, ContextTimeoutEnabled: true, Protocol: protocol, ReadTimeout: time.Hour,
			// The dialler returns once a record has begun, so that the first read meets it.
			Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
				d := tls.Dialer{Config: config}
				conn, err := d.DialContext(ctx, network, addr)
				if err == nil {
					select {
					case <-begun:
					case <-t.Context().Done():
					}
				}
				return conn, err
			},
		})

		s := MustNew(c, Options{Timeout: timeout})
		costsTheTimeout(t, fmt.Sprint("protocol ", protocol), s)
		c.Close()
	}
}

// beginsRecords starts a server that shakes hands, sends the first bytes of a
// record and nothing more. It then sends on begun.
func beginsRecords(t testing.TB) (addr string, config *tls.Config, begun chan struct{}) {
	t.Helper()
	certified := httptest.NewTLSServer(nil)

	t.Cleanup(certified.Close)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	begun = make(chan struct{}, 1000)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close()

				// go-redis forgets a connection that was made after its pool closed.
				defer context.AfterFunc(t.Context(), func() { conn.Close() })()
				if err := tls.Server(conn, certified.TLS).Handshake(); err != nil {
					return
				}
				_, _ = conn.Write([]byte{23, 3, 3, 1, 0}) // the head of 256 bytes of data, since TLS 1.2
				begun <- struct{}{}
				_, _ = io.Copy(io.Discard, conn)
			})
		}
	})

	t.Cleanup(func() { ln.Close(); running.Wait() })
	return ln.Addr().String(), certified.Client().Transport.(*http.Transport).TLSClientConfig, begun
}

// A handshake that stalls keeps its connection until the client's DialTimeout,
// also after the call has ended. A pool may be full of them for that long.
func TestTLSStoreRecoversFromAStalledHandshake(t *testing.T) {
	_, addr, config := redistest.TLS(t)
	took := afterAStalledHandshake(t, addr, &redis.Options{
		TLSConfig: config, ContextTimeoutEnabled: true, PoolSize: 2, DialTimeout: 500 * time.Millisecond,
	})
	test.AtMost(t, "a decision after the network was mended", took, 600*time.Millisecond)
}

// afterAStalledHandshake lets all handshakes of a store stall, mends the network,
// and returns how long the store then takes to decide.
func afterAStalledHandshake(t *testing.T, server string, o *redis.Options) time.Duration {
	t.Helper()

	// The handshakes of these connections never end, until the door is opened for those after them.
	front, open := closedDoor(t, server)
	o.Addr = front
	c := redis.NewClient(o)
	defer c.Close()

	s := MustNew(c, Options{Timeout: 50 * time.Millisecond})
	for range 5 {
		if _, err := takeOne(context.Background(), s, "k"); err == nil {
			t.Error("a decision")
		}
	}

	open()
	return eventually(t, s, "k")
}

// closedDoor accepts connections and keeps them waiting until open is called;
// those that come later reach the server.
func closedDoor(t testing.TB, server string) (addr string, open func()) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var passes atomic.Bool
	var running sync.WaitGroup

	end := make(chan struct{})
	running.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				// Those that are let in are passed on; the others hear nothing.
				defer client.Close()
				if passes.Load() {
					join(client, server, end)
					return
				}
				<-end
			})
		}
	})

	t.Cleanup(func() { ln.Close(); close(end); running.Wait() })
	return ln.Addr().String(), func() { passes.Store(true) }
}

// join passes bytes both ways until one side leaves or the test ends.
func join(client net.Conn, server string, end chan struct{}) {
	upstream, err := net.Dial("tcp", server)
	if err != nil {
		return
	}

	done := make(chan struct{}, 2)
	var copies sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, upstream}, {upstream, client}} {
		copies.Go(func() { _, _ = io.Copy(way[0], way[1]); done <- struct{}{} })
	}

	select {
	case <-done:
	case <-end:
	}

	client.Close()
	upstream.Close()
	copies.Wait()
}

func TestSentinelLeadsAUserOfItsOwnToTheMaster(t *testing.T) {
	t.Parallel()
	w := redistest.Sentinel(t)
	w.Keep(t)
	for _, server := range []*redistest.Server{w.Master, w.Replica} {
		setUser(t, connect(t, server.Addr), documentedACL(t)...)
	}

	options := redis.FailoverOptions{
		MasterName: redistest.MasterName, SentinelAddrs: redistest.Addrs(w.Sentinels),
		Username: "limiter", Password: "password", ContextTimeoutEnabled: true, DisableIdentity: true,
	}
	c := redis.NewFailoverClient(&options)
	defer c.Close()
	s := MustNew(c, Options{Prefix: DefaultPrefix, Timeout: patient})

	// The sentinels name the master, and the password is for its user.
	if _, err := takeOne(context.Background(), s, "k"); err != nil {
		t.Error(err)
	}
	if found := s.Report().Diagnose(context.Background(), nil); len(found) != 0 {
		t.Errorf("%v", found)
	}

	// A wrong password must not be taken for a master that is away.
	options.Password = "wrong"
	wrong := redis.NewFailoverClient(&options)
	defer wrong.Close()
	if _, err := takeOne(context.Background(), MustNew(wrong, Options{Timeout: patient}), "k"); !errors.Is(err,
		ErrCredentials) {
		t.Error(err)
	}
}

// eventually calls until the step is decided, and returns after how long.
func eventually(t testing.TB, s *Store, key string) time.Duration {
	t.Helper()
	start := time.Now()

	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()

	for time.Since(start) < patient {
		_, err := takeOne(context.Background(), s, key)
		if err == nil {
			return time.Since(start)
		}
		<-tick.C
	}
	t.Fatal("no decision")
	return 0
}

// A wrong password is ErrCredentials, and nothing need be restarted once it is
// right.
func TestPasswordWrongIsErrCredentials(t *testing.T) {
	server := redistest.Start(t)
	admin := connect(t, server.Addr) // its connection stays open, and so it stays in
	ctx := context.Background()
	if err := admin.ConfigSet(ctx, "requirepass", "old").Err(); err != nil {
		t.Fatal(err)
	}

	// Each row is a way not to be let in, and the command of an administrator that mends it.
	rows := []struct {
		name, user, password string
		mend                 []any
	}{
		{"requirepass", "", "hunter2", []any{"CONFIG", "SET", "requirepass", "hunter2"}},
		{"none sent", "", "", []any{"ACL", "SETUSER", "default", "nopass"}},
		{"no such user", "limiter", "hunter2",
			append([]any{"ACL", "SETUSER", "limiter", "reset", "on", ">hunter2"}, documentedACL(t)...)},
		{"user is off", "limiter", "hunter2", []any{"ACL", "SETUSER", "limiter", "on"}},
	}

	for _, row := range rows {
		// The state that the row begins with, where the one before has left another.
		switch row.name {
		case "user is off":
			admin.Do(ctx, "ACL", "SETUSER", "limiter", "off")
		case "none sent":
			admin.Do(ctx, "CONFIG", "SET", "requirepass", "other")
		}

		c := redis.NewClient(&redis.Options{
			Addr: server.Addr, Username: row.user, Password: row.password, ContextTimeoutEnabled: true,
			DisableIdentity: true,
		})
		s := MustNew(c, Options{Prefix: DefaultPrefix, Timeout: patient})

		// The password must not be in the error.
		_, err := takeOne(ctx, s, row.name)
		if !errors.Is(err, ErrCredentials) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", row.name, err)
		}

		if found := s.Report().Diagnose(ctx, nil); len(found) != 1 || found[0].Code != findings.Unanswered {
			t.Errorf("%s: %v", row.name, found)
		}

		if err := admin.Do(ctx, row.mend...).Err(); err != nil {
			t.Fatal(err)
		}
		test.AtMost(t, row.name+": a decision after it was mended", eventually(t, s, row.name), time.Second)
		c.Close()
	}
}

// A password is rotated by adding the new one, moving the clients and removing
// the old one. Connections that are open stay so, and no call fails.
func TestPasswordRotationFailsNoCall(t *testing.T) {
	server := redistest.Start(t)
	admin := connect(t, server.Addr)
	ctx := context.Background()
	setUser(t, admin, documentedACL(t)...)

	// The client asks for its password at each connection.
	password := make(chan string, 1)
	password <- "password"
	c := redis.NewClient(&redis.Options{
		Addr: server.Addr, ContextTimeoutEnabled: true, DisableIdentity: true,
		CredentialsProviderContext: func(context.Context) (string, string, error) {
			p := <-password
			password <- p
			return "limiter", p, nil
		},
	})
	defer c.Close()
	s := MustNew(c, Options{Timeout: patient})

	op := core.Op{Rule: "r", Key: "k", Limit: limit(t, "1000/1h"), Cost: 1}
	hit := func(when string, want int64) {
		t.Helper()
		if d := apply(t, s, op)[0]; d.Remaining != want {
			t.Errorf("%s: %+v", when, d)
		}
	}

	hit("at first", 999)

	// The new password is added, then the clients get it, and then the old one is removed.
	for _, change := range []string{">renewed", "<password"} {
		if change == "<password" {
			<-password
			password <- "renewed"
		}
		if err := admin.Do(ctx, "ACL", "SETUSER", "limiter", change).Err(); err != nil {
			t.Fatal(err)
		}
		hit("after "+change, map[string]int64{">renewed": 998, "<password": 997}[change])
	}

	// The open connections were in use all the time. A new one has the new password.
	if n := admin.ClientKillByFilter(ctx, "USER", "limiter").Val(); n == 0 {
		t.Error("no connection of the user was open")
	}
	eventually(t, s, "other")
	hit("on a new connection", 996)
}
