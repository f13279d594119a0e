package transport

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the table of docs/vendors.md")

// vendors are the fields that vendors document, by the title of the page, and what is read of them
// at noon. They are the table of docs/vendors.md.
var vendors = []struct {
	server, source string
	status         int
	fields, want   string
}{
	{"OpenAI", "Rate limits", 200, "x-ratelimit-remaining-requests: 59|x-ratelimit-reset-requests: 1s|" +
		"x-ratelimit-remaining-tokens: 149984|x-ratelimit-reset-tokens: 6m0s", "X-Ratelimit-Remaining-Requests=59/1s"},
	{"OpenAI, no tokens left", "Rate limits", 200, "x-ratelimit-remaining-tokens: 0|x-ratelimit-reset-tokens: 6m0s",
		"X-Ratelimit-Remaining-Tokens=0/6m0s"},
	{"OpenAI, Azure OpenAI", "openai-python, retries", 429, "retry-after-ms: 250|retry-after: 1", "limited 250ms"},
	{"Azure Cosmos DB", "Common response headers", 429, "x-ms-retry-after-ms: 100", "limited 100ms"},
	{"Groq", "Rate limits", 200, "x-ratelimit-remaining-requests: 14370|x-ratelimit-reset-requests: 2m59.56s",
		"X-Ratelimit-Remaining-Requests=14370/2m59.56s"},
	{"Anthropic", "Rate limits", 200, "anthropic-ratelimit-requests-remaining: 49|" +
		"anthropic-ratelimit-requests-reset: 2026-11-21T12:00:05Z|anthropic-ratelimit-tokens-remaining: 79000|" +
		"anthropic-ratelimit-tokens-reset: 2026-11-21T12:00:10Z", "Anthropic-Ratelimit-Requests-Remaining=49/5s"},
	{"Anthropic, no output tokens left", "Rate limits", 200, "anthropic-ratelimit-output-tokens-remaining: 0|" +
		"anthropic-ratelimit-output-tokens-reset: 2026-11-21T12:00:20Z",
		"Anthropic-Ratelimit-Output-Tokens-Remaining=0/20s"},
	{"Anthropic, overloaded", "Errors", 529, "x-should-retry: true", "overloaded 0s"},
	{"Cerebras", "Rate limits", 200, "x-ratelimit-remaining-requests-day: 14399|" +
		"x-ratelimit-reset-requests-day: 33011.5|x-ratelimit-remaining-tokens-minute: 0|" +
		"x-ratelimit-reset-tokens-minute: 11.25",
		"X-Ratelimit-Remaining-Requests-Day=14399/9h10m11.5s X-Ratelimit-Remaining-Tokens-Minute=0/11.25s"},
	{"Shopify", "REST Admin API rate limits", 200, "X-Shopify-Shop-Api-Call-Limit: 32/40",
		"X-Shopify-Shop-Api-Call-Limit=8/500ms"},
	{"Shopify Plus, full", "REST Admin API rate limits", 429, "X-Shopify-Shop-Api-Call-Limit: 400/400|Retry-After: 2.0",
		"limited 2s X-Shopify-Shop-Api-Call-Limit=0/50ms"},
	{"Zendesk", "Best practices for avoiding rate limiting", 200, "X-Rate-Limit: 700|X-Rate-Limit-Remaining: 699",
		"X-Rate-Limit-Remaining=699/1m0s"},
	{"Zendesk, a list", "Best practices for avoiding rate limiting", 200,
		"x-rate-limit: 700|x-rate-limit-remaining: 699|" +
			"ratelimit-remaining: 699|ratelimit-reset: 41|" +
			"zendesk-ratelimit-tickets-index: total=100; remaining=99; resets=41",
		"Ratelimit-Remaining=699/41s Zendesk-Ratelimit-Tickets-Index=99/41s"},
	{"Kong", "Rate Limiting", 200, "X-RateLimit-Limit-Minute: 10|X-RateLimit-Remaining-Minute: 9|" +
		"X-RateLimit-Remaining-Hour: 99", "X-Ratelimit-Remaining-Minute=9/1m0s X-Ratelimit-Remaining-Hour=99/1h0m0s"},
	{"Kong, with a reset", "Rate Limiting", 429, "RateLimit-Remaining: 0|RateLimit-Reset: 17|Retry-After: 17|" +
		"X-RateLimit-Remaining-Day: 0", "limited 17s Ratelimit-Remaining=0/17s"},
	{"Docker Hub", "Usage and limits", 200, "ratelimit-limit: 100;w=21600|ratelimit-remaining: 76;w=21600",
		"Ratelimit-Remaining=76/6h0m0s"},
	{"GitHub", "Rate limits for the REST API", 403, "x-ratelimit-remaining: 0|x-ratelimit-reset: 1795264200|" +
		"x-ratelimit-resource: core", "limited 30m0s core=0/30m0s"},
	{"Discord", "Rate Limits", 200, "X-RateLimit-Remaining: 0|X-RateLimit-Reset-After: 1.25|X-RateLimit-Bucket: abcd",
		"abcd=0/1.25s"},
	{"X, before its API v2", "Response codes", 420, "Retry-After: 900", "limited 15m0s"},
	{"a proxy that joins lines", "RFC 9110, 5.3", 200, "X-RateLimit-Remaining: 4, 59|X-RateLimit-Reset: 1, 60",
		"X-Ratelimit-Remaining=4/1s X-Ratelimit-Remaining;2=59/1m0s"},
	{"a proxy that repeats lines", "RFC 9110, 5.3", 429, "X-RateLimit-Remaining: 7, 7|X-RateLimit-Reset: 60|" +
		"Retry-After: 2, 30", "limited 30s X-Ratelimit-Remaining=7/1m0s"},

	// What is not read: there is no time in it, or the vendor says elsewhere what it means.
	{"Azure OpenAI", "Quota", 200, "x-ratelimit-remaining-requests: 9|x-ratelimit-remaining-tokens: 900", ""},
	{"Anthropic, subscriptions", "none", 200, "anthropic-ratelimit-unified-remaining: 0|" +
		"anthropic-ratelimit-unified-reset: 1795262460", ""},
	{"HubSpot", "API usage guidelines", 200, "X-HubSpot-RateLimit-Remaining: 9|" +
		"X-HubSpot-RateLimit-Interval-Milliseconds: 10000", ""},
	{"Salesforce", "Limit Info Header", 200, "Sforce-Limit-Info: api-usage=18/5000", ""},
	{"any server, a redirection", "RFC 9110, 10.2.3", 301, "Retry-After: 30", ""},
	{"Envoy, overloaded", "RFC 9110, 15.6.4", 503, "x-envoy-overloaded: true", ""},
}

