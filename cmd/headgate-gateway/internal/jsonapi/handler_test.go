package jsonapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/engine"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/quietlog"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/policy"
)

func one(name, limit string) policy.Policy {
	return policy.Policy{Name: name, Apps: []string{"shop"}, Limit: core.MustParseLimit(limit), Key: "user"}
}

// faultsOf returns the pointers and details of the mistakes in an answer.
func faultsOf(t *testing.T, r reply) string {
	t.Helper()
	var p problem
	if err := json.Unmarshal([]byte(r.body), &p); err != nil || p.Status != r.status {
		t.Fatalf("%d %s", r.status, r.body)
	}
	var list []string
	for _, f := range p.Errors {
		list = append(list, f.Pointer+": "+f.Detail)
	}
	return strings.Join(list, "; ")
}

func TestBodiesAreReadStrictly(t *testing.T) {
	a := inMemory(t)
	deep := strings.Repeat("[", 10) + strings.Repeat("]", 10)

	for _, c := range []struct{ op, body, want string }{
		// None of them is a whole number as every language can hold it, 1e3 included.
		{"take", `{"key":"a","cost":1.5}`, "/cost: it is not a whole number from 0 to 2^53 - 1"},
		{"take", `{"key":"a","cost":9007199254740992}`, "/cost: it is not a whole number from 0 to 2^53 - 1"},
		{"take", `{"key":"a","cost":1e3}`, "/cost: it is not a whole number from 0 to 2^53 - 1"},
		{"take", `{"key":"a","cost":"1"}`, "/cost: it is not a whole number from 0 to 2^53 - 1"},
		{"take", `{"key":"a","cost":null}`, "/cost: it is not a whole number from 0 to 2^53 - 1"},

		{"take", `{"key":"a","key":"b"}`, "/key: it is repeated"},

		// All the mistakes of a body are in one answer, by their JSON Pointer: / and ~ are written
		// ~1 and ~0.
		{"take", `{"key":"a","Cost":2,"a/b~":1}`, "/Cost: it is not known; /a~1b~0: it is not known"},
		{"take", `{"key":1}`, "/key: it is not a text"},
		{"take", `{"key":"\ud800"}`, "/key: it has half a character, or U+FFFD"},
		{"take", `{"key":"` + strings.Repeat("x", 8193) + `"}`, "/key: it is longer than 8192 bytes"},
		{"take", `{"key":"a","id":""}`, "/id: it is empty"},
		{"take", `{}`, `: it needs either "key" or "request"`},

		{"take", `[]`, `: it is not an object; : it needs either "key" or "request"`},
		{"take", `{"items":[]}`, "/items: it is not a list of 1 to 100 items"},
		{"take", `{"items":[` + strings.Repeat(`{"key":"a"},`, 100) + `{"key":"a"}]}`,
			"/items: it is not a list of 1 to 100 items"},

		// A wrong item does not hide that of another, nor those beside the list.
		{"take", `{"items":[{"key":"a","id":"1"},{"key":2},{"key":"a","id":"1"}],"key":"a"}`,
			"/items/1/key: it is not a text; /items/2/id: item 0 has the same id; /key: it is not known"},
		{"take",
			`{"request":{"method":"A B","path":"/%zz","headers":{"host":"a","x":["a",1,"b\n"],"y":[],"X":"2"},"route":1}}`,
			"/request/method: it is not the method of a request; /request/path: it is not the path of a request, as it was sent; " +
				"/request/headers/host: the host has a field of its own, \"host\"; /request/headers/x: it is repeated in another case; " +
				"/request/headers/y: it does not have 1 to 100 lines; /request/route: it is not known"},

		// The other calls know no more than they need: a peek that costs is a mistake of the
		// caller.
		{"peek", `{"key":"a","cost":1}`, "/cost: it is not known"},
		{"refund", `{"token":"hg1_AAAA"}`,
			"/token: it is not a token of this gateway, nor of one with the same secret"},
		{"refund", `{}`, "/token: it is missing"},
		{"settle", `{"token":"x","used":{"api":-1}}`,
			"/token: it is not a token of this gateway, nor of one with the same secret; /used/api: it is not a whole number from 0 to 2^53 - 1"},
		{"renew", `{"token":1}`, "/token: it is not a text"},
		{"debit", `{"request":{}}`, "/key: it is missing; /cost: it is missing; /request: it is not known"},
		{"debit", `{"key":"a","cost":-1}`, "/cost: it is not a whole number from 0 to 2^53 - 1"},
	} {
		got := a.call(c.op, c.body, nil)
		if text := faultsOf(t, got); got.status != 400 || text != c.want {
			t.Errorf("%s %.100s:\n%d %s, want\n%s", c.op, c.body, got.status, text, c.want)
		}
	}

	// What is not JSON at all has one mistake, without a pointer.
	for body, want := range map[string]string{
		`{"key":"a"`: "ends too early", `{"key":"a"} 1`: "goes on after", "": "ends too early", deep: "deeper than 8",
		"{\"key\":\"\xff\"}": "not UTF-8", `{"key":tru}`: "invalid character",
	} {
		if got := a.call("take", body, nil); got.status != 400 || !strings.Contains(got.body, want) {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}

	// A hundred mistakes and one: only the first are written, so that the answer does not grow
	// with the body.
	many := a.call("take", `{"key":"a"`+strings.Repeat(`,"x":1`, 2)+func() (s string) {
		for i := range 99 {
			s += fmt.Sprintf(`,"y%d":1`, i)
		}
		return s
	}()+"}", nil)
	if n := strings.Count(many.body, `"pointer"`); n != maxFaults ||
		!strings.Contains(many.body, "more than 50 mistakes") {
		t.Errorf("%d mistakes are listed", n)
	}

	if left := a.left("a"); !slices.Equal(left, []int64{10, 5}) {
		t.Errorf("a body with mistakes was counted: %v are left", left)
	}
}

func TestCallsHaveTheirForm(t *testing.T) {
	a := inMemory(t)
	for name, c := range map[string]struct {
		change func(*http.Request)
		status int
	}{
		"a GET":   {func(r *http.Request) { r.Method = "GET" }, 405},
		"text":    {func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 415},
		"no type": {func(r *http.Request) { r.Header.Del("Content-Type") }, 415},
		"a charset": {func(r *http.Request) { r.Header.Set("Content-Type", "application/json; charset=utf-8") },
			200},
		"compressed":   {func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }, 415},
		"another path": {func(r *http.Request) { r.URL.Path = "/v1/other" }, 404},
	} {
		got := a.call("take", `{"key":"a","cost":0}`, c.change)
		if got.status != c.status || (got.header.Get("Allow") == "POST") != (c.status == 405) {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}

	if got := a.call("take", `{"key":"`+strings.Repeat("x", MaxBody)+`"}`, nil); got.status != 413 {
		t.Errorf("a large body: %d", got.status)
	}
}

func TestOnlyKnownClientsCall(t *testing.T) {
	e := openEngine(t, engine.Options{Source: engine.Fixed(policies())})
	free := openAPI(t, e, nil)

	known := openAPI(t, e, func(o *Options) {
		o.Clients = map[[sha256.Size]byte]string{sha256.Sum256([]byte("s3cret")): "billing"}
	})
	from := func(addr string) func(*http.Request) { return func(r *http.Request) { r.RemoteAddr = addr } }
	to := func(host string) func(*http.Request) { return func(r *http.Request) { r.Host = host } }
	bearer := func(value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", value) }
	}

	// The chains are what verification leaves: a certificate that was only sent proves nothing.
	verified := func(r *http.Request) {
		r.RemoteAddr = "192.0.2.9:1"
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}},
			VerifiedChains: [][]*x509.Certificate{{{}}}}
	}

	unverified := func(r *http.Request) {
		r.RemoteAddr, r.TLS = "192.0.2.9:1", &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}
	}

	for name, c := range map[string]struct {
		api    api
		change func(*http.Request)
		status int
	}{
		"loopback":               {free, from("127.0.0.1:1"), 200},
		"loopback of IPv6":       {free, from("[::1]:1"), 200},
		"a loopback host":        {free, to("127.0.0.1"), 200},
		"a page of another host": {free, to("rebound.example:8089"), 403}, // whose name resolves to this machine
		"no host":                {free, to(""), 403},
		"a proxy":                {free, func(r *http.Request) { r.Header.Set("X-Forwarded-For", "192.0.2.9") }, 403},
		"a host, and a token": {known, func(r *http.Request) { r.Host = "gate.example"; bearer("Bearer s3cret")(r) },
			200},
		"another machine":        {free, from("192.0.2.9:1"), 403},
		"no address":             {free, from("@"), 403},
		"a certificate":          {free, verified, 200},
		"a certificate as given": {free, unverified, 403},
		"no token":               {known, from("127.0.0.1:1"), 401},
		"a token":                {known, bearer("Bearer s3cret"), 200},
		"another case":           {known, bearer("bearer s3cret"), 200},
		"another token":          {known, bearer("Bearer s3cres"), 401},
		"another scheme":         {known, bearer("Basic s3cret"), 401},

		// The digest is what the configuration holds: who reads it there must not be able to call.
		"a digest": {known, bearer(fmt.Sprintf("Bearer %x", sha256.Sum256([]byte("s3cret")))), 401},
	} {
		got := c.api.call("take", `{"key":"a","cost":0}`, c.change)
		if got.status != c.status || (got.header.Get("WWW-Authenticate") != "") != (c.status == 401) {
			t.Errorf("%s: %d, want %d", name, got.status, c.status)
		}
	}
}

