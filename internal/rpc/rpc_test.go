package rpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"net/url"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/memstore"
)

func TestCodesAndStatusesAreOneToOne(t *testing.T) {
	for c := range Code(len(statuses)) {
		if got := CodeOf(c.Status()); got != c {
			t.Errorf("code %d has the status %d, which is that of %d", c, c.Status(), got)
		}
		if wants := c != OK; (c.Status() >= 400) != wants {
			t.Errorf("code %d has the status %d", c, c.Status())
		}
	}

	// Back from HTTP, every success is OK, and a status that no code has is unknown.
	for status, want := range map[int]Code{204: OK, 302: OK, 418: Unknown, 502: Unknown} {
		if got := CodeOf(status); got != want {
			t.Errorf("status %d is code %d, want %d", status, got, want)
		}
	}

	// Codes that gRPC does not define yet come from other servers.
	for _, c := range []Code{17, 99, 1<<32 - 1} {
		if got := c.Status(); got != Unknown.Status() {
			t.Errorf("code %d has the status %d", c, got)
		}
	}
}

func TestRefusalOf(t *testing.T) {
	// The text rounds the wait up to a second. The delay that a client computes with does not.
	const second = time.Second
	rule := limiter.Rule{Name: "a", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("1/90500ms fixed-window")}

	banning, costly, closed := rule, rule, rule
	banning.Ban = core.MustParseBan("1/1m for 1h max 1h")
	costly.Cost = func(core.Request) int64 { return 2 }
	closed.Access = keyfuncs.MustAccess(keyfuncs.Lists{Deny: keyfuncs.Callers{Networks: []string{"192.0.2.1"}}})

	failing := rule
	failing.OnStoreError, failing.Cost = limiter.FailClosed, func(core.Request) int64 { panic("boom") }

	for name, row := range map[string]struct {
		rules []limiter.Rule
		want  Refusal
	}{
		"a refusal": {[]limiter.Rule{rule}, Refusal{ResourceExhausted, `over the limit of "a"; retry after 91 seconds`,
			90500 * time.Millisecond,
			[]Violation{{"a", "the quota is used up"}}}},
		"a ban": {[]limiter.Rule{banning},
			Refusal{ResourceExhausted, `banned by "a" for abnormal usage; retry after 3600 seconds`,
				time.Hour,
				[]Violation{{"a", "banned for abnormal usage"}}}},
		"an impossible request": {[]limiter.Rule{costly},
			Refusal{ResourceExhausted, `the request asks for more than "a" can ever hold`, 0,

				[]Violation{{"a", "the request asks for more than the quota can ever hold"}}}},
		"a denial": {[]limiter.Rule{closed}, Refusal{Code: PermissionDenied, Message: `denied by "a"`}},
		"a failure": {[]limiter.Rule{failing}, Refusal{Unavailable, "the limiter cannot decide; retry after 1 second",
			second, nil}},
	} {
		t.Run(name, func(t *testing.T) {
			l := limiter.MustNew(limiter.Config{Rules: row.rules, Logger: slog.New(slog.DiscardHandler),
				Store: memstore.MustNew(memstore.Options{Clock: func() int64 { return 1e15 }})})

			// The first request uses the unit up. Of rules that refuse at once, the two answers are
			// the same.
			var got Refusal
			for range 2 {
				a := l.Admit(&test.Request{Verb: "POST", Peer: "192.0.2.1:1"})
				if a.Status() != 0 {
					got = RefusalOf(a)
				}
				a.Done(a.Status())
			}
			if !reflect.DeepEqual(got, row.want) {
				t.Errorf("got %+v, want %+v", got, row.want)
			}
		})
	}
}

func TestPushback(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "-1", 1: "1", time.Millisecond: "1", time.Millisecond + 1: "2", time.Minute: "60000", time.Minute + 1: "-1",
	} {
		if got := (Refusal{RetryAfter: d}).Pushback(); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}

func TestIdentity(t *testing.T) {
	spiffe, err := url.Parse("spiffe://example.org/ns/shop/sa/cart")
	if err != nil {
		t.Fatal(err)
	}

	name := pkix.Name{CommonName: "cart", Organization: []string{"shop"}}

	// The kinds of names have an order, and of one kind the first counts.
	for want, c := range map[string]*x509.Certificate{
		"uri:spiffe://example.org/ns/shop/sa/cart": {URIs: []*url.URL{spiffe}, Subject: name},
		"subject:CN=cart,O=shop":                   {Subject: name, DNSNames: []string{"a.example"}},
		"dns:a.example":                            {DNSNames: []string{"a.example", "b.example"}, EmailAddresses: []string{"a@b.example"}},
		"email:a@b.example":                        {EmailAddresses: []string{"a@b.example"}},
		"":                                         {},
	} {
		if got := Identity(&tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{c}}}); got != want {
			t.Errorf("%q, want %q", got, want)
		}

		// Anyone can make such a certificate.
		if got := Identity(&tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}}); got != "" {
			t.Errorf("an unverified certificate has the identity %q", got)
		}
	}

	// No TLS at all, and none with a certificate.
	for _, s := range []*tls.ConnectionState{nil, {}, {VerifiedChains: [][]*x509.Certificate{{}}}} {
		if got := Identity(s); got != "" {
			t.Errorf("%+v has the identity %q", s, got)
		}
	}
}

