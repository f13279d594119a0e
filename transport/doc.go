// Package transport paces the requests of an HTTP client, so that servers need not refuse
// them.
//
// A [Transport] is an [net/http.RoundTripper] around another. It has one state for each
// key, which is the host unless [Config.Key] says otherwise, for all goroutines. Before it
// sends a request it waits until the limits of its own admit it (see [Config.Limiter]) and
// until the server does, as far as its earlier answers say:
//
//   - RateLimit and RateLimit-Policy of draft-ietf-httpapi-ratelimit-headers, 08 to 11, and
//     the RateLimit of draft 07;
//   - RateLimit-Remaining and -Reset, X-RateLimit-Remaining and -Reset, -Reset-After,
//     X-Rate-Limit-Remaining and -Reset, and those that end in -Requests and -Tokens;
//   - Retry-After with 429, 503 and 403, in seconds or as a date;
//   - what GitHub answers over its primary and its secondary limits.
//
// If a wait would be longer than [Config.MaxWait], or than until the deadline of the request's
// context, the request is not sent, and the error is a [*LimitedError].
//
// # What is believed
//
// Everything that a server says may be wrong or hostile. Fields that do not have their form are
// ignored. No word of a server holds for longer than a day, and none about another key. A
// transport remembers [Config.MaxKeys] keys and up to eight quotas of each.
//
// The first request of a key goes alone, and so does the first one after units were used up:
// the others wait for its answer, which takes one round trip. If a server says nothing about
// limits, requests go one at a time for a second. Then as many are under way as double with each
// second, or an eighth of those that it has answered.
//
// If a server refuses a request and says no more than Retry-After, then as many requests follow
// at once as came through before, and the others one at a time. So it refuses at most one
// request in each window, unless its answers take long.
package transport