func TestNewNamesEveryMistake(t *testing.T) {
	e := openEngine(t, engine.Options{Source: engine.Fixed(policies())})
	_, err := New(e, Options{Secret: []byte("short"), Keep: time.Second})
	for _, want := range []string{"Log must", "Secret: it has fewer than 32 bytes",
		"Keep: 1s is not within 1m0s to 744h0m0s"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

// A described request is counted as one that comes through a proxy.
func TestRequestsAreCountedByWhatIsDescribed(t *testing.T) {
	a := inMemory(t)
	remaining := func(request string) string {
		got := a.call("take", `{"request":`+request+`}`, nil)
		var answer struct {
			Policies []struct {
				Policy    string
				Remaining int64
			}
		}
		if err := json.Unmarshal([]byte(got.body), &answer); err != nil || got.status != 200 {
			t.Fatalf("%d %s", got.status, got.body)
		}
		return fmt.Sprint(answer.Policies)
	}

	for _, c := range [][2]string{
		{`{"user":"ann"}`, "[{api 9}]"},
		{`{"user":"ann","method":"POST","path":"/login","address":"192.0.2.9"}`, "[{api 8} {login 4}]"},

		// The proxy 192.0.2.1 is trusted and 192.0.2.9 is not: both rows count on the same address
		// as the one above.
		{`{"user":"ben","method":"POST","path":"/LOGIN/?a=b","address":"192.0.2.9:1","headers":{"X-Forwarded-For":"192.0.2.10"}}`, "[{api 9} {login 3}]"},
		{`{"user":"ben","method":"POST","path":"/%6Cogin","address":"192.0.2.1","headers":{"x-forwarded-for":["192.0.2.7","192.0.2.9"]}}`, "[{api 8} {login 2}]"},
		{`{"method":"GET","path":"/login"}`, "[{api 9}]"},
	} {
		if got := remaining(c[0]); got != c[1] {
			t.Errorf("%s: %s, want %s", c[0], got, c[1])
		}
	}

	if got := a.call("take", `{"app":"blog","key":"a"}`, nil); got.body !=
		`{"allowed":true,"outcome":"allowed","degraded":false,"policies":[]}` {
		t.Errorf("without policies: %s", got.body)
	}
}

func TestRequestsMayHaveAQueryAndClaims(t *testing.T) {
	exports, free := one("exports", "9/1h"), one("free", "9/1h")
	exports.Match.Query = map[string]policy.Values{"export": {"csv"}}
	free.Match.Claims = map[string]policy.Values{"realm.roles": {"free"}}
	a := inMemory(t, exports, free)

	for request, want := range map[string]string{
		`{"path":"/a?export=csv"}`:                               "exports",
		`{"path":"/a?export=pdf"}`:                               "",
		`{"claims":{"realm":{"roles":["free"]}}}`:                "free",
		`{"claims":{"realm":{"roles":"pro"}}}`:                   "",
		`{"claims":{},"headers":{"X-Jwt-Payload":"eyJhIjoxfQ"}}`: "",
	} {
		got := a.call("take", `{"request":`+request+`}`, nil)
		if strings.Contains(got.body, `"policy":"`) != (want != "") || !strings.Contains(got.body, want) ||
			got.status != 200 {
			t.Errorf("%s: %d %s", request, got.status, got.body)
		}
	}
	if got := a.call("take", `{"request":{"claims":["a"]}}`, nil); got.status != 400 ||
		!strings.Contains(got.body, `"pointer":"/request/claims","detail":"it is not an object"`) {
		t.Errorf("%d %s", got.status, got.body)
	}
}

func TestShadowPoliciesAreNotShown(t *testing.T) {
	p := one("tried", "1/1h")
	p.Mode = policy.Shadow
	a := inMemory(t, p)
	a.take(`{"key":"a"}`)
	a.wantCall("take", `{"key":"a"}`, 200, `{"allowed":true,"outcome":"allowed","degraded":false,"policies":[]}`)
}

func TestRefundsAndSettlementsHappenOnce(t *testing.T) {
	a := inMemory(t, one("api", "10/1h fixed-window"))
	first, second, third := a.take(`{"key":"a","cost":2}`), a.take(`{"key":"a","cost":3}`),
		a.take(`{"key":"a","cost":4}`)

	// A client that got no answer asks again, and may do so as often as it likes.
	for _, want := range []string{"done", "repeated", "repeated"} {
		a.wantCall("refund", `{"token":"`+first+`"}`, 200, `{"outcome":"`+want+`"}`)
	}

	// The units are back: a settlement would charge for them a second time.
	if got := a.call("settle", `{"token":"`+first+`","used":{"api":9}}`, nil); got.status != 422 {
		t.Errorf("settled after a refund: %d %s", got.status, got.body)
	}

	// A name that is not in the token makes the whole call void, whatever else stands in it.
	for _, bad := range []string{`{"api":4,"other":1}`, `{"other":1}`} {
		if got := a.call("settle", `{"token":"`+second+`","used":`+bad+`}`, nil); got.status != 400 ||
			!strings.Contains(got.body, `\"other\"`) {
			t.Errorf("%s: %d %s", bad, got.status, got.body)
		}
	}

	a.wantCall("settle", `{"token":"`+second+`","used":{"api":1}}`, 200, `{"outcome":"done"}`)
	a.wantCall("settle", `{"token":"`+second+`","used":{"api":1}}`, 200, `{"outcome":"repeated"}`)

	if got := a.call("settle", `{"token":"`+second+`","used":{"api":0}}`, nil); got.status != 422 {
		t.Errorf("settled otherwise: %d %s", got.status, got.body)
	}

	// The first is back, the second used 1 instead of 3, and the third has taken 4: 5 of 10 are
	// left.
	if left := a.left("a"); left[0] != 5 {
		t.Errorf("%v are left, want 5", left)
	}

	// Repeated within one list, it is done once too: 9 instead of 4 take the five that were left.
	a.wantCall("settle", `{"items":[{"token":"`+third+`","used":{"api":9}},{"token":"`+third+`","used":{"api":9}}]}`,
		200, `{"items":[{"outcome":"done"},{"outcome":"repeated"}]}`)
	if left := a.left("a"); left[0] != 0 {
		t.Errorf("%v are left, want 0", left)
	}
}

func TestTokensExpireAndCannotBeForged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := inMemory(t, one("api", "10/month"))
		text := a.take(`{"key":"a","cost":2}`)
		late := a.take(`{"key":"a","cost":2}`)

		// One byte anywhere, in the signature or before it, makes it another's.
		for i := range len(text) {
			b := []byte(text)
			b[i] = map[bool]byte{true: 'B', false: 'A'}[b[i] == 'A']
			if got := a.call("refund", `{"token":"`+string(b)+`"}`, nil); got.status != 400 {
				t.Errorf("a token with another byte %d: %d %s", i, got.status, got.body)
			}
		}

		time.Sleep(DefaultKeep - time.Nanosecond)
		a.wantCall("refund", `{"token":"`+text+`"}`, 200, `{"outcome":"done"}`)

		time.Sleep(time.Nanosecond)
		if got := a.call("refund", `{"token":"`+late+`"}`, nil); faultsOf(t, got) != "/token: it has expired" {
			t.Errorf("%d %s", got.status, got.body)
		}

		// Only the first was given back: two of the ten of this month stay used.
		time.Sleep(DefaultKeep)
		if left := a.left("a"); left[0] != 8 {
			t.Errorf("%v are left, want 8", left)
		}
	})
}

func TestLeasesAreRenewedAndReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := inMemory(t, one("jobs", "1 concurrent ttl=1m"))
		got := a.wantCall("take", `{"key":"a"}`, 200, `{"allowed":true,"outcome":"allowed","degraded":false,`+
			`"policies":[{"policy":"jobs","allowed":true,"on_limit":"reject","limit":1,"remaining":0,"reset":60}],"token":"hg1_","lease_ttl":60}`)
		token := tokens.FindString(got.body)

		// 200 s in all, with a lease of one minute: each renewal begins a new one.
		for range 5 {
			time.Sleep(40 * time.Second)
			got = a.wantCall("renew", `{"token":"`+token+`"}`, 200, `{"held":true,"token":"hg1_"}`)
			token = tokens.FindString(got.body)
		}

		if left := a.left("a"); left[0] != 0 {
			t.Errorf("%v are left, want 0", left)
		}

		// The last token releases what the first took, and a repetition finds it done.
		for range 2 {
			a.wantCall("release", `{"token":"`+token+`"}`, 200, `{"outcome":"done"}`)
		}
		a.wantCall("renew", `{"token":"`+token+`"}`, 200, `{"held":false}`)
		if left := a.left("a"); left[0] != 1 {
			t.Errorf("%v are left after the release, want 1", left)
		}

		// A refund frees the lease as well, as if the take had never been.
		refunded := a.take(`{"key":"a"}`)
		a.wantCall("refund", `{"token":"`+refunded+`"}`, 200, `{"outcome":"done"}`)
		a.wantCall("renew", `{"token":"`+refunded+`"}`, 200, `{"held":false}`)
		if left := a.left("a"); left[0] != 1 {
			t.Errorf("%v are left after the refund, want 1", left)
		}
	})
}