var errRefused = errors.New("refused")

// retry plays a server that refuses with the delays, one after the other, and then admits.
// It returns the instants of the calls.
func (r Retry) play(ctx context.Context, delays ...time.Duration) (at []time.Duration, err error) {
	start := time.Now()
	err = r.Do(ctx, func() error {
		at = append(at, time.Since(start))
		if len(at) <= len(delays) {
			return errRefused
		}
		return nil
	}, func(error) (time.Duration, bool) { return delays[len(at)-1], delays[len(at)-1] >= 0 })
	return at, err
}

func TestRetry(t *testing.T) {
	const second = time.Second
	for name, row := range map[string]struct {
		retry    Retry
		deadline time.Duration
		delays   []time.Duration
		at       []time.Duration
		err      error
	}{
		"a call that is admitted is sent once": {at: []time.Duration{0}},
		"a refused call waits a little longer than it was told": {
			delays: []time.Duration{2 * second, 3 * second},
			at:     []time.Duration{0, 2200 * time.Millisecond, 5500 * time.Millisecond}},
		"an error that says no delay is returned": {
			delays: []time.Duration{-1}, at: []time.Duration{0}, err: errRefused},
		"a delay above MaxWait is not waited for": {
			delays: []time.Duration{10*second + 1}, at: []time.Duration{0}, err: errRefused},
		"a delay of MaxWait is, without jitter": {
			delays: []time.Duration{10 * second}, at: []time.Duration{0, 10 * second}},
		"MaxWait is for all waits together": {retry: Retry{MaxWait: 5 * second},
			delays: []time.Duration{4 * second, second},
			at:     []time.Duration{0, 4400 * time.Millisecond}, err: errRefused},
		"a delay until the deadline is not waited for": {deadline: 2 * second,
			delays: []time.Duration{2 * second}, at: []time.Duration{0}, err: errRefused},
		"a delay before the deadline is": {deadline: 2 * second,
			delays: []time.Duration{2*second - 1}, at: []time.Duration{0, 2*second - 1}},
		"a server that always says now is asked five times": {
			delays: make([]time.Duration, 9), at: []time.Duration{0, 0, 0, 0, 0}, err: errRefused},
		"MaxAttempts counts the first": {retry: Retry{MaxAttempts: 1},
			delays: []time.Duration{second}, at: []time.Duration{0}, err: errRefused},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// The largest jitter, so that the instants are exact.
				row.retry.jitter = func(max time.Duration) time.Duration { return max }
				r, err := row.retry.Complete()
				if err != nil {
					t.Fatal(err)
				}

				ctx := t.Context()
				if row.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, row.deadline)
					defer cancel()
				}

				at, err := r.play(ctx, row.delays...)
				if !slices.Equal(at, row.at) || err != row.err {
					t.Errorf("called at %s, %v; want %s, %v", at, err, row.at, row.err)
				}
			})
		})
	}
}

func TestRetryEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := Retry{}.Complete()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		at, err := r.play(ctx, 5*time.Second)
		if len(at) != 1 || err != context.Canceled || time.Since(start) != time.Second {
			t.Errorf("%d calls, %v after %s", len(at), err, time.Since(start))
		}
	})
}

func TestRetryNamesItsMistakes(t *testing.T) {
	_, err := Retry{MaxWait: -1, MaxAttempts: -2}.Complete()
	if err == nil || err.Error() != "MaxWait: -1ns is negative\nMaxAttempts: -2 is negative" {
		t.Errorf("%v", err)
	}
}

// Random jitter is never below the delay and at most a tenth above it.
func TestJitterIsUpwards(t *testing.T) {
	r, _ := Retry{}.Complete()
	for range 1000 {
		if wait, ok := r.wait(t.Context(), time.Second, time.Minute); !ok ||
			wait < time.Second || wait > 1100*time.Millisecond {
			t.Fatalf("%s, %t", wait, ok)
		}
	}
}
