package redisstore

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// doorman turns clients away: in the handshake if it has a certificate, and else by its answer
// to each command. It counts connections, by the clock of a bubble.
type doorman struct {
	config  *tls.Config // of the server; nil without TLS
	trusts  *x509.CertPool
	answer  string
	refuses bool // to be dialled
	hangs   bool // in the handshake, if that is not nil, and else after any command
	closes  bool // the connection after the answer, which it gives unasked

	mu    sync.Mutex
	conns int
	ends  []net.Conn
}

// dial is the dialler of a client.
func (d *doorman) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if d.refuses {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}

	// A server that hangs in the handshake lets a client connect and says nothing.
	if d.hangs && d.config != nil {
		d.mu.Lock()
		d.conns++
		d.mu.Unlock()
		<-ctx.Done()
		return nil, ctx.Err()
	}

	// Both ends are kept, so that whatever is left can be closed at the end.
	near, end := net.Pipe()
	there := &buffered{Conn: end, writes: make(chan []byte, 100)}
	go there.write()

	d.mu.Lock()
	d.conns++
	d.ends = append(d.ends, near, there)
	d.mu.Unlock()

	if d.config == nil {
		go d.serve(there)
		return &piped{near}, nil
	}

	go func() {
		defer close(there.writes)
		_ = tls.Server(there, d.config).HandshakeContext(ctx)
	}()

	client := tls.Client(near, &tls.Config{RootCAs: d.trusts, ServerName: "redis.example"})
	if err := client.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return client, nil
}

// buffered is an end of a pipe whose writes do not wait for the other end, as with a socket.
type buffered struct {
	net.Conn
	writes chan []byte
}

func (b *buffered) Write(p []byte) (int, error) {
	b.writes <- bytes.Clone(p)
	return len(p), nil
}

// piped is an end of a pipe whose errors are those of a socket.
type piped struct{ net.Conn }

func (p *piped) Write(b []byte) (int, error) {
	n, err := p.Conn.Write(b)
	if errors.Is(err, io.ErrClosedPipe) {
		err = syscall.EPIPE
	}
	return n, err
}

func (p *piped) SetDeadline(at time.Time) error      { _ = p.Conn.SetDeadline(at); return nil }
func (p *piped) SetReadDeadline(at time.Time) error  { _ = p.Conn.SetReadDeadline(at); return nil }
func (p *piped) SetWriteDeadline(at time.Time) error { _ = p.Conn.SetWriteDeadline(at); return nil }

func (b *buffered) write() {
	for p := range b.writes {
		if _, err := b.Conn.Write(p); err != nil {
			return
		}
	}
	_ = b.Close()
}

// serve answers each command.
func (d *doorman) serve(c *buffered) {
	defer close(c.writes)
	if d.closes {
		_, _ = io.WriteString(c, d.answer+"\r\n")
		go func() { _, _ = io.Copy(io.Discard, c.Conn) }()
		return
	}

	commands := bufio.NewReader(c)
	for {
		if _, err := readCommand(commands); err != nil {
			return
		}

		// The commands of a client that hangs are read, and never answered.
		if d.hangs {
			continue
		}

		d.mu.Lock()
		answer := d.answer
		d.mu.Unlock()
		if _, err := io.WriteString(c, answer+"\r\n"); err != nil {
			return
		}
	}
}

// close ends what is left of all connections.
func (d *doorman) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.ends {
		c.Close()
	}
}

func (d *doorman) connections() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.conns
}

// certified makes a certificate for the name, and a pool that has it.
func certified(t *testing.T, name string, from, until time.Time) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	// The certificate is its own authority, so trusting it is trusting the server.
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a test"},
		DNSNames:  []string{name},
		NotBefore: from, NotAfter: until, IsCA: true, BasicConstraintsValid: true}

	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}

	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}

	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// clients are the kinds of clients, by the dialler.
var clients = map[string]func(func(context.Context, string, string) (net.Conn, error)) redis.UniversalClient{
	"one server": func(dial func(context.Context, string, string) (net.Conn, error)) redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: east, Dialer: dial, ContextTimeoutEnabled: true, Protocol: 2})
	},
	"Cluster": func(dial func(context.Context, string, string) (net.Conn, error)) redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{east, west}, Dialer: dial,
			ContextTimeoutEnabled: true, Protocol: 2})
	},
	"Ring": func(dial func(context.Context, string, string) (net.Conn, error)) redis.UniversalClient {
		return redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"east": east}, Dialer: dial,
			ContextTimeoutEnabled: true, Protocol: 2,
			HeartbeatFrequency: time.Hour})
	},
}