// between calls f after the first answer that there is no record.
type between struct {
	records
	once sync.Once
	f    func()
}

func (b *between) get(ctx context.Context, name string) (string, error) {
	text, err := b.records.get(ctx, name)
	b.once.Do(b.f)
	return text, err
}

// A renewal during which the leases are released does not keep them.
func TestARenewalDoesNotUndoARelease(t *testing.T) {
	e := openEngine(t, engine.Options{Source: engine.Fixed([]policy.Policy{one("jobs", "1 concurrent ttl=1m")})})
	h, err := newHandler(e, Options{Log: quietlog.New(quiet)})
	if err != nil {
		t.Fatal(err)
	}
	a := api{t, h.routes()}
	token := a.take(`{"key":"a"}`)
	// The renewal has read that nothing was released, and only then the release comes.
	h.records = &between{records: h.records,
		f: func() { a.wantCall("release", `{"token":"`+token+`"}`, 200, `{"outcome":"done"}`) }}
	a.wantCall("renew", `{"token":"`+token+`"}`, 200, `{"held":false}`)
	if left := a.left("a"); left[0] != 1 {
		t.Errorf("%v are left, want 1", left)
	}
}

// A request costs what each policy says, unless the program says it. A key is counted by the
// program.
func TestARequestCostsWhatThePolicySays(t *testing.T) {
	p := one("api", "10/48h fixed-window")
	p.Key, p.Cost.Units = "path", 4
	a := inMemory(t, p)

	for _, row := range []struct {
		body string
		left int64
	}{
		{`{"request":{"method":"GET","path":"/a"}}`, 6},
		{`{"request":{"method":"GET","path":"/a"},"cost":3}`, 3},
		{`{"request":{"method":"GET","path":"/a"}}`, 3}, // refused
		{`{"key":"/a"}`, 2},
	} {
		if a.call("take", row.body, nil); a.left("/a")[0] != row.left {
			t.Errorf("%s: %d left, want %d", row.body, a.left("/a")[0], row.left)
		}
	}
}