func TestReportReadsTheFieldsOfVendors(t *testing.T) {
	for _, v := range vendors {
		if got := reading(response(v.status, strings.ReplaceAll(v.fields, "|", "\n"), "")); got != v.want {
			t.Errorf("%s: %q, want %q", v.server, got, v.want)
		}
	}
}

// The table of the page is that of the test above.
func TestTableOfVendors(t *testing.T) {
	var table strings.Builder
	table.WriteString("| server, and its page | status | fields | is read as |\n|---|---|---|---|\n")
	for _, v := range vendors {
		read := "not read"
		if v.want != "" {
			read = "`" + v.want + "`"
		}
		fmt.Fprintf(&table, "| %s: %s | %d | `%s` | %s |\n", v.server, v.source, v.status,
			strings.ReplaceAll(v.fields, "|", "`<br>`"), read)
	}

	const page, begin, end = "../docs/vendors.md", "<!-- vendors -->\n", "<!-- end of vendors -->\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	old, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no table between %q and %q", page, begin, end)
	}
	if old == table.String() {
		return
	}

	if !*update {
		t.Fatal("the table is stale; go test ./transport -update writes it anew")
	}
	if err := os.WriteFile(page, []byte(before+begin+table.String()+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Whatever number or date a vendor's field has, it is bounded or void.
func TestFieldsThatLie(t *testing.T) {
	for _, row := range []struct {
		status       int
		fields, want string
	}{
		{429, "Retry-After-Ms: -5", "limited 0s"},
		{429, "Retry-After-Ms: NaN|Retry-After: Inf", "limited 0s"},
		{429, "Retry-After-Ms: 1e9", "limited 0s"},
		{429, "Retry-After-Ms: 0", "limited 1ms"},
		{429, "Retry-After-Ms: 0.4", "limited 1ms"},
		{429, "Retry-After-Ms: 12.5", "limited 12.5ms"},
		{429, "Retry-After-Ms: 9223372036854775807", "limited 24h0m0s"},
		{429, "Retry-After-Ms: 99999999999999999999", "limited 0s"},
		{429, "Retry-After-Ms: 1|Retry-After: 60", "limited 1m0s"},
		{429, "X-Ms-Retry-After-Ms: 00:00:00.033", "limited 0s"},
		{429, "Retry-After: -1, 5, NaN, 9", "limited 9s"},
		{429, "Retry-After: 1,1,1,1,1,1,1,1,60", "limited 1s"},
		{429, "Retry-After: Sat, 21 Nov 2026 12:00:30 GMT", "limited 30s"},
		{529, "Retry-After: Sat, 21 Nov 2036 12:00:30 GMT", "overloaded 0s"},
		{529, "Retry-After: Fri, 20 Nov 2026 12:00:30 GMT", "overloaded 1s"},
		{420, "", ""},
		{509, "Retry-After: 5", ""},

		{200, "Anthropic-Ratelimit-Requests-Remaining: 0|Anthropic-Ratelimit-Requests-Reset: 2036-11-21T12:00:00Z", ""},
		{200, "Anthropic-Ratelimit-Requests-Remaining: 0|Anthropic-Ratelimit-Requests-Reset: 2026-11-21T11:00:00Z",
			"Anthropic-Ratelimit-Requests-Remaining=0/1s"},
		{200, "Anthropic-Ratelimit-Requests-Remaining: 0|Anthropic-Ratelimit-Requests-Reset: 2027-11-21T11:00:00Z",
			"Anthropic-Ratelimit-Requests-Remaining=0/24h0m0s"},
		{200, "Anthropic-Ratelimit-Requests-Remaining: -1|Anthropic-Ratelimit-Requests-Reset: 2026-11-21T12:00:05Z", ""},

		{200, "X-Shopify-Shop-Api-Call-Limit: 41/40", "X-Shopify-Shop-Api-Call-Limit=0/500ms"},
		{200, "X-Shopify-Shop-Api-Call-Limit: 1/9223372036854775807",
			"X-Shopify-Shop-Api-Call-Limit=9223372036854775806/1ms"},
		{200, "X-Shopify-Shop-Api-Call-Limit: 0/0", ""},
		{200, "X-Shopify-Shop-Api-Call-Limit: -1/40", ""},
		{200, "X-Shopify-Shop-Api-Call-Limit: 40", ""},
		{200, "X-Shopify-Shop-Api-Call-Limit: NaN/NaN", ""},

		{200, "Zendesk-Ratelimit-A: remaining=0; resets=999999999999", "Zendesk-Ratelimit-A=0/24h0m0s"},
		{200, "Zendesk-Ratelimit-A: remaining=0; resets=0", "Zendesk-Ratelimit-A=0/1s"},
		{200, "Zendesk-Ratelimit-A: remaining=-1; resets=9", ""},
		{200, "Zendesk-Ratelimit-A: remaining; resets=9", ""},
		{200, "Zendesk-Ratelimit-A: a;b;c;d;e;f;g;h; remaining=1; resets=9", ""},

		{200, "X-RateLimit-Remaining-Month: 0", "X-Ratelimit-Remaining-Month=0/24h0m0s"},
		{200, "X-RateLimit-Remaining-Minute: 1.5e9", ""},
		{200, "X-RateLimit-Remaining-Year: 5", ""},
		{200, "X-Rate-Limit-Remaining: 5", ""},
		{200, "RateLimit-Remaining: 5;w=-1", ""},
		{200, "X-RateLimit-Remaining: 1,2,3|X-RateLimit-Reset: 1,2",
			"X-Ratelimit-Remaining=1/1s X-Ratelimit-Remaining;2=2/2s"},
		{200, "X-RateLimit-Remaining: " + strings.Repeat("1,", 9999) + "|X-RateLimit-Reset: 1", "X-Ratelimit-Remaining=1/1s"},
		{200, "X-RateLimit-Remaining: 3, -1, 5|X-RateLimit-Reset: Sat, 21 Nov 2026 12:01:00 GMT",
			"X-Ratelimit-Remaining=3/1m0s X-Ratelimit-Remaining;3=5/1m0s"},
	} {
		if got := reading(response(row.status, strings.ReplaceAll(row.fields, "|", "\n"), "")); got != row.want {
			t.Errorf("%d %.90s: %q, want %q", row.status, row.fields, got, row.want)
		}
	}
}

// The statuses are those of the program, if it names some.
func TestStatusesByChoice(t *testing.T) {
	for _, row := range []struct {
		statuses []int
		status   int
		want     refusal
	}{
		{nil, 529, overloaded}, {nil, 420, limited}, {nil, 509, none}, {nil, 430, none},
		{[]int{429, 430, 509}, 430, limited}, {[]int{429, 430, 509}, 509, overloaded},
		{[]int{429}, 529, none}, {[]int{429}, 503, none}, {[]int{429}, 429, limited}, {[]int{}, 429, none},
	} {
		var r report
		tr := MustNew(Config{Statuses: row.statuses})
		if r.read(response(row.status, "Retry-After: 5", ""), tr.statuses, noon); r.refusal != row.want {
			t.Errorf("%v: %d is refusal %d, want %d", row.statuses, row.status, r.refusal, row.want)
		}
		if want := 5 * time.Second; r.refusal != none && r.wait != want {
			t.Errorf("%v: %d waits %s, want %s", row.statuses, row.status, r.wait, want)
		}
	}

	_, err := New(Config{Statuses: []int{200, 429, 1000}})
	if want := "Statuses: 200 is not from 400 to 999\nStatuses: 1000 is not from 400 to 999"; fmt.Sprint(err) != want {
		t.Errorf("%q, want %q", err, want)
	}
}
