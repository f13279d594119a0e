// Package transport paces the requests of an HTTP client, so that servers need not refuse
// them.
//
//	client := &http.Client{Transport: transport.MustNew(transport.Config{})}
//
// [Config] has all that can be set. A request that is not sent has a [*LimitedError], and an
// [Observer] receives what became of each.
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
// If a server refuses a request and says no more than Retry-After, requests go one at a time
// after that, so it refuses at most one in each such time. Of as many as came through before, one
// more may be under way with each refusal, until one of them is refused. After ten such times
// without a refusal one more request may be under way, and after sixty the server is taken for
// one that has refused nothing.
//
// A server refuses those that are under way together with one that it refuses. If its answers
// take long, these are more than one at its first refusal: an eighth of those that it has
// answered, or as many as have doubled with each second. After ten times without a refusal they
// are two, after twenty three, and after sixty again as many as at the first one. A sliding window
// gives units back at uneven times, and may refuse several together before that is known, once.
package transport