func withKey(key string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Idempotency-Key", key) }
}

func TestTakesWithAnIDAreCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := inMemory(t, one("api", "2/48h fixed-window"))
		first := a.call("take", `{"key":"a"}`, withKey("1"))
		if !strings.Contains(first.body, `"recorded":true`) || first.header.Get("Idempotent-Replayed") != "" {
			t.Errorf("%v %s", first.header, first.body)
		}

		// The last nanosecond in which the record is kept.
		time.Sleep(DefaultKeep - time.Nanosecond)
		if again := a.call("take", `{"key":"a"}`, withKey("1")); again.body != first.body ||
			again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("the repetition is answered by\n%s, want\n%s", again.body, first.body)
		}

		if other := a.call("take", `{"key":"b"}`, withKey("1")); other.status != 422 {
			t.Errorf("something else with the same id: %d %s", other.status, other.body)
		}

		if left := a.left("a"); left[0] != 1 {
			t.Errorf("%v are left, want 1", left)
		}

		// Two do not fit, and a refusal is recorded too. The window ends 48 h after the first
		// take: a day and a nanosecond from here, rounded up.
		refused := a.call("take", `{"key":"a","cost":2}`, withKey("2"))
		again := a.call("take", `{"key":"a","cost":2}`, withKey("2"))
		if refused.header.Get("Retry-After") != "86401" || again.body != refused.body ||
			again.header.Get("Retry-After") != "86401" {
			t.Errorf("the refusal is answered by\n%v %s, want\n%v %s", again.header, again.body, refused.header,
				refused.body)
		}

		// Now the record is gone, and the same id takes a second time.
		time.Sleep(time.Nanosecond)
		a.call("take", `{"key":"a"}`, withKey("1"))
		if left := a.left("a"); left[0] != 0 {
			t.Errorf("%v are left after a day, want 0", left)
		}
	})
}

func TestItemsOfListsHaveIDs(t *testing.T) {
	a := inMemory(t, one("api", "2/48h fixed-window"))
	a.call("take", `{"key":"a"}`, withKey("1"))
	// "1" was used for another body: that item fails alone, and the two others are counted.
	got := a.call("take", `{"items":[{"key":"c","id":"x"},{"key":"d","id":"1"},{"id":"x2","key":"c"}]}`, nil)
	if n := strings.Count(got.body, `"status":422`); got.status != 200 || n != 1 ||
		strings.Count(got.body, `"outcome":"allowed"`) != 2 {
		t.Errorf("a list: %d %s", got.status, got.body)
	}
	if again := a.call("take", ` { "key" : "c" } `, withKey("x")); !strings.Contains(got.body, again.body) ||
		again.status != 200 {
		t.Errorf("one of a list is repeated by itself as %s", again.body)
	}
	if again := a.call("take", `{"items":[{"id":"x2","key":"c"}]}`, nil); !strings.Contains(got.body,
		again.body[len(`{"items":[`):len(again.body)-1]) {
		t.Errorf("one of a list is repeated as %s", again.body)
	}
}

