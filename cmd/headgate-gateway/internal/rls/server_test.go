package rls

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/engine"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/faultproxy"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/policy"
)

// listening is a server on a port of loopback.
type listening struct {
	*Server
	engine *engine.Engine
	addr   string
}

func listen(t testing.TB, eo engine.Options, o Options) *listening {
	t.Helper()
	if eo.Apps == nil {
		eo.Apps = []string{"shop"}
	}
	if eo.Logger == nil {
		eo.Logger = quiet
	}

	e, err := engine.Open(context.Background(), eo)
	if err != nil {
		t.Fatal(err)
	}

	s, err := New(e, o)
	if err != nil {
		t.Fatal(err)
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()

	// The server ends before its engine, which its calls ask.
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return &listening{s, e, l.Addr().String()}
}

func connect(t testing.TB, addr string, c credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:"+addr, grpc.WithTransportCredentials(c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// onRedis returns the options of an engine on that server.
func onRedis(t testing.TB, addr, prefix string, policies policy.Set) engine.Options {
	return engine.Options{
		Source: engine.Fixed(policies), Redis: &redis.UniversalOptions{Addrs: []string{addr}}, RedisPrefix: prefix,
		Expected: 2,
	}
}

// TestExactlyTheQuotaIsAdmitted makes calls from 100 connections to two gateways on one
// Redis, four times the quota of each tenant. The limits have windows of 300 days, so that no
// unit comes back meanwhile.
func TestExactlyTheQuotaIsAdmitted(t *testing.T) {
	t.Run("20,000 calls", func(t *testing.T) { admitExactly(t, 20_000) })
	t.Run("100,000 calls", func(t *testing.T) {
		test.Long(t, "100,000 calls take a minute on a machine under load")
		admitExactly(t, 100_000)
	})
}

func admitExactly(t *testing.T, calls int) {
	const conns, tenants = 100, 10

	// A quarter of the calls fits: three of four are refused, and the race is at the edge.
	quota := calls / tenants / 4
	server := redistest.Start(t)
	limits := set(byKey("tenants", fmt.Sprintf("%d/7200h fixed-window", quota), "header:Tenant"),
		byKey("all", "1000000/7200h fixed-window", "global"))

	eo := onRedis(t, server.Addr, "exact:", limits)
	eo.Timeout = 5 * time.Second // so that a machine under load does not count in memory

	one, two := listen(t, eo, Options{}), listen(t, eo, Options{})
	var passed [tenants]atomic.Int64
	var done sync.WaitGroup

	// The connections alternate between the gateways, and each asks for all tenants in turn.
	for i := range conns {
		conn := connect(t, []string{one.addr, two.addr}[i%2], insecure.NewCredentials())
		client := pb.NewRateLimitServiceClient(conn)
		done.Go(func() {
			for n := range calls / conns {
				tenant := (i + n) % tenants
				r, err := client.ShouldRateLimit(context.Background(),
					request("shop", fmt.Sprintf("tenant=%d", tenant)))
				if err != nil {
					t.Error(err)
					return
				}

				// An answer without the store would admit by another count, and prove nothing.
				if m := r.GetDynamicMetadata().AsMap(); m["fallback"] != nil || m["undecided"] != nil {
					t.Errorf("the store did not decide: %v", m)
					return
				}
				if r.GetOverallCode() == ok {
					passed[tenant].Add(1)
				}
			}
		})
	}

	done.Wait()

	for i := range passed {
		if n := passed[i].Load(); n != int64(quota) {
			t.Errorf("tenant %d: %d admitted of %d calls, want %d", i, n, calls/tenants, quota)
		}
	}

	// All that was admitted, and nothing else, was taken from the limit that never refused.
	client := pb.NewRateLimitServiceClient(connect(t, one.addr, insecure.NewCredentials()))
	r, err := client.ShouldRateLimit(context.Background(), request("shop", "other=x hits:0"))
	if err != nil {
		t.Fatal(err)
	}
	if left := r.GetStatuses()[0].GetLimitRemaining(); left != uint32(1_000_000-quota*tenants) {
		t.Errorf("%d left of the limit that refused nothing, want %d: a refusal cost it something", left,
			1_000_000-quota*tenants)
	}
}

// unhurried returns the metadata of an answer, but for its remark that a busy machine was late.
func unhurried(r *pb.RateLimitResponse) map[string]any {
	m := r.GetDynamicMetadata().AsMap()
	delete(m, "late")
	return m
}

// untilDecided asks until Redis decides: on a busy machine a call may miss its time.
func untilDecided(t *testing.T, ask func() (*pb.RateLimitResponse, error)) {
	t.Helper()
	end := time.Now().Add(time.Minute)
	for {
		r, err := ask()
		if err != nil || r.GetOverallCode() != ok || time.Now().After(end) {
			t.Fatalf("with Redis: %v, %v", r, err)
		}
		if len(unhurried(r)) == 0 {
			return
		}
	}
}

// TestFrozenRedis asks while Redis does not answer.
func TestFrozenRedis(t *testing.T) {
	open, closed, local := byKey("open", "5/7200h fixed-window", "header:Open"),
		byKey("closed", "5/7200h fixed-window", "header:Closed"),
		byKey("local", "4/7200h fixed-window", "header:Local")
	open.OnStoreError, closed.OnStoreError = "open", "closed"

	server := redistest.Start(t)
	eo := onRedis(t, server.Addr, "frozen:", set(open, closed, local))

	byAnswer := listen(t, eo, Options{})
	byError := listen(t, eo, Options{ClosedAsError: true})
	ask := func(addr, d string) (*pb.RateLimitResponse, error) {
		client := pb.NewRateLimitServiceClient(connect(t, addr, insecure.NewCredentials()))
		return client.ShouldRateLimit(context.Background(), request("shop", d))
	}

	// Redis decides each limit before it stops: the connections are open.
	for _, d := range list("open=x", "closed=x", "local=x") {
		untilDecided(t, func() (*pb.RateLimitResponse, error) { return ask(byAnswer.addr, d+" hits:0") })
		untilDecided(t, func() (*pb.RateLimitResponse, error) { return ask(byError.addr, d+" hits:0") })
	}

	server.Freeze()
	defer server.Thaw()
	for _, row := range []struct{ descriptor, want, metadata string }{
		{"open=x", "OK | OK", "map[undecided:true]"},
		{"closed=x", "OVER | OVER", "map[undecided:true]"},
		{"local=x", "OK | OK local 2/300DAY left 1 reset 300h", "map[fallback:true]"},
	} {
		from := time.Now()
		r, err := ask(byAnswer.addr, row.descriptor)
		if err != nil {
			t.Fatal(err)
		}

		// The budget of the store and what a decision costs beyond it: a client of Envoy waits no
		// longer.
		test.AtMost(t, "an answer without Redis", time.Since(from), 70*time.Millisecond)
		got := short(r)

		// When the window of the local count ends depends on the day: the codes alone are asked
		// for.
		if row.descriptor == "local=x" {
			got, row.want = got[:7], row.want[:7]
		}

		m := unhurried(r)
		if got != row.want || fmt.Sprint(m) != row.metadata {
			t.Errorf("%s without Redis: %s, metadata %v, want %s, %s", row.descriptor, got, m, row.want, row.metadata)
		}

		if row.descriptor == "closed=x" &&
			string(r.GetRawBody()) != `{"type":"about:blank","title":"Service Unavailable","status":503}` {
			t.Errorf("body %s", r.GetRawBody())
		}
	}

	if _, err := ask(byError.addr, "closed=x"); status.Code(err) != codes.Unavailable {
		t.Errorf("fails closed by an error: %v, want Unavailable", err)
	}
}

func TestHealthAndReflection(t *testing.T) {
	s := listen(t, engine.Options{Source: engine.Fixed(set())}, Options{})
	conn := connect(t, s.addr, insecure.NewCredentials())
	const name = "envoy.service.ratelimit.v3.RateLimitService"

	// An empty name asks for the server as a whole, as probes of Kubernetes do.
	for _, service := range []string{"", name} {
		r, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v, %v", service, r, err)
		}
	}

	stream, err := reflectpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	err = stream.Send(
		&reflectpb.ServerReflectionRequest{MessageRequest: &reflectpb.ServerReflectionRequest_ListServices{}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}

	found := false
	for _, service := range r.GetListServicesResponse().GetService() {
		found = found || service.GetName() == name
	}
	if !found {
		t.Errorf("services %v, want %s among them", r, name)
	}

	if err := stream.CloseSend(); err != nil {
		t.Error(err)
	}
}

// TestShutdown ends a server while a call is under way: it is answered, and health says so
// before.
func TestShutdown(t *testing.T) {
	server := redistest.Start(t)
	proxy := faultproxy.New(t, server.Addr)

	p := byKey("p", "5/7200h fixed-window", "header:K")
	p.OnStoreError = "open"
	eo := onRedis(t, proxy.Addr, "shutdown:", set(p))
	eo.Timeout = time.Second

	s := listen(t, eo, Options{})
	conn := connect(t, s.addr, insecure.NewCredentials())
	client := pb.NewRateLimitServiceClient(conn)
	if _, err := client.ShouldRateLimit(t.Context(), request("shop", "k=x")); err != nil {
		t.Fatal(err)
	}

	watch, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := watch.Recv(); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("health %v, %v", r, err)
	}

	// The answer of Redis is withheld, so that the call is under way for its second.
	proxy.Set(faultproxy.Fault{Drop: true})
	ctx, answered := context.WithCancel(t.Context())
	defer answered()
	go func() {
		if _, err := client.ShouldRateLimit(context.Background(), request("shop", "k=x")); err != nil {
			t.Errorf("the call under way: %v", err)
		}
		answered()
	}()

	// The call reached Redis before the end begins.
	for proxy.Counts().Struck == 0 {
		time.Sleep(time.Millisecond)
	}

	// The watch keeps its stream, so that the end comes when the call has its answer.
	if err := s.Shutdown(ctx); err != context.Canceled {
		t.Errorf("the end of a server with a stream that stays: %v", err)
	}

	// The watch outlives the call: a balancer that goes by health hears of the end before the
	// connection is gone.
	if r, err := watch.Recv(); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health at the end: %v, %v", r, err)
	}
	if _, err := client.ShouldRateLimit(t.Context(), request("shop", "k=x")); status.Code(err) != codes.Unavailable {
		t.Errorf("a call after the end: %v", err)
	}
}

