package keyfuncs_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
)

// view shows an *http.Request to key functions, as the adapters do.
type view struct{ *http.Request }

func (v view) Method() string              { return v.Request.Method }
func (v view) Path() string                { return v.URL.Path }
func (v view) Route() string               { return v.Pattern }
func (v view) RemoteAddr() string          { return v.Request.RemoteAddr }
func (v view) Header(name string) []string { return v.Request.Header[name] }

// get is a request from the address.
func get(path, remote string) view {
	r := httptest.NewRequest("GET", path, nil)
	r.RemoteAddr = remote
	return view{r}
}

func show(k core.KeyFunc, r core.Request) {
	if key, ok := k(r); ok {
		fmt.Printf("%q\n", key)
		return
	}
	fmt.Println("not about this request")
}

func ExampleRemoteIP() {
	show(keyfuncs.RemoteIP, get("/", "203.0.113.7:4711"))
	show(keyfuncs.RemoteIP, get("/", "[::ffff:203.0.113.7]:4711"))
	show(keyfuncs.RemoteIP, get("/", "[2001:db8:1:2:3:4:5:6]:4711"))
	// Output:
	// "203.0.113.7"
	// "203.0.113.7"
	// "2001:db8:1:2::/64"
}

func ExampleRemoteIPPrefix() {
	k, err := keyfuncs.RemoteIPPrefix(48)
	if err != nil {
		fmt.Println(err)
		return
	}
	show(k, get("/", "[2001:db8:1:2:3:4:5:6]:4711"))
	// Output: "2001:db8:1::/48"
}

func ExampleForwardedIP() {
	k, err := keyfuncs.ForwardedIP(keyfuncs.Proxies{Trusted: []string{"10.0.0.0/8"}})
	if err != nil {
		fmt.Println(err)
		return
	}

	// Each proxy appends the address from which it got the request.
	r := get("/", "10.0.0.1:4711")
	r.Request.Header.Add("X-Forwarded-For", "198.51.100.1") // the caller made it up
	r.Request.Header.Add("X-Forwarded-For", "203.0.113.7, 10.0.0.2")
	show(k, r)

	r.Request.RemoteAddr = "203.0.113.9:4711" // no proxy of ours
	show(k, r)

	// Output:
	// "203.0.113.7"
	// "203.0.113.9"
}

func ExampleMustForwardedIP() {
	key := keyfuncs.MustForwardedIP(keyfuncs.Proxies{Trusted: []string{"10.0.0.0/8"}})
	r := get("/", "10.0.0.1:4711")
	r.Request.Header.Set("X-Forwarded-For", "203.0.113.7")
	show(key, r)
	// Output: "203.0.113.7"
}

// One proxy stands before the server, on a Unix socket.
func ExampleMustForwardedIP_hops() {
	key := keyfuncs.MustForwardedIP(keyfuncs.Proxies{Hops: 1})
	r := get("/", "@")
	r.Request.Header.Add("X-Forwarded-For", "198.51.100.1") // the caller made it up
	r.Request.Header.Add("X-Forwarded-For", "203.0.113.7")
	show(key, r)
	// Output: "203.0.113.7"
}

func ExampleForwardedIP_mistakes() {
	_, err := keyfuncs.ForwardedIP(keyfuncs.Proxies{
		Trusted:    []string{"10.0.0.0/8", "10.1.2.3/8", "0.0.0.0/0"},
		IPv6Prefix: 16,
	})
	fmt.Println(err)
	// Output:
	// keyfuncs: Proxies: IPv6Prefix: an IPv6 prefix of 16 bits is not within 32 to 128
	// Trusted[1]: "10.1.2.3/8" has bits set beyond its length; 10.0.0.0/8 or 10.1.2.3 is meant
	// Trusted[2]: "0.0.0.0/0" trusts every address
}

func ExampleForwardedIP_singleHeader() {
	k := keyfuncs.MustForwardedIP(keyfuncs.Proxies{Trusted: keyfuncs.Private(), Header: "X-Real-IP"})
	r := get("/", "127.0.0.1:4711")
	r.Request.Header.Set("X-Real-Ip", "203.0.113.7")
	show(k, r)
	r.Request.Header.Add("X-Real-Ip", "198.51.100.1")
	show(k, r)
	// Output:
	// "203.0.113.7"
	// "127.0.0.1"
}

func ExampleAPIKey() {
	r := get("/", "203.0.113.7:4711")
	show(keyfuncs.APIKey("X-Api-Key"), r)
	r.Request.Header.Set("X-Api-Key", "secret")
	show(keyfuncs.APIKey("X-Api-Key"), r)
	// Output:
	// ""
	// "K7gNU3sdo-OL0wNhqoVWhg"
}

func ExampleJoin() {
	k := keyfuncs.Join(keyfuncs.RemoteIP, keyfuncs.Path)
	show(k, get("/login", "203.0.113.7:4711"))
	show(k, get("/a|b", "203.0.113.7:4711"))
	// Output:
	// "203.0.113.7|/login"
	// "203.0.113.7|/a\\|b"
}

type contextKey struct{}

func currentUser(ctx context.Context) (string, bool) {
	id, ok := ctx.Value(contextKey{}).(string)
	return id, ok
}

func ExampleFirst() {
	k := keyfuncs.First(keyfuncs.UserID(currentUser), keyfuncs.RemoteIP)
	r := get("/", "203.0.113.7:4711")
	show(k, r)
	show(k, view{r.WithContext(context.WithValue(r.Context(), contextKey{}, "alice"))})
	// Output:
	// "1:203.0.113.7"
	// "0:alice"
}

// Users and addresses have a rule each, so that each has a limit of its own.
func ExampleWhen() {
	user := keyfuncs.UserID(currentUser)
	signedIn := keyfuncs.When(keyfuncs.Known(user), user)
	anonymous := keyfuncs.Unless(keyfuncs.Known(user), keyfuncs.RemoteIP)

	r := get("/", "203.0.113.7:4711")
	show(signedIn, r)
	show(anonymous, r)
	// Output:
	// not about this request
	// "203.0.113.7"
}

// A signed-in user is counted as such, and everybody else by the address that the proxies
// forward.
func Example() {
	user := keyfuncs.UserID(currentUser) // reads the user from the context of a request
	address := keyfuncs.MustForwardedIP(keyfuncs.Proxies{Trusted: []string{"10.0.0.0/8"}})
	caller := keyfuncs.First(user, address)
	login := keyfuncs.Join(address, keyfuncs.Route)

	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
		{Name: "caller", Key: caller, Limit: core.MustParseLimit("100/1m")},
		{Name: "login", Key: login, Limit: core.MustParseLimit("5/1m")},
	}})
	defer l.Close()

	r := get("/", "10.0.0.1:4711")
	r.Request.Header.Set("X-Forwarded-For", "203.0.113.7")
	list, err := l.PeekRequest(r)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, d := range list {
		fmt.Println(d.Rule, d.Decision.Remaining)
	}
	// Output:
	// caller 100
	// login 5
}