// The client dials again and again until the deadline, and then knows only that. The first
// error has the cause all the same, and later calls end with it at once.
func TestCertificateIsNamedInTheFirstError(t *testing.T) {
	day := 24 * time.Hour
	bubble := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

	rows := map[string]struct {
		name        string
		from, until time.Time
		trusted     bool
		want        string
	}{
		// The bubble's clock begins in 2000, so the dates are around that.
		"expired": {"redis.example", bubble.Add(-2 * day), bubble.Add(-day), true,
			"x509: certificate has expired or is not yet valid: current time 2000-01-01T00:00:00Z is after 1999-12-31T00:00:00Z"},
		"another name": {"other.example", bubble.Add(-day), bubble.Add(day), true,
			"x509: certificate is valid for other.example, not redis.example"},
		"unknown authority": {"redis.example", bubble.Add(-day), bubble.Add(day), false,
			"x509: certificate signed by unknown authority"},
	}

	for name, row := range rows {
		certificate, pool := certified(t, row.name, row.from, row.until)

		// A pool without the certificate stands for an authority that is not known.
		if !row.trusted {
			pool = x509.NewCertPool()
		}
		for kind, client := range clients {
			t.Run(name+", "+kind, func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					d := &doorman{config: &tls.Config{Certificates: []tls.Certificate{certificate}}, trusts: pool}
					c := client(d.dial)
					s := MustNew(c, Options{})

					// The first call dials until its time is up. The others know why at once.
					for n, took := range []time.Duration{DefaultTimeout, 0, 0} {
						begun := time.Now()
						_, err := takeOne(t.Context(), s, "k")
						var untrusted *tls.CertificateVerificationError

						if !errors.As(err, &untrusted) ||
							!strings.HasPrefix(err.Error(), "redisstore: no connection: ") ||
							!strings.Contains(err.Error(), row.want) || time.Since(begun) != took {
							t.Errorf("call %d: %v after %v, want %s after %v", n, err, time.Since(begun),
								row.want, took)
						}

						synctest.Wait()
					}

					time.Sleep(time.Minute) // until the client dials no more
					c.Close()
					d.close()
					time.Sleep(time.Minute)
				})
			})
		}
	}
}

// A server that lets no connection in says why, and its first error and all others have that.
// It is asked once in 200 ms, with a dial before and one after.
func TestServerThatTurnsClientsAwayIsAskedNowAndThen(t *testing.T) {
	rows := map[string]struct {
		answer string
		is     error
		want   string
		each   int // trial makes so many connections
	}{
		// A refused greeting is asked over the same connection. A server that is full closes each
		// one, so more are made.
		"no password": {"-NOAUTH Authentication required.", ErrCredentials, "NOAUTH Authentication required.", 2},
		"wrong password": {"-WRONGPASS invalid username-password pair or user is disabled.", ErrCredentials,
			"WRONGPASS invalid username-password pair or user is disabled.", 2},
		"too many others": {"-ERR max number of clients reached", ErrTooManyClients,
			"ERR max number of clients reached", 6},
	}

	for name, row := range rows {
		for kind, client := range clients {
			t.Run(name+", "+kind, func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					d := &doorman{answer: row.answer, closes: row.is == ErrTooManyClients}
					c := client(d.dial)
					s := MustNew(c, Options{})

					begun := time.Now()
					for n := -1; time.Since(begun) < 10*time.Second; time.Sleep(10 * ms) {
						n++
						_, err := takeOne(t.Context(), s, "k")

						// Before the first trial has ended the error may be a deadline.
						if (isLate(err) && n > 0 || d.closes && kind != "one server") &&
							time.Since(begun) < time.Second {
							continue // until the first trial has heard why
						}

						if !errors.Is(err, row.is) || !strings.Contains(err.Error(), row.want) {
							t.Errorf("call %d: %v", n, err)
						}
					}

					// Ten seconds are fifty trials of 200ms, and ten connections for the beginning.
					if n, most := d.connections(), 10+row.each*10_000/200; n > most {
						t.Errorf("%d connections, want at most %d", n, most)
					}

					time.Sleep(time.Minute)
					c.Close()
					d.close()
					time.Sleep(time.Minute)
				})
			})
		}
	}
}

// 600 requests a second ask a server that lets them connect and never answers. The calls of the
// first 50 ms connect, with a dial beside, and so does a trial with four connections until
// 550 ms. From 750 ms on there is a trial every 700 ms: a dial and a connection. Where TLS
// hangs, a trial is a dial, and the client still dials for the first calls, every 5 s.
func TestServerThatHangsMeetsFewConnections(t *testing.T) {
	for name, row := range map[string]struct {
		config *tls.Config
		first  int // connections in the first second, at most
		later  int // in each other
	}{
		"after a command": {nil, 16, 4},
		"in TLS":          {&tls.Config{}, 8, 4},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				d := &doorman{config: row.config, hangs: true}
				c := clients["one server"](d.dial)
				// With a longer one the trials of a server that was never heard are longer too.
				s := MustNew(c, Options{Timeout: DefaultTimeout})
				for most, before, n := row.first, 0, 0; n < 10; n++ {
					for range 600 {
						go func() {
							if _, err := takeOne(t.Context(), s, "k"); !isLate(err) {
								t.Error(err)
							}
						}()
						time.Sleep(time.Second / 600)
					}

					if got := d.connections() - before; got == 0 || got > most {
						t.Errorf("second %d: %d connections, want at most %d", n, got, most)
					}
					most, before = row.later, d.connections()
				}

				time.Sleep(time.Minute)
				c.Close()
				d.close()
				time.Sleep(time.Minute)
			})
		})
	}
}
