package rls

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/engine"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/rls/limitfile"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/policy"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// set is the policies of the application "shop".
func set(policies ...policy.Policy) policy.Set {
	for i := range policies {
		policies[i].Apps = []string{"shop"}
	}
	return policies
}

func byKey(name, limit, key string) policy.Policy {
	return policy.Policy{Name: name, Limit: core.MustParseLimit(limit), Key: key}
}

// envoy is a client of a server.
type envoy struct {
	t      testing.TB
	client pb.RateLimitServiceClient
	conn   *grpc.ClientConn
	server *Server
	engine *engine.Engine
}

// start returns a client of a server with the policies and, if files is not "", a folder
// with that file.
func start(t testing.TB, policies policy.Set, file string, o Options) *envoy {
	t.Helper()
	return startOn(t, engine.Options{Source: engine.Fixed(policies)}, file, o)
}

func startOn(t testing.TB, eo engine.Options, file string, o Options) *envoy {
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
	if file != "" {
		o.Config = t.TempDir()
		if err := os.WriteFile(filepath.Join(o.Config, "limits.yaml"), []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := New(e, o)
	if err != nil {
		t.Fatal(err)
	}

	// A connection in memory: its goroutines stay in a bubble of synctest, which a socket would
	// leave.
	l := bufconn.Listen(1 << 16)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}

	// The client goes first, and the engine last: the server asks it until its end.
	t.Cleanup(func() {
		_ = conn.Close()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return &envoy{t, pb.NewRateLimitServiceClient(conn), conn, s, e}
}

// descriptor reads "k=v k=v" and options: "hits:N", "back" for is_negative_hits, "limit:N/unit"
// and "limit:N/5unit".
func descriptor(text string) *ratelimit.RateLimitDescriptor {
	d := &ratelimit.RateLimitDescriptor{}
	for _, f := range strings.Fields(text) {
		switch hits, isHits := strings.CutPrefix(f, "hits:"); {
		case isHits:
			n, _ := strconv.ParseUint(hits, 10, 64)
			d.HitsAddend = wrapperspb.UInt64(n)
		case f == "back":
			d.IsNegativeHits = true
		case strings.HasPrefix(f, "limit:"):
			n, per, _ := strings.Cut(f[len("limit:"):], "/")
			requests, _ := strconv.ParseUint(n, 10, 32)
			unit := strings.TrimLeft(per, "0123456789")
			d.Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{
				RequestsPerUnit: uint32(requests), Unit: typepb.RateLimitUnit(typepb.RateLimitUnit_value[unit]),
			}

			// A number before the unit is a multiplier: "5MINUTE".
			if m := per[:len(per)-len(unit)]; m != "" {
				times, _ := strconv.ParseUint(m, 10, 32)
				d.Limit.UnitMultiplier = wrapperspb.UInt32(uint32(times))
			}
		default:
			key, value, _ := strings.Cut(f, "=")
			d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
	}
	return d
}

func request(domain string, descriptors ...string) *pb.RateLimitRequest {
	r := &pb.RateLimitRequest{Domain: domain}
	for _, d := range descriptors {
		r.Descriptors = append(r.Descriptors, descriptor(d))
	}
	return r
}

func (e *envoy) call(r *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	e.t.Helper()
	return e.client.ShouldRateLimit(context.Background(), r)
}

func (e *envoy) must(r *pb.RateLimitRequest) *pb.RateLimitResponse {
	e.t.Helper()
	answer, err := e.call(r)
	if err != nil {
		e.t.Fatal(err)
	}
	return answer
}

// short writes the codes of an answer and what remains: "OK | OK 5/HOUR left 4 reset 10s".
func short(r *pb.RateLimitResponse) string {
	s := strings.TrimSuffix(r.GetOverallCode().String(), "_LIMIT")
	for _, d := range r.GetStatuses() {
		s += " | " + strings.TrimSuffix(d.GetCode().String(), "_LIMIT")
		if l := d.GetCurrentLimit(); l != nil {
			s += " "
			if l.GetName() != "" {
				s += l.GetName() + " "
			}
			s += fmt.Sprintf("%d/", l.GetRequestsPerUnit())
			if m := l.GetUnitMultiplier(); m != nil {
				s += fmt.Sprint(m.GetValue())
			}
			s += fmt.Sprintf("%s left %d", l.GetUnit(), d.GetLimitRemaining())
		} else if d.GetLimitRemaining() > 0 {
			s += fmt.Sprintf(" left %d", d.GetLimitRemaining())
		}
		if r := d.GetDurationUntilReset(); r != nil {
			s += " reset " + r.AsDuration().String()
		}
	}
	return s
}

// step is a call and its answer.
type step struct {
	descriptors []string
	want        string
}

func (e *envoy) check(domain string, steps []step) {
	e.t.Helper()
	for i, s := range steps {
		if got := short(e.must(request(domain, s.descriptors...))); got != s.want {
			e.t.Errorf("step %d, %q:\n got %s\nwant %s", i, s.descriptors, got, s.want)
		}
	}
}

func list(texts ...string) []string { return texts }

// bubble runs f with a clock that begins at midnight.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

func header(list []*corepb.HeaderValue, name string) string {
	i := slices.IndexFunc(list, func(h *corepb.HeaderValue) bool { return h.GetKey() == name })
	if i < 0 {
		return ""
	}
	return list[i].GetValue()
}

func TestPolicies(t *testing.T) {
	bubble(t, "a policy applies to descriptors that have its key", func(t *testing.T) {
		// Two windows that differ, so that each answer shows which policy it came from.
		e := start(t,
			set(byKey("ips", "3/1h fixed-window", "ip"), byKey("tenants", "2/1m fixed-window", "header:Tenant")), "",
			Options{})
		e.check("shop", []step{
			{list("remote_address=192.0.2.1"), "OK | OK ips 3/HOUR left 2 reset 1h0m0s"},
			{list("tenant=a"), "OK | OK tenants 2/MINUTE left 1 reset 1m0s"},
			{list("other=a"), "OK | OK"},
			{list("remote_address=192.0.2.1 tenant=a", "tenant=b"),
				"OK | OK tenants 2/MINUTE left 0 reset 1m0s | OK tenants 2/MINUTE left 1 reset 1m0s"},
			{list("remote_address=192.0.2.1", "tenant=a"),
				"OVER | OK ips 3/HOUR left 1 reset 1h0m0s | OVER tenants 2/MINUTE left 0 reset 1m0s"},
			{list("remote_address=192.0.2.1"), "OK | OK ips 3/HOUR left 0 reset 1h0m0s"},
		})
	})
}

func TestPolicyProperties(t *testing.T) {
	long := strings.Repeat("x", 1000)
	shop := func(p policy.Policy, change func(*policy.Policy)) policy.Policy {
		change(&p)
		return p
	}
	const limit = "9/1h fixed-window"
	for _, row := range []struct {
		name    string
		policy  policy.Policy
		applies []string // descriptors, each with a count of its own
		not     []string
	}{
		// A key whose part a descriptor lacks applies to nothing. What cannot be parsed as an
		// address still has a count.
		{"ip", byKey("p", limit, "ip"),
			list("remote_address=192.0.2.1", "remote_address=2001:db8::1 other=x", "remote_address=nonsense"),
			list("ip=192.0.2.1")},
		{"user", byKey("p", limit, "user"), list("user=ann", "user="+long), list("x-user=ann")},
		{"method", byKey("p", limit, "method"), list("method=GET", ":method=PUT"), list("path=/GET")},
		{"path", byKey("p", limit, "path"), list("path=/a", ":path=/b?q=1", "path=/%63"), list("method=GET")},
		{"host", byKey("p", limit, "host"), list("host=a.example", ":authority=b.example:443"),
			list("hosts=a.example")},
		{"route", byKey("p", limit, "route"), list("route=/a/{id}"), list("path=/a")},
		{"header", byKey("p", limit, "header:Tenant"), list("tenant=a", "TENANT=b", "Tenant=c x=y"),
			list("tenants=a", "header_match=tenant")},
		{"header with an underscore", byKey("p", limit, "header:generic_key"), list("generic_key=a"),
			list("generic-key=a")},
		{"api key", byKey("p", limit, "api-key"), list("x-api-key=secret"), list("authorization=secret")},
		{"two", byKey("p", limit, "ip+header:Tenant"),
			list("remote_address=192.0.2.1 tenant=a", "remote_address=192.0.2.1 tenant=b"),
			list("remote_address=192.0.2.1", "tenant=a")},
		{"global", byKey("p", limit, "global"), list("anything=x"), nil},

		// A match applies like a key: what the descriptor does not say does not match.
		{"match",
			shop(byKey("p", limit, "ip"),
				func(p *policy.Policy) { p.Match = policy.Match{Methods: []string{"POST"}, Path: "/login"} }),
			list("remote_address=192.0.2.1 method=POST path=/Login/"),
			list("remote_address=192.0.2.1", "remote_address=192.0.2.1 method=GET path=/login",
				"remote_address=192.0.2.1 path=/login", "remote_address=192.0.2.1 method=POST path=/logout")},
		{"host match", shop(byKey("p", limit, "global"), func(p *policy.Policy) { p.Match.Host = "*.example" }),
			list("host=a.example"), list("host=example.org", "remote_address=192.0.2.1")},

		{"query", shop(byKey("p", limit, "path"), func(p *policy.Policy) {
			p.Match.Query = map[string]policy.Values{"export": {"csv"}}
		}), list("path=/a?export=csv", ":path=/b?x=1&export=csv"), list("path=/a", "path=/a?export=pdf", "export=csv")},
		{"claims", shop(byKey("p", limit, "global"), func(p *policy.Policy) {
			p.Match.Claims = map[string]policy.Values{"realm.plan": {"free"}}
		}), list("claim.realm.plan=free"),
			list("realm.plan=free", "claim.plan=free", "claim.realm.plan=pro", "path=/")},

		// Networks need an address to be asked of: a descriptor without one is not limited at all,
		// for it could be of an exempt network.
		{"networks",
			shop(byKey("p", limit, "header:Tenant"),
				func(p *policy.Policy) { p.Access.Allow.Networks = []string{"10.0.0.0/8"} }),
			list("tenant=a remote_address=192.0.2.1"), list("tenant=a", "tenant=a remote_address=10.1.1.1")},
	} {
		bubble(t, row.name, func(t *testing.T) {
			e := start(t, set(row.policy), "", Options{})

			// The first of a count leaves 8: descriptors that shared one would leave 7.
			for _, d := range row.applies {
				if got := short(e.must(request("shop", d))); got != "OK | OK p 9/HOUR left 8 reset 1h0m0s" {
					t.Errorf("%.60q: %s, want the limit of the policy, and one unit used", d, got)
				}
			}

			for _, d := range row.not {
				if got := short(e.must(request("shop", d))); got != "OK | OK" {
					t.Errorf("%q: %s, want no limit", d, got)
				}
			}
		})
	}
}

func TestPlansAndActions(t *testing.T) {
	bubble(t, "a plan", func(t *testing.T) {
		p := byKey("p", "1/1h fixed-window", "user")
		p.PlanBy, p.Plans = "header", map[string]core.Limit{"pro": core.MustParseLimit("5/1h fixed-window")}

		e := start(t, set(p), "", Options{})
		e.check("shop", []step{
			{list("user=ann plan=pro"), "OK | OK p 5/HOUR left 4 reset 1h0m0s"},

			// Bob has no plan, and Ann's of before is not remembered: only her count is her own.
			{list("user=bob"), "OK | OK p 1/HOUR left 0 reset 1h0m0s"},
			{list("user=ann"), "OVER | OVER p 1/HOUR left 0 reset 1h0m0s"},
		})
	})

	bubble(t, "degrade passes and marks the request", func(t *testing.T) {
		p := byKey("p", "1/1h fixed-window", "ip")
		p.OnLimit = "degrade"
		e := start(t, set(p), "", Options{})

		e.check("shop", []step{{list("remote_address=192.0.2.1"), "OK | OK p 1/HOUR left 0 reset 1h0m0s"}})

		// Over, and yet the whole is OK: Envoy lets the request pass, and the server behind sees
		// the header.
		r := e.must(request("shop", "remote_address=192.0.2.1"))
		if got := short(r); got != "OK | OVER p 1/HOUR left 0 reset 1h0m0s" ||
			header(r.GetRequestHeadersToAdd(), "headgate-degraded") != "1" {
			t.Errorf("%s, headers %v", got, r.GetRequestHeadersToAdd())
		}
	})

	bubble(t, "shadow is never over", func(t *testing.T) {
		p := byKey("p", "1/1h fixed-window", "ip")
		p.Mode = policy.Shadow

		e := start(t, set(p, byKey("q", "9/1h fixed-window", "ip")), "", Options{})
		e.check("shop", []step{{list("remote_address=192.0.2.1"), "OK | OK q 9/HOUR left 8 reset 1h0m0s"}})

		// The shadow policy allows 1, so that it would refuse this one.
		r := e.must(request("shop", "remote_address=192.0.2.1"))
		if got := short(r); got != "OK | OK q 9/HOUR left 7 reset 1h0m0s" || len(r.GetRequestHeadersToAdd()) != 0 {
			t.Error(got, r.GetRequestHeadersToAdd())
		}
		if got := fmt.Sprint(r.GetDynamicMetadata().AsMap()); got != "map[shadow:[p]]" {
			t.Errorf("metadata %s", got)
		}

		// Nor does its name stand in what a client gets.
		for _, h := range r.GetResponseHeadersToAdd() {
			if strings.Contains(h.GetValue(), `"p"`) {
				t.Errorf("a client sees a shadow limit: %v", h)
			}
		}
	})

	bubble(t, "wait refuses and concurrency is left out", func(t *testing.T) {
		p := byKey("p", "1/1h", "ip")
		p.OnLimit = "wait 10s"
		var log logged
		e := startOn(t,
			engine.Options{Source: engine.Fixed(set(p, byKey("q", "1 concurrent ttl=1h", "ip"))), Logger: log.logger()},
			"", Options{})

		// Envoy gets the refusal at once: it would give up before a wait of 10 s is over.
		e.check("shop", []step{
			{list("remote_address=192.0.2.1"), "OK | OK p 1/HOUR left 0 reset 1h0m0s"},
			{list("remote_address=192.0.2.1"), "OVER | OVER p 1/HOUR left 0 reset 1h0m0s"},
		})

		// A call says when a request begins and never when it ends, so that a policy of
		// concurrency cannot count.
		if !strings.Contains(log.String(), "policy=q reason=\"it limits requests at a time") {
			t.Errorf("logged %s", log.String())
		}
	})

	bubble(t, "access denies at no cost", func(t *testing.T) {
		p := byKey("p", "5/1h fixed-window", "user")
		p.Access.Deny.Keys = []string{"mallory"}
		e := start(t, set(p, byKey("q", "5/1h fixed-window", "ip")), "", Options{})

		r := e.must(request("shop", "remote_address=192.0.2.1", "user=mallory"))
		if got := short(r); got != "OVER | OK | OVER" || !strings.Contains(string(r.GetRawBody()), `"Forbidden"`) {
			t.Errorf("%s, body %s", got, r.GetRawBody())
		}

		// All 5 are left: what the denied request would have cost the other policy was not taken.
		e.check("shop", []step{{list("remote_address=192.0.2.1 hits:0"), "OK | OK q 5/HOUR left 5 reset 0s"}})
	})
}

func TestHits(t *testing.T) {
	one := set(byKey("p", "10/1h fixed-window", "ip"))
	const ip = "remote_address=192.0.2.1 "
	bubble(t, "of the request", func(t *testing.T) {
		e := start(t, one, "", Options{})
		for _, row := range []struct {
			hits uint32
			want string
		}{
			// 6 do not fit into 5, and are refused whole: the 5 of the next row are still there.
			{0, "OK | OK p 10/HOUR left 9 reset 1h0m0s"},
			{4, "OK | OK p 10/HOUR left 5 reset 1h0m0s"},
			{6, "OVER | OVER p 10/HOUR left 5 reset 1h0m0s"},
			{5, "OK | OK p 10/HOUR left 0 reset 1h0m0s"},
		} {
			r := request("shop", ip)
			r.HitsAddend = row.hits
			if got := short(e.must(r)); got != row.want {
				t.Errorf("%d hits: %s, want %s", row.hits, got, row.want)
			}
		}

		// The message's 3 hits hold for the last alone, which has none of its own.
		r := request("shop", ip+"hits:0", "remote_address=192.0.2.2 hits:2", "remote_address=192.0.2.3")
		r.HitsAddend = 3
		want := "OK | OK p 10/HOUR left 0 reset 1h0m0s | OK p 10/HOUR left 8 reset 1h0m0s | OK p 10/HOUR left 7 reset 1h0m0s"
		if got := short(e.must(r)); got != want {
			t.Errorf("a descriptor's own hits: %s, want %s", got, want)
		}
	})

	bubble(t, "that never fit", func(t *testing.T) {
		e := start(t, one, "", Options{})

		// The second is the largest that the message can carry: it must not become negative on its
		// way.
		e.check("shop", []step{
			{list(ip + "hits:11"), "OVER | OVER p 10/HOUR left 10 reset 1h0m0s"},
			{list(ip + "hits:18446744073709551615"), "OVER | OVER p 10/HOUR left 10 reset 1h0m0s"},
			{list(ip + "hits:10"), "OK | OK p 10/HOUR left 0 reset 1h0m0s"},
		})
	})

	bubble(t, "negative ones give back", func(t *testing.T) {
		e := start(t, one, "", Options{})
		e.check("shop", []step{
			{list(ip + "hits:10"), "OK | OK p 10/HOUR left 0 reset 1h0m0s"},
			{list(ip + "hits:3 back"), "OK | OK p 10/HOUR left 3 reset 1h0m0s"},

			// Without hits it is one. More than were taken leave 10, not 99.
			{list(ip + "back"), "OK | OK p 10/HOUR left 4 reset 1h0m0s"},
			{list(ip + "hits:0 back"), "OK | OK p 10/HOUR left 4 reset 1h0m0s"},
			{list(ip + "hits:99 back"), "OK | OK p 10/HOUR left 10 reset 0s"},
		})
	})

	bubble(t, "of 0 check, and pass at the limit", func(t *testing.T) {
		e := start(t, one, "", Options{})
		e.check("shop", []step{
			{list(ip + "hits:0"), "OK | OK p 10/HOUR left 10 reset 0s"},
			{list(ip + "hits:10"), "OK | OK p 10/HOUR left 0 reset 1h0m0s"},
			{list(ip + "hits:0"), "OK | OK p 10/HOUR left 0 reset 1h0m0s"},

			// A debit of more than is left passes: it happened already. A check refuses from then
			// on.
			{list(ip + "hits:1 headgate=debit"), "OK | OK p 10/HOUR left 0 reset 1h0m0s"},
			{list(ip + "hits:0"), "OVER | OVER p 10/HOUR left 0 reset 1h0m0s"},

			// A refusal by one descriptor costs the other nothing.
			{list(ip+"hits:0", "remote_address=192.0.2.2"),
				"OVER | OVER p 10/HOUR left 0 reset 1h0m0s | OK p 10/HOUR left 10 reset 1h0m0s"},
			{list("remote_address=192.0.2.2 hits:0"), "OK | OK p 10/HOUR left 10 reset 0s"},
		})

		time.Sleep(time.Hour)
		e.check("shop", []step{{list(ip + "hits:0"), "OK | OK p 10/HOUR left 10 reset 0s"}})
	})

	bubble(t, "that are marked are charged beyond the limit", func(t *testing.T) {
		e := start(t, set(byKey("p", "10/10s", "ip")), "", Options{})
		e.check("shop", []step{
			// One unit comes back each second: 15 owed need 6 s until one of 10 is free, and 5 s
			// until none is owed.
			{list(ip + "hits:8"), "OK | OK p 10/10SECOND left 2 reset 8s"},
			{list(ip + "hits:7 headgate=debit"), "OK | OK p 10/10SECOND left 0 reset 15s"},
			{list(ip), "OVER | OVER p 10/10SECOND left 0 reset 6s"},
			{list(ip + "hits:0 headgate=debit"), "OVER | OVER p 10/10SECOND left 0 reset 5s"},

			// Any other value of the mark means nothing, and asks as usual.
			{list(ip + "headgate=other"), "OVER | OVER p 10/10SECOND left 0 reset 6s"},
		})
	})

	bubble(t, "of their own are debits in a domain of debits", func(t *testing.T) {
		e := start(t, one, "", Options{Debit: []string{"shop"}})
		e.check("shop", []step{
			{list(ip), "OK | OK p 10/HOUR left 9 reset 1h0m0s"},

			// 12 exceed the 9 that are left and are charged all the same; 3 given back of the 3
			// beyond leave none.
			{list(ip + "hits:12"), "OK | OK p 10/HOUR left 0 reset 1h0m0s"},
			{list(ip + "hits:0"), "OVER | OVER p 10/HOUR left 0 reset 1h0m0s"},
			{list(ip + "hits:3 back"), "OK | OK p 10/HOUR left 0 reset 1h0m0s"},
			{list(ip + "hits:0"), "OK | OK p 10/HOUR left 0 reset 1h0m0s"},
			{list(ip), "OVER | OVER p 10/HOUR left 0 reset 1h0m0s"},
		})
	})
}

func TestLimitOfADescriptor(t *testing.T) {
	const ip = "remote_address=192.0.2.1 "
	bubble(t, "replaces that of a policy", func(t *testing.T) {
		e := start(t, set(byKey("p", "10/1h fixed-window", "ip"), byKey("q", "5/month", "header:Tenant")), "",
			Options{})

		e.check("shop", []step{
			{list(ip + "limit:3/HOUR"), "OK | OK p 3/HOUR left 2 reset 1h0m0s"},
			{list(ip + "hits:3 limit:3/HOUR"), "OVER | OVER p 3/HOUR left 2 reset 1h0m0s"},
			{list(ip), "OK | OK p 10/HOUR left 8 reset 1h0m0s"},
			{list(ip + "limit:100/30MINUTE"), "OK | OK p 100/30MINUTE left 97 reset 1h0m0s"},

			// Zero requests refuse by themselves and say no name: there is no count that a policy
			// would have.
			{list(ip + "limit:0/HOUR"), "OVER | OVER 0/HOUR left 0 reset 1h0m0s"},
			{list("tenant=a limit:3/HOUR"), "OK | OK"}, // a limit of the calendar cannot be replaced, and fails open
		})
	})

	bubble(t, "has every unit", func(t *testing.T) {
		e := start(t, set(), "domain: d\ndescriptors: []\n", Options{})

		// Windows of months and years have 30 and 365 days from 1970 on: the clock begins 7 days
		// into one.
		for _, row := range []struct{ limit, want string }{
			{"7/SECOND", "7/SECOND left 6 reset 1s"},
			{"7/MINUTE", "7/MINUTE left 6 reset 1m0s"},
			{"7/HOUR", "7/HOUR left 6 reset 1h0m0s"},
			{"7/DAY", "7/DAY left 6 reset 24h0m0s"},
			{"7/MONTH", "7/MONTH left 6 reset 552h0m0s"},
			{"7/YEAR", "7/YEAR left 6 reset 8592h0m0s"},
			{"7/90SECOND", "7/90SECOND left 6 reset 1m30s"},
			{"4294967295/DAY", "4294967295/DAY left 4294967294 reset 24h0m0s"},
			{"0/DAY", "0/DAY left 0 reset 24h0m0s"},
		} {
			want := "OK | OK " + row.want
			if strings.HasPrefix(row.limit, "0") {
				want = "OVER | OVER " + row.want
			}

			if got := short(e.must(request("d", "k="+row.limit+" limit:"+row.limit))); got != want {
				t.Errorf("%s: %s, want %s", row.limit, got, want)
			}
		}
	})

	bubble(t, "is one of its own in a domain of the folder", func(t *testing.T) {
		e := start(t, set(),
			"domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: hour, requests_per_unit: 9}, shadow_mode: true}\n",
			Options{})
		e.check("d", []step{
			// The limit of the request replaces that of the folder, and its shadow mode too.
			{list("k=a limit:1/DAY"), "OK | OK 1/DAY left 0 reset 24h0m0s"},
			{list("k=a limit:1/DAY"), "OVER | OVER 1/DAY left 0 reset 24h0m0s"},
			{list("k=b limit:1/DAY", "l=a limit:1/DAY"),
				"OK | OK 1/DAY left 0 reset 24h0m0s | OK 1/DAY left 0 reset 24h0m0s"},
			{list("k=a"), "OK | OK 9/HOUR left 8 reset 1h0m0s"},
		})
	})
}

const folder = `
domain: d
descriptors:
- {key: a, rate_limit: {unit: hour, requests_per_unit: 3, name: three}}
- {key: a, value: blocked, rate_limit: {unit: minute, requests_per_unit: 0}}
- {key: b, rate_limit: {unlimited: true}, metadata: {kind: free, in: {x: 1}}}
- {key: c, rate_limit: {unit: minute, requests_per_unit: 2, unit_multiplier: 5, name: strict, replaces: [{name: three}]}}
- {key: s, rate_limit: {unit: day, requests_per_unit: 1}, shadow_mode: true}
- {key: s, value: none, rate_limit: {unit: day, requests_per_unit: 0}, shadow_mode: true}
- {key: q1, rate_limit: {unit: hour, requests_per_unit: 2}, quota_mode: true}
- {key: q2, rate_limit: {unit: minute, requests_per_unit: 1}, quota_mode: true, metadata: {kind: second, in: {y: 2}}}
- {key: q2, value: none, rate_limit: {unit: second, requests_per_unit: 0}, quota_mode: true}
- {key: f, value: up/*, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 2}}
- {key: g, rate_limit: {unit: second, requests_per_unit: 10, algorithm: gcra}}
- {key: r, rate_limit: {unlimited: true, replaces: [{name: three}]}}
`

func TestFolder(t *testing.T) {
	for _, row := range []struct {
		name  string
		steps []step
	}{
		{"each value has a count", []step{
			{list("a=1", "a=2"), "OK | OK three 3/HOUR left 2 reset 1h0m0s | OK three 3/HOUR left 2 reset 1h0m0s"},
			{list("a=1 hits:2"), "OK | OK three 3/HOUR left 0 reset 1h0m0s"},
			{list("a=1", "a=2"), "OVER | OVER three 3/HOUR left 0 reset 1h0m0s | OK three 3/HOUR left 2 reset 1h0m0s"},
			{list("a=2 hits:2"), "OK | OK three 3/HOUR left 0 reset 1h0m0s"},
		}},
		{"without a limit a request passes", []step{{list("x=1", "a=1 b=1"), "OK | OK | OK"}}},
		{"0 requests refuse, and cost nothing elsewhere", []step{
			{list("a=1", "a=blocked"), "OVER | OK | OVER 0/MINUTE left 0 reset 1m0s"},
			{list("a=1"), "OK | OK three 3/HOUR left 2 reset 1h0m0s"},
		}},
		{"unlimited", []step{{list("b=1"), "OK | OK left 4294967295"}}},
		{"replaces", []step{
			{list("a=1", "c=1"), "OK | OK | OK strict 2/5MINUTE left 1 reset 5m0s"},
			{list("a=1"), "OK | OK three 3/HOUR left 2 reset 1h0m0s"},
			{list("a=1", "r=1"), "OK | OK | OK left 4294967295"},
		}},
		{"shadow", []step{
			{list("s=1"), "OK | OK 1/DAY left 0 reset 24h0m0s"},
			{list("s=1"), "OK | OK 1/DAY left 0 reset 24h0m0s"},
			{list("s=none"), "OK | OK 0/DAY left 0 reset 24h0m0s"},
		}},
		{"quotas refuse only together", []step{
			{list("q1=1", "q2=1"), "OK | OK 2/HOUR left 1 reset 1h0m0s | OK 1/MINUTE left 0 reset 1m0s"},
			{list("q1=1", "q2=1", "a=1"),
				"OK | OK 2/HOUR left 0 reset 1h0m0s | OVER 1/MINUTE left 0 reset 1m0s | OK three 3/HOUR left 2 reset 1h0m0s"},
			{list("q1=1", "q2=1", "a=1"),
				"OVER | OVER 2/HOUR left 0 reset 1h0m0s | OVER 1/MINUTE left 0 reset 1m0s | OK three 3/HOUR left 1 reset 1h0m0s"},
			{list("a=1 hits:2"), "OK | OK three 3/HOUR left 0 reset 1h0m0s"}, // the refused request cost nothing
			{list("q2=none"), "OVER | OVER 0/SECOND left 0 reset 1s"},
			{list("q2=none", "q1=2"), "OK | OVER 0/SECOND left 0 reset 1s | OK 2/HOUR left 1 reset 1h0m0s"},
		}},
		{"a shared threshold", []step{
			{list("f=up/1"), "OK | OK 2/HOUR left 1 reset 1h0m0s"},
			{list("f=up/2"), "OK | OK 2/HOUR left 0 reset 1h0m0s"},
			{list("f=up/3"), "OVER | OVER 2/HOUR left 0 reset 1h0m0s"},
		}},
		{"a better algorithm", []step{
			{list("g=1 hits:10"), "OK | OK 10/SECOND left 0 reset 1s"},
			{list("g=1 hits:5"), "OVER | OVER 10/SECOND left 0 reset 1s"},
		}},
	} {
		bubble(t, row.name, func(t *testing.T) { start(t, set(), folder, Options{}).check("d", row.steps) })
	}
	bubble(t, "windows end with the unit", func(t *testing.T) {
		e := start(t, set(), folder, Options{})
		time.Sleep(40 * time.Minute)
		e.check("d", []step{{list("a=1 hits:3"), "OK | OK three 3/HOUR left 0 reset 20m0s"}})
		time.Sleep(20*time.Minute - 100*time.Millisecond)
		e.check("d", []step{{list("a=1"), "OVER | OVER three 3/HOUR left 0 reset 1s"}})
		time.Sleep(100 * time.Millisecond)
		e.check("d", []step{{list("a=1"), "OK | OK three 3/HOUR left 2 reset 1h0m0s"}})
	})

	bubble(t, "metadata of limits that the request is within", func(t *testing.T) {
		e := start(t, set(), folder, Options{})
		for _, want := range []string{
			"map[metadata:map[in:map[x:1 y:2] kind:free]]",
			"map[metadata:map[in:map[x:1] kind:free] refused:[rls.d.q2]]",
		} {
			r := e.must(request("d", "b=1", "q2=1"))
			if got := fmt.Sprint(r.GetDynamicMetadata().AsMap()); got != want {
				t.Errorf("metadata %s, want %s", got, want)
			}
		}
	})

	bubble(t, "a shadow limit is counted in the log", func(t *testing.T) {
		var log logged
		e := startOn(t, engine.Options{Source: engine.Fixed(set()), Logger: log.logger()}, folder, Options{})
		for range 5 {
			e.must(request("d", "s=1"))
		}
		time.Sleep(61 * time.Second)
		text := "msg=\"a limit in shadow mode would have refused a request: rls.d.s\""
		if got := strings.Count(log.String(), text+"\n") + 2*strings.Count(log.String(), text+" count=3\n"); got != 3 {
			t.Errorf("logged %s", log.String())
		}
	})

	bubble(t, "a folder that changes", func(t *testing.T) {
		var log logged
		e := startOn(t, engine.Options{Source: engine.Fixed(set()), Logger: log.logger()}, folder, Options{})

		path := filepath.Join(e.server.options.Config, "limits.yaml")
		change := func(text string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2*limitfile.DefaultPoll + time.Millisecond)
		}
		e.check("d", []step{{list("a=1"), "OK | OK three 3/HOUR left 2 reset 1h0m0s"}})
		change(strings.Replace(folder, "requests_per_unit: 3, name: three", "requests_per_unit: 5, name: five", 1))
		e.check("d", []step{{list("a=1"), "OK | OK five 5/HOUR left 3 reset 59m59s"}}) // counts stay
		change("domain: d\ndescriptors: [{key: a, rate_limit: {}}]")
		e.check("d", []step{{list("a=1"), "OK | OK five 5/HOUR left 2 reset 59m58s"}})
		if !strings.Contains(log.String(), `limits.yaml:2: the unit \"\" is not`) {
			t.Errorf("logged %s", log.String())
		}
		change("domain: other\ndescriptors: []")
		if _, err := e.call(request("d", "a=1")); status.Code(err) != codes.NotFound {
			t.Errorf("a domain that is gone: %v", err)
		}
		e.check("other", []step{{list("a=1"), "OK | OK"}})
	})

	bubble(t, "a domain of the folder precedes an application", func(t *testing.T) {
		e := start(t, set(byKey("p", "1/1h", "global")), "domain: shop\ndescriptors: []", Options{})
		e.check("shop", []step{{list("a=1"), "OK | OK"}})
	})
}

func TestNewFindsEveryMistake(t *testing.T) {
	e, err := engine.Open(t.Context(),
		engine.Options{Apps: []string{"shop"}, Source: engine.Fixed(set()), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	_, err = New(e, Options{Poll: -1, Debit: []string{""}, MaxDecisions: -1})
	if err == nil || strings.Count(err.Error(), "rls: ") != 3 {
		t.Errorf("three mistakes: %v", err)
	}
	if _, err = New(e, Options{Config: "/nowhere"}); err == nil ||
		!strings.Contains(err.Error(), `the limits in "/nowhere": `) {
		t.Errorf("a folder that is not there: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	bubble(t, "have a body and headers", func(t *testing.T) {
		e := start(t, set(byKey("p", "2/1m fixed-window", "ip")), "", Options{})
		e.check("shop", []step{{list("remote_address=192.0.2.1 hits:2"), "OK | OK p 2/MINUTE left 0 reset 1m0s"}})
		time.Sleep(20*time.Second + 500*time.Millisecond)
		r := e.must(request("shop", "remote_address=192.0.2.1"))
		want := map[string]string{"ratelimit": `"p";r=0;t=40`, "ratelimit-policy": `"p";q=2;w=60`, "retry-after": "40",
			"cache-control": "no-store", "content-type": "application/problem+json"}
		for name, value := range want {
			if got := header(r.GetResponseHeadersToAdd(), name); got != value {
				t.Errorf("%s: %q, want %q", name, got, value)
			}
		}
		if len(r.GetResponseHeadersToAdd()) != len(want) {
			t.Errorf("headers %v", r.GetResponseHeadersToAdd())
		}
		body := `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
			`"title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"detail":"Retry after 40 seconds.","violated-policies":["p"]}`
		if string(r.GetRawBody()) != body {
			t.Errorf("body %s", r.GetRawBody())
		}
		if got := fmt.Sprint(r.GetDynamicMetadata().AsMap()); got != "map[refused:[p]]" {
			t.Errorf("metadata %s", got)
		}
	})

	bubble(t, "by quotas have them too", func(t *testing.T) {
		e := start(t, set(), folder, Options{})
		e.must(request("d", "q2=1"))
		r := e.must(request("d", "q2=1"))

		for name, value := range map[string]string{"retry-after": "60", "cache-control": "no-store",
			"content-type": "application/problem+json"} {
			if got := header(r.GetResponseHeadersToAdd(), name); got != value {
				t.Errorf("%s: %q, want %q", name, got, value)
			}
		}
		if !strings.HasSuffix(string(r.GetRawBody()), `"violated-policies":["rls.d.q2"]}`) {
			t.Errorf("body %s", r.GetRawBody())
		}
	})

	bubble(t, "headers by option", func(t *testing.T) {
		e := start(t, set(byKey("p", "2/1m fixed-window", "ip")), "", Options{Headers: limiterXRateLimit})
		r := e.must(request("shop", "remote_address=192.0.2.1"))
		if len(r.GetResponseHeadersToAdd()) != 3 ||
			header(r.GetResponseHeadersToAdd(), "x-ratelimit-remaining") != "1" || r.GetRawBody() != nil ||
			r.GetDynamicMetadata() != nil {
			t.Errorf("answer %v", r)
		}
	})
}

func TestCallsThatSayNothingOrTooMuch(t *testing.T) {
	e := start(t, set(byKey("p", "2/1m", "ip")), "domain: d\ndescriptors: []", Options{})
	thousands := make([]string, 10_000)
	for i := range thousands {
		thousands[i] = "k=v"
	}
	for _, row := range []struct {
		name string
		r    *pb.RateLimitRequest
		code codes.Code
		want string
	}{
		{"empty", &pb.RateLimitRequest{}, codes.InvalidArgument, "the domain is empty"},
		{"no domain", request("", "k=v"), codes.InvalidArgument, "the domain is empty"},
		{"no descriptors", request("shop"), codes.InvalidArgument, "there are no descriptors"},
		{"no entries", request("shop", "k=v", ""), codes.InvalidArgument, "descriptor 1 has no entries"},
		{"no key", request("shop", "=v"), codes.InvalidArgument, "an entry of descriptor 0 has no key"},
		{"10,000 descriptors", request("shop", thousands...), codes.InvalidArgument,
			"10000 descriptors are more than 100"},
		{"10,000 entries", request("shop", strings.Repeat("k=v ", 10_000)), codes.InvalidArgument,
			"descriptor 0 has 10000 entries, more than 32"},
		{"a value of 1 MB", request("shop", "k="+strings.Repeat("v", 1<<20)), codes.ResourceExhausted,
			"received message larger than max (1048597 vs. 262144)"},
		{"an unknown domain", request("nowhere\n", "k=v"), codes.NotFound, `the domain "nowhere\n" is not configured`},
		{"a limit without a unit", request("d", "k=v limit:1/EON"), codes.InvalidArgument,
			"the limit of descriptor 0 has no known unit"},
		{"a limit for 0 units", request("d", "k=v limit:1/0DAY"), codes.InvalidArgument,
			"the limit of descriptor 0 has a unit_multiplier that is 0"},
		{"a limit for 401 days", request("d", "k=v limit:1/401DAY"), codes.InvalidArgument,
			"makes the period longer than 400 days"},
	} {
		_, err := e.call(row.r)
		if s := status.Convert(err); s.Code() != row.code || !strings.Contains(s.Message(), row.want) {
			t.Errorf("%s: %v, want %s: %s", row.name, err, row.code, row.want)
		}
	}
	most := request("d", thousands[:MaxDescriptors]...)
	if r := e.must(most); len(r.GetStatuses()) != MaxDescriptors {
		t.Errorf("%d statuses of %d descriptors", len(r.GetStatuses()), MaxDescriptors)
	}
}

func TestExpress(t *testing.T) {
	for _, row := range []struct{ limit, want string }{
		{"10/1s", "10/SECOND"}, {"10/2m", "10/2MINUTE"}, {"10/90m", "10/90MINUTE"}, {"10/3h", "10/3HOUR"},
		{"10/48h", "10/2DAY"},
		{"10/168h", "10/WEEK"}, {"10/720h", "10/MONTH"}, {"10/8760h", "10/YEAR"}, {"10/336h", "10/14DAY"},
		{"1/100ms", "10/SECOND"}, {"10/1500ms", "20/3SECOND"}, {"5000000000/1s", "4294967295/SECOND"},
		{"4294967295/1ms fixed-window", "4294967295/SECOND"}, // which no number of the message can say
		{"7/day", "7/DAY"}, {"7/week start=3", "7/WEEK"}, {"7/month tz=Europe/Berlin", "7/MONTH"}, {"7/year", "7/YEAR"},
	} {
		l := core.MustParseLimit(row.limit)
		quota, unit, n := express(&l)
		got := fmt.Sprintf("%d/", quota)
		if n != 1 {
			got += fmt.Sprint(n)
		}
		if got += pb.RateLimitResponse_RateLimit_Unit(unit).String(); got != row.want {
			t.Errorf("%s: %s, want %s", row.limit, got, row.want)
		}
	}
}

func TestMaxDecisions(t *testing.T) {
	bubble(t, "a call that waits for its decision costs nothing if its deadline comes first", func(t *testing.T) {
		e := start(t, set(byKey("p", "5/1h fixed-window", "ip")), "", Options{MaxDecisions: 1})
		if err := e.server.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := e.client.ShouldRateLimit(ctx, request("shop", "remote_address=192.0.2.1")); status.Code(err) !=
			codes.DeadlineExceeded {
			t.Errorf("a call while another decision is under way: %v", err)
		}
		for _, row := range []struct {
			wait time.Duration
			want string
		}{{50 * time.Millisecond, "map[]"}, {50*time.Millisecond + 1, "map[late:true]"}} {
			go func() {
				time.Sleep(row.wait)
				e.server.leave()
			}()
			r := e.must(request("shop", "remote_address=192.0.2.1 hits:0"))
			if got := short(r) + fmt.Sprint(r.GetDynamicMetadata().AsMap()); got != "OK | OK p 5/HOUR left 5 reset 0s"+
				row.want {
				t.Errorf("a call that waited for %s: %s", row.wait, got)
			}
			if err := e.server.enter(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}
