// Package api offers everything that the pages of the console do to programs, as
// JSON under /api/. The OpenAPI description is at /api/openapi.json.
//
//	o := api.Options{Service: s, Cookie: "headgate", Logger: logger}
//	if redis {
//		o.Publishing, o.Stats = publisher.Status, counts.Minutes
//		o.Peek, o.Reset, o.Bans, o.Lift = fleet.Peek, fleet.Reset, fleet.Bans, fleet.Lift
//	}
//	a, err := api.New(o)
//	mux.Handle("/api/", a)
//
// The routes are absolute, so the mux must not strip the prefix. Cookie has to name
// the cookie of the pages.
//
// # Authentication
//
// A program sends a token of the console, as "Authorization: Bearer hgt_...". A
// page sends the cookie of its session. A change with a cookie has to come from a
// page of the same origin. Tokens need no such protection, because no browser sends
// them by itself. If a trusted proxy names the user, its header replaces the
// cookie, under the same protection. An address that has sent too many wrong tokens
// gets a 429 for a while.
//
// # Saving
//
// PUT saves a policy over the version that If-Match names, or else the field
// "version". A request with neither gets a 428. If the policy has another version
// by now, the answer is 412, or 409 if the field was used, and holds both
// versions. To create a policy, send If-None-Match: *. A repeated PUT that finds
// the same content already saved is not a conflict: the answer is the current
// policy.
//
// # Mistakes
//
// Every error is a problem of RFC 9457. Its member "code" identifies the kind, and
// "errors" lists all mistakes by field, if there are any. A body is one JSON value
// of bounded length, without unknown or repeated fields.
package api