func TestIDsHaveOnePlace(t *testing.T) {
	a := inMemory(t)
	for name, c := range map[string]struct {
		body   string
		change func(*http.Request)
	}{
		// An id stands in the body or in the header, and a list has one for each of its items.
		"both":     {`{"key":"a","id":"1"}`, withKey("1")},
		"a list":   {`{"items":[{"key":"a"}]}`, withKey("1")},
		"too long": {`{"key":"a"}`, withKey(strings.Repeat("x", 256))},
		"twice":    {`{"key":"a"}`, func(r *http.Request) { r.Header["Idempotency-Key"] = []string{"1", "2"} }},
	} {
		if got := a.call("take", c.body, c.change); got.status != 400 {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
}

// Two clients may choose the same id.
func TestIDsAreOfTheirClient(t *testing.T) {
	e := openEngine(t, engine.Options{Source: engine.Fixed([]policy.Policy{one("api", "9/1h fixed-window")})})
	a := openAPI(t, e, func(o *Options) {
		o.Clients = map[[sha256.Size]byte]string{sha256.Sum256([]byte("1")): "one", sha256.Sum256([]byte("2")): "two"}
	})
	for _, token := range []string{"1", "2", "1"} {
		a.call("take", `{"key":"a","id":"x"}`, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) })
	}
	got := a.call("peek", `{"key":"a"}`, func(r *http.Request) { r.Header.Set("Authorization", "Bearer 1") })
	if !strings.Contains(got.body, `"remaining":7`) {
		t.Errorf("%s, want 7 remaining", got.body)
	}
}

// two returns two gateways on one Redis with one secret.
func two(t *testing.T, addr string, list ...policy.Policy) (a, b api) {
	t.Helper()
	open := func() api {
		o := redisOptions(addr)
		e := openEngine(t, engine.Options{Redis: o, Source: engine.Fixed(list), Timeout: 5 * time.Second})
		return openAPI(t, e, func(o *Options) {
			o.Secret = bytes.Repeat([]byte("k"), MinSecret)
			o.Redis, o.Prefix = e.Redis()
			o.Timeout = 5 * time.Second
		})
	}
	return open(), open()
}

// Of refunds that come at once one is carried out, and the others are told so, at whichever
// gateway. None is told that its outcome is unknown.
func TestRefundsAtOnceAreRepetitions(t *testing.T) {
	server := redistest.Start(t)
	a, b := two(t, server.Addr, one("api", "1000/1h fixed-window"))

	for range 20 {
		token := a.take(`{"key":"a","cost":2}`)
		var done, repeated atomic.Int64
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				switch got := []api{a, b}[i%2].call("refund", `{"token":"`+token+`"}`, nil); got.body {
				case `{"outcome":"done"}`:
					done.Add(1)
				case `{"outcome":"repeated"}`:
					repeated.Add(1)
				default:
					t.Errorf("%d %s", got.status, got.body)
				}
			})
		}

		all.Wait()
		if done.Load() != 1 || repeated.Load() != 7 {
			t.Fatalf("%d are done and %d repeated, want 1 and 7", done.Load(), repeated.Load())
		}
	}

	if left := a.left("a"); left[0] != 1000 {
		t.Errorf("%v are left, want 1000", left)
	}
}

func TestGatewaysOnOneRedisAreOne(t *testing.T) {
	server := redistest.Start(t)
	a, b := two(t, server.Addr, one("api", "1000/1h fixed-window"), one("jobs", "1000 concurrent ttl=1h"))

	id := a.call("take", `{"key":"a","cost":2}`, withKey("1"))
	if again := b.call("take", `{"key":"a","cost":2}`, withKey("1")); again.body != id.body || id.status != 200 {
		t.Errorf("the repetition is answered by\n%s, want\n%s", again.body, id.body)
	}

	// The second gateway has no count of its own.
	if left := b.left("a"); !slices.Equal(left, []int64{998, 998}) {
		t.Errorf("%v are left, want 998 and 998", left)
	}

	// Each token may go to either gateway: both know the secret.
	token := tokens.FindString(id.body)
	renewed := b.wantCall("renew", `{"token":"`+token+`"}`, 200, `{"held":true,"token":"hg1_"}`)
	b.wantCall("release", `{"token":"`+tokens.FindString(renewed.body)+`"}`, 200, `{"outcome":"done"}`)
	a.wantCall("renew", `{"token":"`+token+`"}`, 200, `{"held":false}`)

	b.wantCall("settle", `{"token":"`+token+`","used":{"api":7}}`, 200, `{"outcome":"done"}`)
	a.wantCall("settle", `{"token":"`+token+`","used":{"api":7}}`, 200, `{"outcome":"repeated"}`)

	// Seven were used instead of two, and the lease is back.
	if left := b.left("a"); !slices.Equal(left, []int64{993, 1000}) {
		t.Errorf("%v are left, want 993 and 1000", left)
	}
}

