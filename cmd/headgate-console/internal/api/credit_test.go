package api

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/redisstore"
)

// withStore gives an API the keys of a store.
func withStore(s *redisstore.Store) func(*Options) {
	apply := func(ctx context.Context, verb core.Verb, p policy.Policy, key string, units, until int64) (
		core.Decision, error) {

		out := make([]core.Decision, 1)
		err := s.Apply(ctx, []core.Op{{Verb: verb, Rule: p.Name, Key: key, Limit: p.LimitOf(key, time.Now()),
			Cost: units, CreditUntil: until}}, out)
		return out[0], err
	}
	return func(o *Options) {
		o.Peek = func(ctx context.Context, p policy.Policy, key string) (core.Decision, error) {
			return apply(ctx, core.Peek, p, key, 1, 0)
		}
		o.Credits = func(ctx context.Context, p policy.Policy, key string) ([]redisstore.Credit, error) {
			return s.Credits(ctx, core.ID{Rule: p.Name, Key: key, Algorithm: p.Limit.Algorithm})
		}
		o.Grant = func(ctx context.Context, p policy.Policy, key string, n int64, until time.Time) (
			core.Decision, error) {

			return apply(ctx, core.Grant, p, key, n, until.UnixMicro())
		}
		o.Revoke = func(ctx context.Context, p policy.Policy, key string) error {
			_, err := apply(ctx, core.Revoke, p, key, 0, 0)
			return err
		}
		o.Debit = func(ctx context.Context, p policy.Policy, key string, n int64) (core.Decision, error) {
			return apply(ctx, core.Debit, p, key, n, 0)
		}
	}
}

// What the API grants, a limiter beside it admits, until it is revoked, and what it debits is
// refused.
func TestCreditOfKeysBesideALimiter(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Addr(t), ContextTimeoutEnabled: true})
	defer client.Close()
	store := redisstore.MustNew(client, redisstore.Options{Prefix: redistest.Prefix(t), Timeout: 10 * time.Second})
	w := newWorld(t, withStore(store))
	w.ask("owner", "PUT", "/api/policies/calls", login(object{"limit": "5/1h fixed-window debt=3", "key": "user"}),
		"If-None-Match", "*").want(201)
	l, err := limiter.New(limiter.Config{Store: store, OnStoreError: limiter.FailClosed,
		Rules: []limiter.Rule{{Name: "calls", Limit: core.MustParseLimit("5/1h fixed-window debt=3")}}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	const key = "a<b>\n\""
	wantAdmitted := func(want int) {
		t.Helper()
		admitted := 0
		for range 20 {
			res, err := l.Take(t.Context(), key, 1)
			if err != nil {
				t.Fatal(err)
			}
			if res.Allowed() {
				admitted++
			}
		}
		if admitted != want {
			t.Errorf("%d are admitted, want %d", admitted, want)
		}
	}
	end := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Second).Format(time.RFC3339)
	grant := func(units any) answer {
		return w.ask("owner", "POST", "/api/policies/calls/key/grant", object{"key": key, "units": units, "until": end})
	}

	grant(7).want(204)
	a := w.ask("viewer", "POST", "/api/policies/calls/key", object{"key": key}).want(200).
		wantValue(12, "remaining").wantValue(7, "credit")
	list, _ := a.get("credits").([]any)
	if len(list) != 1 || at(list[0], "units") != 7. || at(list[0], "until") != end {
		t.Errorf("%s", a.text)
	}
	wantAdmitted(12)
	grant(3).want(204)
	w.ask("owner", "POST", "/api/policies/calls/key/revoke", object{"key": key}).want(204)
	wantAdmitted(0)
	w.ask("owner", "POST", "/api/policies/calls/key/debit", object{"key": key, "units": 2}).
		want(200).wantValue(2, "charged")
	w.ask("owner", "POST", "/api/policies/calls/key/debit", object{"key": key, "units": 2}).
		want(200).wantValue(1, "charged")
	wantAdmitted(0)

	// Mistakes are named by their fields, and change nothing.
	for _, row := range []struct {
		path, field string
		body        object
	}{
		{"grant", "units", object{"key": key, "units": 0, "until": end}},
		{"grant", "units", object{"key": key, "units": -1, "until": end}},
		{"grant", "until", object{"key": key, "units": 1, "until": "tomorrow"}},
		{"grant", "until", object{"key": key, "units": 1}},
		{"grant", "until", object{"key": key, "units": 1, "until": "2020-01-01T00:00:00Z"}},
		{"grant", "until", object{"key": key, "units": 1, "until": "2099-01-01T00:00:00Z"}},
		{"grant", "key", object{"key": strings.Repeat("k", 10<<10), "units": 1, "until": end}},
		{"debit", "units", object{"key": key, "units": 9}},
		{"debit", "units", object{"key": key}},
	} {
		w.ask("owner", "POST", "/api/policies/calls/key/"+row.path, row.body).wantField(row.field)
	}
	grant(1.5).want(422)
	grant(uint64(1) << 60).wantField("units")
	w.ask("viewer", "POST", "/api/policies/calls/key", object{"key": key}).want(200).wantValue(0, "credit")

	log := w.audit(service.AuditQuery{Action: "key.grant", Outcome: service.Done})
	if len(log) != 2 || !strings.Contains(log[0].After+log[1].After, `"units":7,"until":"`+end) {
		t.Errorf("the audit log has %+v", log)
	}
}

// The error of Redis is for the log, and that about a key is for the client.
func TestCreditWhileRedisIsAway(t *testing.T) {
	gone := errors.New("dial 10.0.0.1: refused")
	w := newWorld(t, withRedis, func(o *Options) {
		o.Grant = func(context.Context, policy.Policy, string, int64, time.Time) (core.Decision, error) {
			return core.Decision{}, gone
		}
		o.Debit = func(context.Context, policy.Policy, string, int64) (core.Decision, error) {
			return core.Decision{}, gone
		}
		o.Revoke = func(context.Context, policy.Policy, string) error { return gone }
	})
	for path, body := range map[string]object{
		"grant":  {"key": "192.0.2.1", "units": 1, "until": "2030-01-31T09:00:00Z"},
		"debit":  {"key": "192.0.2.1", "units": 1},
		"revoke": {"key": "192.0.2.1"},
	} {
		a := w.ask("owner", "POST", "/api/policies/p/key/"+path, body).want(503).wantValue("unavailable", "code")
		if strings.Contains(a.text, "10.0.0.1") || !strings.Contains(w.log.String(), "10.0.0.1") {
			t.Errorf("%s: %s", path, a.text)
		}
	}
}
