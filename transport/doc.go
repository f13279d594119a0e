// Package transport paces the requests of an HTTP client, so that servers need not refuse
// them.
//
//	paced := transport.MustNew(transport.Config{MaxWait: 5 * time.Second})
//	client := &http.Client{Transport: paced}
//	resp, err := client.Get(url)
//	var limited *transport.LimitedError
//	if errors.As(err, &limited) {
//		fmt.Println("not sent; there is a turn in", limited.RetryAfter)
//		return
//	}
//
// A [Transport] is an [net/http.RoundTripper] around another, safe for concurrent use. [Config] has
// all that can be set. A request that is not sent has a [*LimitedError], and an [Observer] receives
// what became of each.
//
// A transport has one state for each key, which is the host unless [Config.Key] says otherwise, for
// all goroutines. Before it sends a request it waits until the limits of its own admit it (see
// [Config.Limiter]) and until the server does, as far as its earlier answers say:
//
//   - RateLimit and RateLimit-Policy of draft-ietf-httpapi-ratelimit-headers, 08 to 11, and
//     the RateLimit of draft 07;
//   - RateLimit-Remaining and -Reset, X-RateLimit-Remaining and -Reset, -Reset-After,
//     X-Rate-Limit-Remaining and -Reset, and those that end in -Requests and -Tokens;
//   - what Anthropic, Cerebras, Kong, Shopify and Zendesk write instead;
//   - Retry-After, in seconds or as a date, and two fields in milliseconds, with 429, 403, 420, 503
//     and 529, or the statuses of [Config.Statuses];
//   - what GitHub answers over its primary and its secondary limits.
//
// The limits of its own may be several, such as of requests and of tokens. [Config.Cost] estimates
// what a request costs under each, and [Config.Settle] corrects that at the end of the answer's
// body.
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
// The first request of a key goes alone, and so does the first one after units were used up: the
// others wait for its answer, which takes one round trip. The file docs/clients.md says how many
// are under way where a server says nothing about limits, or no more than Retry-After.
package transport