// Of many that do the same at the same time, exactly one does it.
func TestGatewaysDoTheSameOnce(t *testing.T) {
	server := redistest.Start(t)
	a, b := two(t, server.Addr, one("api", "1000/1h fixed-window"), one("jobs", "1000 concurrent ttl=1h"))
	var all sync.WaitGroup
	outcomes := make(chan string, 400)

	tokenOf := func(n int) string { return a.take(fmt.Sprintf(`{"key":"b","cost":%d}`, n)) }
	for range 10 {
		body := `{"token":"` + tokenOf(3) + `"}`
		for i := range 20 {
			all.Go(func() { outcomes <- []api{a, b}[i%2].call("refund", body, nil).body })
		}
	}

	// A take that finds its twin under way is asked to come again: 409, not a second decision.
	for n := range 10 {
		for i := range 20 {
			all.Go(func() {
				got := []api{a, b}[i%2].call("take", `{"key":"c"}`, withKey(fmt.Sprint("n", n)))
				if got.status != 200 && got.status != 409 || got.status == 409 && got.header.Get("Retry-After") != "1" {
					t.Errorf("%d %s", got.status, got.body)
				}
			})
		}
	}

	all.Wait()
	close(outcomes)
	done := 0
	for o := range outcomes {
		if o == `{"outcome":"done"}` {
			done++
		}
	}

	if done != 10 {
		t.Errorf("%d refunds were carried out, want 10", done)
	}
	if left := b.left("b"); !slices.Equal(left, []int64{1000, 1000}) {
		t.Errorf("%v are left after all refunds, want 1000 and 1000", left)
	}
	if left := b.left("c"); !slices.Equal(left, []int64{990, 990}) {
		t.Errorf("%v are left after takes with 10 ids, want 990 and 990", left)
	}
}

// While Redis is away, takes are decided and say that they are not recorded, and nothing
// is given back.
func TestRecordsFailAsDescribed(t *testing.T) {
	server := redistest.Start(t)
	closed := one("closed", "9/1h fixed-window")
	closed.OnStoreError, closed.Apps = "closed", []string{"blog"}
	a, _ := two(t, server.Addr, one("api", "9/1h fixed-window"), closed)

	// The token is from the time when Redis was there, so that only its absence makes the calls
	// fail.
	token := a.take(`{"key":"a","cost":2}`)
	server.Kill()
	got := a.call("take", `{"key":"new"}`, withKey("1"))
	if got.status != 200 || !strings.Contains(got.body, `"recorded":false`) ||
		!strings.Contains(got.body, `"allowed":true`) {
		t.Errorf("%d %s", got.status, got.body)
	}

	// Whether the units were already given back cannot be known: doing it could give them twice.
	for op, body := range map[string]string{"refund": "", "settle": `,"used":{"api":1}`} {
		got := a.call(op, `{"token":"`+token+`"`+body+`}`, nil)
		if got.status != 503 || got.header.Get("Retry-After") != "1" {
			t.Errorf("%s: %d %s", op, got.status, got.body)
		}
	}

	got = a.call("take", `{"app":"blog","key":"a"}`, withKey("2"))
	if got.status != 200 || !strings.Contains(got.body, `"outcome":"failed_closed"`) ||
		!strings.Contains(got.body, `"retry_after":1`) || got.header.Get("Retry-After") != "1" {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// A take with an id waits for Redis twice when it begins to hang, and hardly ever after.
func TestTakesGoOnWhileRedisHangs(t *testing.T) {
	server := redistest.Start(t)
	e := openEngine(t,
		engine.Options{Redis: redisOptions(server.Addr),
			Source: engine.Fixed([]policy.Policy{one("api", "9000/1h fixed-window")})})
	a := openAPI(t, e, func(o *Options) { o.Redis, o.Prefix = e.Redis() })

	take := func(id int) time.Duration {
		begun := time.Now()
		if got := a.call("take", fmt.Sprintf(`{"key":"a","id":"%d"}`, id), nil); got.status != 200 ||
			!strings.Contains(got.body, `"allowed":true`) {
			t.Errorf("%d %s", got.status, got.body)
		}
		return time.Since(begun)
	}

	// The connections are open and the program is loaded before Redis stops to answer.
	for id := range 20 {
		take(id)
	}
	server.Freeze()
	defer server.Thaw()

	var all []time.Duration
	for id := range 41 {
		all = append(all, take(100+id))
	}
	slices.Sort(all)

	// Most takes do not wait for Redis at all. The longest waits for its record and for its
	// decision.
	test.AtMost(t, "a take with an id while Redis hangs, median", all[20], 5*time.Millisecond)
	test.AtMost(t, "a take with an id while Redis hangs, longest", all[40], 70*time.Millisecond)
}

// A take that is under way and never ends, because its gateway dies, may be repeated after
// claimFor.
func TestClaimsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memoryRecords{max: 1000}
		if there, err := m.claim(t.Context(), "a", "1", claimFor); there != "" || err != nil {
			t.Fatal(there, err)
		}
		if there, err := m.claim(t.Context(), "a", "2", claimFor); there != "1" || err != nil {
			t.Fatal(there, err)
		}

		time.Sleep(claimFor)
		if there, err := m.claim(t.Context(), "a", "2", time.Hour); there != "" || err != nil {
			t.Fatal(there, err)
		}

		// 400 bytes and what a record costs beyond them: two do not fit into 1000.
		text := strings.Repeat("x", 400)
		if err := m.replace(t.Context(), "b", text, time.Minute); err != nil {
			t.Fatal(err)
		}
		if _, err := m.claim(t.Context(), "c", text, time.Minute); err != errFull {
			t.Errorf("there is no room: %v", err)
		}

		// The first of the long ones has expired and makes room.
		time.Sleep(time.Minute)
		if _, err := m.claim(t.Context(), "c", text, time.Minute); err != nil || len(m.texts) != 2 {
			t.Errorf("there is room: %v; %d records", err, len(m.texts))
		}

		if err := m.remove(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if there, err := m.get(t.Context(), "a"); there != "" || err != nil || m.bytes != size("c", text) {
			t.Errorf("%q, %v, %d bytes, want %d", there, err, m.bytes, size("c", text))
		}
	})
}

