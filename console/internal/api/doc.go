// Package api is the console for programs: everything that its pages do, as JSON
// under /api/. What it takes and answers is described in OpenAPI at
// /api/openapi.json.
//
//	o := api.Options{Service: s, Cookie: "headgate", Logger: logger}
//	if redis {
//		o.Publishing, o.Instances, o.Figures = publisher.Status, fleet.Instances, fleet.Figures
//		o.Peek, o.Reset = fleet.Peek, fleet.Reset
//	}
//	a, err := api.New(o)
//	mux.Handle("/api/", a)
//
// The routes are absolute, so nothing strips the prefix. The cookie is that of the
// pages.
//
// # Who asks
//
// A program sends a token of the console, as "Authorization: Bearer hgt_...". A
// page sends the cookie of its session, and then a request that changes something
// has to come from a page of the same origin. Tokens need no such protection: no
// browser sends them by itself. Where a proxy that is trusted names the user, that
// counts instead of the cookie, under the same protection. An address that has sent too many wrong tokens is
// answered 429 for a while.
//
// # Saving
//
// A policy is saved with PUT, over the version that If-Match names, or else the
// field "version". Neither is answered 428. If the policy has another version by
// now, the answer is 412, or 409 where the field was used, and holds both. To
// create one, send If-None-Match: *. A PUT that is repeated finds its own work
// done, which is no conflict: it is answered with the policy as it is.
//
// # Mistakes
//
// Every error is a problem of RFC 9457, with the member "code" to tell it by, and
// "errors" with all mistakes by field where there are some. A body is one JSON
// value without fields that are not known, not repeated, and not too long.
package api
