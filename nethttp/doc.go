// Package nethttp limits the requests of net/http servers, and of every router
// that is built on net/http.
//
//	limit := nethttp.New(limiter)
//	http.ListenAndServe(addr, limit(mux))
//
// Where a request's address comes from is up to the key functions of the rules;
// nothing in here trusts a header. Rules that count by route need the
// middleware inside of the router, around the handlers, since only there
// Request.Pattern is known.
//
// Put it inside of what recovers from panics and, for rules about users, inside
// of what authenticates them.
package nethttp