func FuzzBody(f *testing.F) {
	for _, seed := range []string{`{"key":"a"}`, `{"items":[{"request":{"headers":{"a":["b"]}}}]}`,
		`{"token":"hg1_","used":{"a":1}}`} {
		f.Add(seed)
	}

	h := &handler{log: quietlog.New(quiet), secret: make([]byte, MinSecret), ttl: DefaultKeep, now: time.Now}
	f.Fuzz(func(t *testing.T, body string) {
		list := &faults{}
		v, err := parse([]byte(body), list)
		if err != nil {
			return
		}

		for _, taking := range []bool{true, false} {
			h.readAsk(readObject(v, "", list), taking)
			h.readToken(readObject(v, "", list), taking)
		}

		// A pointer repeats names of the body: their length is bounded.
		for _, fault := range list.list {
			if len(fault.Pointer) > 800 {
				t.Errorf("a pointer of %d bytes", len(fault.Pointer))
			}
		}
	})
}

// Another handler has other clients, another secret and another time, and the same records.
func TestWithTakesOtherOptions(t *testing.T) {
	e := openEngine(t, engine.Options{Source: engine.Fixed([]policy.Policy{one("jobs", "100/1h fixed-window")})})
	h, err := New(e, Options{Log: quietlog.New(quiet)})
	if err != nil {
		t.Fatal(err)
	}
	wants := func(h *Handler, op, body string, status int) {
		t.Helper()
		if got := (api{t, h}).call(op, body, nil); got.status != status {
			t.Errorf("%s %s: %d %s, want %d", op, body, got.status, got.body, status)
		}
	}

	a := api{t, h}
	refund := `{"token":"` + a.take(`{"key": "a"}`) + `"}`
	wants(h, "take", `{"key": "a", "id": "x"}`, 200)
	left := a.left("a")

	// Without a secret the one of this process stays, and a repetition is known.
	again := h.With(Options{})
	wants(again, "take", `{"key": "a", "id": "x"}`, 200)
	if got := a.left("a"); !slices.Equal(got, left) {
		t.Errorf("a repetition is counted: %v, want %v", got, left)
	}

	// Another secret knows no token of the former.
	other := h.With(Options{Secret: make([]byte, MinSecret)})
	wants(other, "refund", refund, 400)

	// A token is good for as long as the options say now.
	short := h.With(Options{Keep: MinKeep})
	short.handler.now = func() time.Time { return time.Now().Add(2 * MinKeep) }
	wants(short, "refund", refund, 400)
	wants(other.With(Options{}), "refund", refund, 200)

	clients := h.With(Options{Clients: map[[sha256.Size]byte]string{sha256.Sum256([]byte("t")): "shop"}})
	wants(clients, "peek", `{"key": "a"}`, 401)
}
