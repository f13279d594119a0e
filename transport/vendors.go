// This file reads the fields that single vendors write.

package transport

import (
	"net/http"
	"strings"
	"time"
)

const (
	statusEnhanceYourCalm = 420
	statusOverloaded      = 529

	zendeskLimit  = "X-Rate-Limit"
	zendeskPrefix = "Zendesk-Ratelimit-"
	shopifyCalls  = "X-Shopify-Shop-Api-Call-Limit"

	// shopifyDrain is how long a full bucket of Shopify takes to drain, whatever its size: 40 at 2
	// a second, 400 at 20. Source: Shopify, "REST Admin API rate limits".
	shopifyDrain = 20 * time.Second
)

// defaultStatuses are those that refuse requests where Config.Statuses is nil.
var defaultStatuses = []int{http.StatusForbidden, statusEnhanceYourCalm, http.StatusTooManyRequests,
	http.StatusServiceUnavailable, statusOverloaded}

// vendorFamilies are the families of vendors, of which several are there at once.
var vendorFamilies = [...]family{
	// Anthropic, "Rate limits": the instants at which all units are back.
	{remaining: "Anthropic-Ratelimit-Requests-Remaining",
		resets: [2]string{"Anthropic-Ratelimit-Requests-Reset"}, more: true},
	{remaining: "Anthropic-Ratelimit-Tokens-Remaining",
		resets: [2]string{"Anthropic-Ratelimit-Tokens-Reset"}, units: true, more: true},
	{remaining: "Anthropic-Ratelimit-Input-Tokens-Remaining",
		resets: [2]string{"Anthropic-Ratelimit-Input-Tokens-Reset"}, units: true, more: true},
	{remaining: "Anthropic-Ratelimit-Output-Tokens-Remaining",
		resets: [2]string{"Anthropic-Ratelimit-Output-Tokens-Reset"}, units: true, more: true},

	// Cerebras, "Rate limits".
	{remaining: "X-Ratelimit-Remaining-Requests-Day",
		resets: [2]string{"X-Ratelimit-Reset-Requests-Day"}, window: 24 * time.Hour, more: true},
	{remaining: "X-Ratelimit-Remaining-Tokens-Minute",
		resets: [2]string{"X-Ratelimit-Reset-Tokens-Minute"}, window: time.Minute, units: true, more: true},

	// Kong, "Rate Limiting": the windows have no reset, except that others have added one.
	{remaining: "X-Ratelimit-Remaining-Second", window: time.Second, more: true},
	{remaining: "X-Ratelimit-Remaining-Minute",
		resets: [2]string{"X-Ratelimit-Reset-Minute"}, window: time.Minute, more: true},
	{remaining: "X-Ratelimit-Remaining-Hour",
		resets: [2]string{"X-Ratelimit-Reset-Hour"}, window: time.Hour, more: true},
	{remaining: "X-Ratelimit-Remaining-Day",
		resets: [2]string{"X-Ratelimit-Reset-Day"}, window: 24 * time.Hour, more: true},
	{remaining: "X-Ratelimit-Remaining-Month", window: 31 * 24 * time.Hour, more: true},
}

// readVendors reads the fields of single vendors. Most answers have none, so the names are looked
// through once instead of each being asked for.
func (r *report) readVendors(h http.Header, now time.Time) {
	known := false
	for name, lines := range h {
		switch {
		case strings.HasPrefix(name, "X-Ratelimit-Remaining-"), strings.HasPrefix(name, "Anthropic-Ratelimit-"):
			known = true
		case name == shopifyCalls:
			r.readShopify(single(lines))
		case strings.HasPrefix(name, zendeskPrefix):
			r.readZendesk(name, single(lines))
		}
	}
	if known {
		r.readFamilies(vendorFamilies[:], h, now)
	}
}

// readShopify reads how many places of a bucket are taken, such as 32/40. One more is free after
// the time in which one drains.
func (r *report) readShopify(value string) {
	used, size, _ := strings.Cut(value, "/")
	n, of := number(used), number(size)
	if n < 0 || of <= 0 {
		return
	}
	r.add(shopifyCalls, max(0, of-n), max(shopifyDrain/time.Duration(of), time.Millisecond), false)
}

// readZendesk reads the quota of an endpoint, such as total=100; remaining=99; resets=41. Source:
// Zendesk, "Best practices for avoiding rate limiting".
func (r *report) readZendesk(name, value string) {
	left, resets := int64(-1), int64(-1)
	for range maxValues {
		part, rest, more := strings.Cut(value, ";")
		key, n, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch key {
		case "remaining":
			left = number(n)
		case "resets":
			resets = number(n)
		}
		if value = rest; !more {
			break
		}
	}

	if left >= 0 && resets >= 0 {
		r.add(name, left, max(seconds(resets), time.Second), false)
	}
}

// retryAfterOf returns the longest wait that an answer asks for. Milliseconds are those of OpenAI
// and of Azure, and a Retry-After beside them is the same, rounded up to seconds.
func retryAfterOf(h http.Header, now time.Time) (wait time.Duration, said bool) {
	wait, said = longestUntil(h["Retry-After"], h, now)

	for _, field := range [...]string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		n, nanos, ok := decimal(first(h, field))
		if !ok {
			continue
		}
		exact := max(min(seconds(n)/1000+nanos/1000, believed), time.Millisecond)
		if said = true; wait-exact < time.Second {
			wait = exact
		}
	}
	return wait, said
}

// longestUntil returns the longest time that a field names.
func longestUntil(lines []string, h http.Header, now time.Time) (longest time.Duration, ok bool) {
	for _, line := range lines {
		if d, is := until(strings.TrimSpace(line), h, now); is {
			longest, ok = max(longest, d), true
		}
	}

	// The waits of several servers may be in one line. A date has a comma too, and was read above.
	if ok {
		return longest, true
	}
	for i := range maxValues {
		value, more := valueAt(lines, i)
		if !more {
			break
		}
		if d, is := until(value, h, now); is {
			longest, ok = max(longest, d), true
		}
	}
	return longest, ok
}