// authority signs certificates for tests.
type authority struct {
	t    testing.TB
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	a := &authority{t: t, pool: x509.NewCertPool()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	var err error

	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}

	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(a.cert)
	return a
}

// sign returns a certificate for 127.0.0.1, for servers and clients.
func (a *authority) sign() tls.Certificate {
	a.t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}

	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestTLS(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	s := listen(t, engine.Options{Source: engine.Fixed(set())}, Options{TLS: &tls.Config{
		Certificates: []tls.Certificate{ours.sign()}, ClientCAs: ours.pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}})

	for _, row := range []struct {
		name string
		c    credentials.TransportCredentials
		code codes.Code
	}{
		// A client learns of the refusal as Unavailable: the handshake of TLS fails, and no call
		// begins.
		{"a client with a certificate",
			credentials.NewTLS(&tls.Config{RootCAs: ours.pool, Certificates: []tls.Certificate{ours.sign()}}),
			codes.OK},
		{"one without", credentials.NewTLS(&tls.Config{RootCAs: ours.pool}), codes.Unavailable},
		{"one of another authority",
			credentials.NewTLS(&tls.Config{RootCAs: ours.pool, Certificates: []tls.Certificate{theirs.sign()}}),
			codes.Unavailable},
		{"one that does not trust the server",
			credentials.NewTLS(&tls.Config{RootCAs: theirs.pool, Certificates: []tls.Certificate{ours.sign()}}),
			codes.Unavailable},
		{"one without TLS", insecure.NewCredentials(), codes.Unavailable},
	} {
		client := pb.NewRateLimitServiceClient(connect(t, s.addr, row.c))
		if _, err := client.ShouldRateLimit(t.Context(), request("shop", "k=v")); status.Code(err) != row.code {
			t.Errorf("%s: %v, want %s", row.name, err, row.code)
		}
	}
}
