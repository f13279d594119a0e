// Package nethttp limits requests in net/http servers and in routers built on
// net/http.
//
//	limit := nethttp.New(limiter.PerIP("100/1m"))
//	mux := http.NewServeMux()
//	mux.Handle("/", http.FileServer(http.Dir("/srv/www")))
//	log.Fatal(http.ListenAndServe("127.0.0.1:8080", limit(mux)))
//
// [New] makes the middleware of a [limiter.Limiter], whose rules say what is counted. [Key] makes
// the key of a rule from an *http.Request, and a [Config] has what a program adds, such as
// requests to leave out and answers of its own.
//
// The key functions of the rules decide which address a request is counted
// against. This package trusts no header. Rules that count by route need the
// middleware inside the router, around the handlers, because Request.Pattern is
// only set there.
//
// Put the middleware inside middleware that recovers from panics and, for rules
// about users, inside middleware that authenticates them.
//
// A lease ends when the handler returns. Put the middleware inside an http.TimeoutHandler,
// which returns while its handler goes on; see findings.EndsEarly.
//
// An httputil.ReverseProxy adds the headers of its backend to those that are set. Where
// the backend has a limiter too, set Config.Headers to limiter.NoHeaders on one of
// the two, or each of their headers comes twice.
package nethttp
