package web

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/redissource"
	"github.com/headgate/headgate/store/redisstore"
)

func TestReadableTimeRoundsUp(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		0: 0, 1: time.Millisecond, time.Millisecond: time.Millisecond, 999*time.Millisecond + 1: time.Second,
		time.Second: time.Second, time.Second + 1: 2 * time.Second,
		time.Hour - 1: time.Hour, core.Never: core.Never,
	} {
		if got := readableTime(d); got != want {
			t.Errorf("%d ns are shown as %s, want %s", d, got, want)
		}
	}
}

func TestKeyResetNeedsConfirmation(t *testing.T) {
	w := newWorld(t)
	w.policy("p", "5/1m")
	w.fleet.used["p 192.0.2.7"] = 4

	// The key is written as people paste it, and means the address that instances count.
	b := w.as("admin")
	got := b.submit("/keys?policy=p", "/keys", url.Values{"key": {" ::ffff:192.0.2.7 "}}).want(http.StatusOK)
	if !strings.Contains(got.text, "<dd>4</dd>") || !strings.Contains(got.text, "1 of 5") {
		t.Errorf("the page is %s", got.text)
	}

	question := b.post("/keys/reset", got.form("/keys/reset")).want(http.StatusOK)
	if w.fleet.used["p 192.0.2.7"] != 4 {
		t.Error("the question has reset the key")
	}

	b.post("/keys/reset", question.form("/keys/reset")).goes("/keys?policy=p&done=reset")
	if w.fleet.used["p 192.0.2.7"] != 0 {
		t.Error("the key was not reset")
	}

	rows, err := w.Audit(t.Context(), w.admin, service.AuditQuery{Action: "key.reset"})
	w.must(err)
	if len(rows) != 1 || rows[0].Actor != "admin" || rows[0].Object != "policy:p" ||
		rows[0].Outcome != service.Done || rows[0].After != `{"key":"192.0.2.7"}` {
		t.Errorf("the audit log says %+v", rows)
	}
}

func TestKeyResetNeedsAnOwner(t *testing.T) {
	w := newWorld(t)
	w.policy("p", "5/1m")
	w.person("viewer", map[string]service.Role{"a": service.Viewer})
	w.fleet.used["p x"] = 4

	b := w.as("viewer")
	form := url.Values{"policy": {"p"}, "key": {"x"}, "confirm": {"yes"}}

	// The viewer sees the count, and can neither click nor forge the request.
	if got := b.post("/keys", form).want(http.StatusOK); got.form("/keys/reset") != nil {
		t.Error("a viewer sees the button for a reset")
	}

	b.post("/keys/reset", form).want(http.StatusForbidden)
	if w.fleet.used["p x"] != 4 {
		t.Error("a viewer has reset the key")
	}
}

// openFleet returns the fleet of a Redis of its own.
func openFleet(t *testing.T) (Fleet, *redis.Client) {
	t.Helper()
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { client.Close() })

	source, err := redissource.New(client, redissource.Options{})
	if err != nil {
		t.Fatal(err)
	}
	fleet, err := RedisFleet(client, source, "")
	if err != nil {
		t.Fatal(err)
	}
	return fleet, client
}

func TestRedisFleetFindsKeysOfInstances(t *testing.T) {
	fleet, client := openFleet(t)
	p := policy.Policy{Name: "p", Apps: []string{"a"}, Limit: limit("5/1h sliding-log"), Key: "ip"}

	compiled, err := policy.Compile("a", []policy.Policy{p}, policy.Bindings{})
	if err != nil {
		t.Fatal(err)
	}

	// The console has no part in the count: what it finds is what an instance has written.
	l, err := limiter.New(limiter.Config{Store: redisstore.MustNew(client,
		redisstore.Options{Timeout: 10 * time.Second}), Rules: compiled.Rules()})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	for range 3 {
		l.Admit(&sample{ctx: t.Context(), method: "GET", path: "/", remote: "192.0.2.7:1"}).Done(200)
	}

	// To look twice takes nothing.
	key := counted(t.Context(), p, "192.0.2.7")
	for range 2 {
		if d, err := fleet.Peek(t.Context(), p, key); err != nil || d.Remaining != 2 {
			t.Fatalf("it finds %+v, %v", d, err)
		}
	}

	if err := fleet.Reset(t.Context(), p, key); err != nil {
		t.Fatal(err)
	}
	if d, err := fleet.Peek(t.Context(), p, key); err != nil || d.Remaining != 5 {
		t.Errorf("after the reset it finds %+v, %v", d, err)
	}
}

// The console lists the bans of instances, and lifts them.
func TestRedisFleetFindsBansOfInstances(t *testing.T) {
	p := policy.Policy{Name: "p", Apps: []string{"a"}, Limit: limit("1/1h fixed-window"), Key: "api-key",
		Ban: core.MustParseBan("2/1m for 2h max 24h")}
	fleet := banned(t, p)

	// A credential is counted by its digest, so the console never sees it.
	digest := keyfuncs.Digest("s3cret")

	var list []core.Banned
	for len(list) == 0 { // the instance lists in the background what it has seen
		var err error
		if list, err = fleet.Bans(t.Context(), []string{"other", "p"}); err != nil {
			t.Fatal(err)
		}
	}

	if len(list) != 1 || list[0].Rule != "p" || list[0].Key != digest {
		t.Errorf("the bans are %+v", list)
	}

	d, err := fleet.Peek(t.Context(), p, digest)
	if err != nil || !d.Banned || d.At+d.RetryAfter.Microseconds() != list[0].Until {
		t.Errorf("the key is %+v, %v", d, err)
	}

	// The ban is gone from the list as well, and the used limit stays used.
	if err := fleet.Lift(t.Context(), p, digest); err != nil {
		t.Fatal(err)
	}
	if d, err := fleet.Peek(t.Context(), p, digest); err != nil || d.Banned || d.Remaining != 0 {
		t.Errorf("after the lift the key is %+v, %v", d, err)
	}

	if list, err := fleet.Bans(t.Context(), []string{"p"}); err != nil || len(list) != 0 {
		t.Errorf("after the lift the bans are %v, %v", list, err)
	}
}

// banned returns a fleet of which an instance has banned the key s3cret under the policy.
func banned(t *testing.T, p policy.Policy) Fleet {
	t.Helper()
	fleet, client := openFleet(t)

	compiled, err := policy.Compile("a", []policy.Policy{p}, policy.Bindings{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := limiter.New(limiter.Config{Store: redisstore.MustNew(client,
		redisstore.Options{Timeout: 10 * time.Second}), Rules: compiled.Rules()})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	// The first request is within the limit, and the two refusals after it make the ban.
	for range 3 {
		l.Admit(&sample{ctx: t.Context(), method: "GET", path: "/", header: http.Header{"X-Api-Key": {"s3cret"}}}).
			Done(200)
	}
	return fleet
}
