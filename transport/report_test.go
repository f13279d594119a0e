package transport

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// noon is when the answers of these tests arrive.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// response returns an answer whose fields are lines of text.
func response(status int, fields, body string) *http.Response {
	h := http.Header{}
	for line := range strings.Lines(fields) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			h.Add(strings.TrimSpace(name), strings.TrimSpace(value))
		}
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body))}
}

// reading returns what is read of an answer, as text.
func reading(resp *http.Response) string {
	// Each part is written only if it is there, so that rows show what was read and nothing else.
	var r report
	r.read(resp, defaultStatuses, noon)

	var b strings.Builder
	if r.refusal != none {
		fmt.Fprintf(&b, "%s %s", [...]string{limited: "limited", secondary: "secondary",
			overloaded: "overloaded"}[r.refusal], r.wait)
	}

	for _, w := range r.quotas[:r.n] {
		fmt.Fprintf(&b, " %s=%d/%s", w.name, w.left, w.after)
	}

	if r.open {
		b.WriteString(" open")
	}
	return strings.TrimSpace(b.String())
}

// dialects are the fields of many servers, and what they say.
var dialects = []struct{ server, fields, want string }{
	{"nothing", "Content-Type: text/plain", ""},
	{"draft 8 to 11", `RateLimit: "burst";r=9;t=10`, "burst=9/10s"},
	{"draft 8, two policies", `RateLimit: "burst";r=9;t=1, "daily";r=4000;t=43200`, "burst=9/1s daily=4000/12h0m0s"},
	{"draft 8, two lines", "RateLimit: \"a\";r=9;t=1\nRateLimit: \"b\";r=8;t=2", "a=9/1s b=8/2s"},
	{"draft 8, other parameters", `RateLimit: "a";pk=:cHJvamVjdA==:;r=9;x;y=?0;z=1.5;t=3`, "a=9/3s"},
	{"draft 8, no end", `RateLimit: "a";r=9`, ""},
	{"draft 8, the end is in the policy", "RateLimit: \"a\";r=9\nRateLimit-Policy: \"a\";q=10;w=60", "a=9/1m0s"},
	{"draft 8, zero seconds", `RateLimit: "a";r=9;t=0`, "a=9/1s"},
	{"draft 8, other units left",
		"RateLimit: \"a\";r=9;t=5\nRateLimit-Policy: \"a\";q=10;qu=\"content-bytes\";w=60", ""},
	{"draft 8, no other units left",
		"RateLimit: \"a\";r=0;t=5\nRateLimit-Policy: \"a\";q=10;qu=\"content-bytes\";w=60", "a=0/5s"},
	{"draft 8, requests by name", "RateLimit: \"a\";r=9;t=5\nRateLimit-Policy: \"a\";q=10;qu=\"requests\"", "a=9/5s"},
	{"draft 8, one policy twice", `RateLimit: "a";r=9;t=5, "a";r=3;t=2`, "a=3/5s"},
	{"a draft before, with a token", `RateLimit: default;r=50;t=30`, "default=50/30s"},
	{"draft 7", "RateLimit: limit=100, remaining=50, reset=30\nRateLimit-Policy: 100;w=60", "Ratelimit=50/30s"},
	{"draft 6", "RateLimit-Limit: 100\nRateLimit-Remaining: 50\nRateLimit-Reset: 30", "Ratelimit-Remaining=50/30s"},
	{"draft 6 with an epoch, as Bluesky and GitLab", "RateLimit-Remaining: 50\nRateLimit-Reset: 1795262430",
		"Ratelimit-Remaining=50/30s"},
	{"headgate", "RateLimit: \"burst\";r=0;t=10\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1795262403",
		"burst=0/10s"},
	{"GitHub",
		"X-RateLimit-Limit: 5000\nX-RateLimit-Remaining: 4999\nX-RateLimit-Reset: 1795266000\nX-RateLimit-Resource: core",
		"core=4999/1h0m0s"},
	{"GitHub, by its own clock",
		"Date: Sat, 21 Nov 2026 12:30:00 GMT\nX-RateLimit-Remaining: 4999\nX-RateLimit-Reset: 1795266000",
		"X-Ratelimit-Remaining=4999/30m0s"},
	{"an end that has passed", "X-RateLimit-Remaining: 7\nX-RateLimit-Reset: 1795262000", "X-Ratelimit-Remaining=7/1s"},
	{"Envoy, Fiber", "X-RateLimit-Limit: 10, 10;w=60\nX-RateLimit-Remaining: 7\nX-RateLimit-Reset: 43",
		"X-Ratelimit-Remaining=7/43s"},
	{"Reddit", "X-Ratelimit-Used: 2\nX-Ratelimit-Remaining: 598.0\nX-Ratelimit-Reset: 594",
		"X-Ratelimit-Remaining=598/9m54s"},
	{"Discord",
		"X-RateLimit-Remaining: 4\nX-RateLimit-Reset: 1795262401.337\nX-RateLimit-Reset-After: 1.25\nX-RateLimit-Bucket: abcd1234",
		"abcd1234=4/1.25s"},
	{"Rocket.Chat, milliseconds", "X-RateLimit-Remaining: 4\nX-RateLimit-Reset: 1795262460000",
		"X-Ratelimit-Remaining=4/1m0s"},
	{"PUBG, microseconds", "X-RateLimit-Remaining: 4\nX-RateLimit-Reset: 1795262460000000",
		"X-Ratelimit-Remaining=4/1m0s"},
	{"nanoseconds", "X-RateLimit-Remaining: 4\nX-RateLimit-Reset: 1795262460000000000", "X-Ratelimit-Remaining=4/1m0s"},
	{"Rachio", "X-RateLimit-Remaining: 4\nX-RateLimit-Reset: 2026-11-21T12:01:00Z", "X-Ratelimit-Remaining=4/1m0s"},
	{"go-limiter", "X-RateLimit-Remaining: 4\nX-RateLimit-Reset: Sat, 21 Nov 2026 12:01:00 UTC",
		"X-Ratelimit-Remaining=4/1m0s"},
	{"X, Okta", "X-Rate-Limit-Remaining: 4\nX-Rate-Limit-Reset: 1795262460", "X-Rate-Limit-Remaining=4/1m0s"},
	{"OpenAI",
		"X-Ratelimit-Remaining-Requests: 59\nX-Ratelimit-Reset-Requests: 1s\nX-Ratelimit-Remaining-Tokens: 149984\nX-Ratelimit-Reset-Tokens: 6m0s",
		"X-Ratelimit-Remaining-Requests=59/1s"},
	{"OpenAI without tokens",
		"X-Ratelimit-Remaining-Requests: 59\nX-Ratelimit-Reset-Requests: 12ms\nX-Ratelimit-Remaining-Tokens: 0\nX-Ratelimit-Reset-Tokens: 6m0s",
		"X-Ratelimit-Remaining-Requests=59/12ms X-Ratelimit-Remaining-Tokens=0/6m0s"},
	{"no more than a day", `RateLimit: "a";r=9;t=999999999999999`, "a=9/24h0m0s"},
	{"from a cache", "Age: 17\nRateLimit: \"a\";r=0;t=10", ""},
	{"fresh from a cache", "Age: 0\nRateLimit: \"a\";r=0;t=10", "a=0/10s"},
	{"a field that lies, and one that does not", "RateLimit: what\nX-RateLimit-Remaining: 4\nX-RateLimit-Reset: 60",
		"X-Ratelimit-Remaining=4/1m0s"},
	{"one number twice", "X-RateLimit-Remaining: 4\nX-RateLimit-Remaining: 4\nX-RateLimit-Reset: 60",
		"X-Ratelimit-Remaining=4/1m0s"},
	{"two numbers", "X-RateLimit-Remaining: 4\nX-RateLimit-Remaining: 5\nX-RateLimit-Reset: 60",
		"X-Ratelimit-Remaining=4/1m0s X-Ratelimit-Remaining;2=5/1m0s"},
	{"the fewest of many",
		"RateLimit: a;r=9;t=9,b;r=8;t=9,c;r=7;t=9,d;r=6;t=9,e;r=5;t=9,f;r=4;t=9,g;r=3;t=9,h;r=2;t=9,i;r=1;t=9",
		"i=1/9s b=8/9s c=7/9s d=6/9s e=5/9s f=4/9s g=3/9s h=2/9s"},
	{"a long name", "RateLimit: \"" + strings.Repeat("a", 100) + `";r=1;t=9`, strings.Repeat("a", 64) + "=1/9s"},
}

func TestReportReadsTheFieldsOfServers(t *testing.T) {
	for _, row := range dialects {
		if got := reading(response(200, row.fields, "")); got != row.want {
			t.Errorf("%s: %q, want %q", row.server, got, row.want)
		}
	}
}

func TestReportReadsRefusals(t *testing.T) {
	// Much is left here, so a refusal with these fields is none of the primary limit.
	const remains = "X-RateLimit-Remaining: 4999\nX-RateLimit-Reset: 1795266000\nX-RateLimit-Resource: core\n"
	for _, row := range []struct {
		name   string
		status int
		fields string
		want   string
	}{
		// Retry-After in all the forms that servers send: 0s means that no time could be read.
		{"429", 429, "", "limited 0s"},
		{"429 and seconds", 429, "Retry-After: 30", "limited 30s"},
		{"429 and no seconds", 429, "Retry-After: 0", "limited 1s"},
		{"429 and a fraction, as Shopify", 429, "Retry-After: 2.0", "limited 2s"},
		{"429 and a short fraction", 429, "Retry-After: 0.250", "limited 250ms"},
		{"429 and a date", 429, "Retry-After: Sat, 21 Nov 2026 12:00:30 GMT", "limited 30s"},
		{"429 and a date of RFC 850", 429, "Retry-After: Saturday, 21-Nov-26 12:00:30 GMT", "limited 30s"},
		{"429 and a date by the clock of the server", 429,
			"Date: Sat, 21 Nov 2026 12:00:20 GMT\nRetry-After: Sat, 21 Nov 2026 12:00:30 GMT", "limited 10s"},
		{"429 and a date that has passed", 429, "Retry-After: Sat, 21 Nov 2026 11:00:00 GMT", "limited 1s"},
		{"429 and a date of another age", 429, "Retry-After: Sat, 21 Nov 1970 11:00:00 GMT", "limited 0s"},

		// Of two the longer is believed, and nothing beyond a day.
		{"429 and twice", 429, "Retry-After: 30\nRetry-After: 60", "limited 1m0s"},
		{"429 and years", 429, "Retry-After: 99999999", "limited 24h0m0s"},
		{"429 and nonsense", 429, "Retry-After: soon", "limited 0s"},
		{"429 and less than nothing", 429, "Retry-After: -30", "limited 0s"},

		// Quotas beside a refusal.
		{"Retry-After takes precedence", 429, "Retry-After: 2\nRateLimit: \"a\";r=0;t=10", "limited 2s a=0/10s"},
		{"429 of a quota", 429, "RateLimit: \"a\";r=0;t=10, \"b\";r=5;t=60", "limited 10s a=0/10s b=5/1m0s"},

		// A 503 without a time is an outage and no limit.
		{"503", 503, "", ""},
		{"503 and seconds", 503, "Retry-After: 30", "overloaded 30s"},
		{"503 and nonsense", 503, "Retry-After: soon", ""},
		{"403", 403, "", ""},

		// GitHub refuses with 403 too, and says by the other fields why.
		{"GitHub's primary limit", 403,
			"X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1795264200\nX-RateLimit-Resource: core",
			"limited 30m0s core=0/30m0s"},
		{"GitHub's secondary limit", 403, remains + "Retry-After: 60", "limited 1m0s core=4999/1h0m0s"},
		{"GitHub's secondary limit without a time", 429, remains, "secondary 0s core=4999/1h0m0s"},
		{"GitHub's secondary limit in the body", 403, remains, "core=4999/1h0m0s open"},
		{"403 of a server that is not GitHub", 403, "X-RateLimit-Remaining: 5\nX-RateLimit-Reset: 60",
			"X-Ratelimit-Remaining=5/1m0s"},

		// Other statuses mean another thing by Retry-After.
		{"a redirection", 302, "Retry-After: 30", ""},
		{"a page that is being made", 200, "Retry-After: 30", ""},
	} {
		if got := reading(response(row.status, row.fields, "")); got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
}

func TestUntilTellsUnitsApart(t *testing.T) {
	// The number alone tells what it is: the seconds that are left or an epoch in one of four
	// units. Noon of the test is 1795262400.
	for text, want := range map[string]string{
		"0": "1s", "1": "1s", "60": "1m0s", "86399": "23h59m59s", "99999999": "27777h46m39s",
		"100000000": "", "499999999": "", // neither seconds that are left nor an epoch since 1985
		"0.5": "500ms", "29.4": "29.4s", "1.0000000001": "1.000000001s", "60.000": "1m0s", "0.0": "1s",
		"1795262460": "1m0s", "1795262460.5": "1m0.5s", "1795262400": "1s", "1795262000": "1s",
		"1795262460250": "1m0.25s", "1795262460000000": "1m0s", "1795262460000000000": "1m0s",
		"1895262460": "", "1695262460": "", "50000000000": "", "9223372036854775807": "", "9223372036854775808": "",

		// Durations as Go writes them, and what only looks like a number.
		"1s": "1s", "6m0s": "6m0s", "12ms": "12ms", "1h2m3.5s": "1h2m3.5s", "9999999999h": "", "5d": "", "1x": "",
		"-1s": "", "+5": "", "1e3": "", "0x10": "", ".5": "", "5.": "", "5.5.5": "",

		// The dates of HTTP, of mail and of ISO 8601.
		"Sat, 21 Nov 2026 12:01:00 GMT": "1m0s", "Sat, 21 Nov 2026 12:01:00 UTC": "1m0s",
		"Sat Nov 21 12:01:00 2026": "1m0s",
		"2026-11-21T12:01:00Z":     "1m0s", "2026-11-21T13:01:00+01:00": "1m0s", "2026-11-21T12:01:00.5Z": "1m0.5s",
		"": "", "soon": "", "２": "", "1 ": "", strings.Repeat("1", 1000): "", strings.Repeat("9", 18) + "ms": "",
	} {
		d, ok := until(text, http.Header{}, noon)
		if got := d.String(); ok != (want != "") || ok && got != want {
			t.Errorf("%q: %s, %v, want %q", text, got, ok, want)
		}
	}
}

// The numbers of the months around the test are told apart on every day until 2038.
func TestUntilTellsEpochsApartForYears(t *testing.T) {
	// From 1990 on, in steps of thirteen days, so that all days of the week and the month come by.
	for now := time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC); now.Year() < 2200; now = now.AddDate(0, 0, 13) {
		at := now.Add(90 * time.Minute)

		// The same instant in each unit.
		for unit, n := range map[string]int64{"s": at.Unix(), "ms": at.UnixMilli(), "us": at.UnixMicro(),
			"ns": at.UnixNano()} {
			if d, ok := until(fmt.Sprint(n), http.Header{}, now); !ok || d != 90*time.Minute {
				t.Fatalf("%s in %s: %s, %v", now, unit, d, ok)
			}
		}

		// Seconds of up to a month are never taken for an epoch.
		for _, delta := range []int64{1, 3600, 31 * 86400} {
			if d, ok := until(fmt.Sprint(delta), http.Header{}, now); !ok || d != seconds(delta) {
				t.Fatalf("%s: %d s are %s, %v", now, delta, d, ok)
			}
		}
	}
}

// sameDate checks that a date is read, or not, as http.ParseTime does.
func sameDate(t *testing.T, s string) {
	t.Helper()
	got, err := parseDate(s)
	if want, e := http.ParseTime(s); !got.Equal(want) || (err == nil) != (e == nil) {
		t.Errorf("%q: %v, %v, want %v, %v", s, got, err, want, e)
	}
}

func TestDatesAreReadAsByHTTP(t *testing.T) {
	// http.ParseTime is the oracle. A walk through all years, with a prime number of seconds so
	// that the hours change too.
	for at := time.Date(0, 1, 1, 0, 0, 0, 0,
		time.UTC); at.Year() < 10000; at = at.Add(37*24*time.Hour + 7919*time.Second) {
		sameDate(t, at.Format(http.TimeFormat))
		sameDate(t, at.Format("Mon, 02 Jan 2006 15:04:05 UTC"))
	}

	// Around 2100, which is no leap year, in small steps.
	for at := time.Date(2096, 1, 1, 0, 0, 0, 0, time.UTC); at.Year() < 2105; at = at.Add(11*time.Hour + time.Second) {
		sameDate(t, at.Format(http.TimeFormat))
	}
	// Each byte of a date, and each two, in the place of each other and of some that are not there.
	const date = "Thu, 29 Feb 2024 23:59:59 GMT"
	for i := range date {
		sameDate(t, date[:i])
		sameDate(t, date[i:])
		for _, c := range "0123456789 :,.SMTWFJAONDsé" {
			once := date[:i] + string(c) + date[i+1:]
			sameDate(t, once)
			for j := range i {
				sameDate(t, once[:j]+string(c)+once[j+1:])
			}
		}
	}

	// Dates that do not exist, wrong names, and other layouts.
	for _, s := range []string{
		"Thu, 29 Feb 2023 00:00:00 GMT", "Thu, 31 Apr 2024 00:00:00 GMT", "Thu, 00 Jan 2024 00:00:00 GMT",
		"Wed, 01 Jan 2024 00:00:00 GMT", "unM, 01 Jan 2024 00:00:00 GMT",
		"Mon, 01 anF 2024 00:00:00 GMT", "Mon, 01 jan 2024 00:00:00 GMT", "MON, 01 JAN 2024 00:00:00 GMT",
		"Mon, 01 Jan 2024 24:00:00 GMT", "Mon, 01 Jan 2024 00:60:00 GMT",
		"Mon, 01 Jan 2024 00:00:60 GMT", "Mon, 01 Jan 2024 00:00:00 gmt", "Mon,  1 Jan 2024 00:00:00 GMT",
		"Mon, 1 Jan 2024 00:00:00 GMT", "Mon, 01 Jan 2024 00:00:00.5 GMT",
		"Monday, 01-Jan-24 00:00:00 GMT", "Mon Jan  1 00:00:00 2024", "",
	} {
		sameDate(t, s)
	}
}

func TestNumbersAreThoseOfStrconv(t *testing.T) {
	for _, s := range []string{"0", "7", "007", "10", "922337203685477579", "9223372036854775799",
		"9223372036854775800", "9223372036854775807", "9223372036854775808",
		"9223372036854775810", "9999999999999999999", "18446744073709551616", "00000000000000000000000001", "", "-1",
		"+1", "1_0", "0x1", "1/", "1:", ":", " 1", "1 ", "１"} {
		want, err := strconv.ParseUint(s, 10, 63)
		if got := number(s); got != int64(want) && err == nil || got != -1 && err != nil {
			t.Errorf("%q: %d, want %d, %v", s, got, want, err)
		}
	}
}

// FuzzReport reads answers of every kind. Whatever they say, the report is within its bounds, and
// so is what a gate makes of it. Dates are those of http.ParseTime.
func FuzzReport(f *testing.F) {
	// Dates against each other, quotas beside Retry-After, and the corners of structured fields.
	seeds := []string{
		"RateLimit: limit=100, remaining=0, reset=30\nDate: Sat, 21 Nov 2026 12:00:00 GMT\nRetry-After: Sat, 21 Nov 2026 12:00:30 GMT",
		"X-RateLimit-Remaining: 598\nX-RateLimit-Reset: 60\nContent-Type: application/json\nRetry-After: 30",
		"RateLimit: %\"f%c3%bc\";r=@1;t=-1.5, (a b);r=?1, *a/b:c;r=999999999999999",
	}

	for _, row := range dialects {
		seeds = append(seeds, row.fields)
	}
	for _, v := range vendors {
		seeds = append(seeds, strings.ReplaceAll(v.fields, "|", "\n"))
	}

	for _, fields := range seeds {
		for _, status := range []int{200, 403, 429, 503, 529} {
			f.Add(status, []byte(fields))
		}
	}

	f.Fuzz(func(t *testing.T, status int, fields []byte) {
		var r report
		resp := response(status, string(fields), "")
		r.read(resp, defaultStatuses, noon)

		// The quick reader of dates is compared in passing.
		for _, name := range []string{"Date", "Retry-After"} {
			sameDate(t, resp.Header.Get(name))
		}

		isBounded(t, &r)
		passThrice(t, newGate("k", status%2 == 0), &r)
	})
}

// isBounded checks that the numbers of a report are within what a gate can hold.
func isBounded(t *testing.T, r *report) {
	t.Helper()
	if r.n > maxQuotas || r.wait < 0 || r.wait > believed || r.refusal == none && r.wait != 0 {
		t.Errorf("%+v", r)
	}
	for _, w := range r.quotas[:r.n] {
		if w.left < 0 || w.after <= 0 || w.after > believed || len(w.name) > maxName {
			t.Errorf("%+v", w)
		}
	}
}

// passThrice lets a request pass three times, a day after each other. All get the report.
func passThrice(t *testing.T, g *gate, r *report) {
	now := noon
	for range 3 {
		// A day is the longest that a server is believed, so a request has to pass after that.
		p, passed, w, _ := g.enter(now, now.Add(25*time.Hour))
		if !passed {
			t.Fatalf("after %s: no request passes, %+v", now.Sub(noon), w)
		}

		if !g.startSending(&p, now) {
			t.Fatal("closed while a request passes")
		}

		g.answered(p, r, now)
		if len(g.quotas) > maxQuotas || cap(g.quotas) > 2*maxQuotas {
			t.Errorf("%d quotas", len(g.quotas))
		}

		now = now.Add(believed + maxJitter + time.Second)
	}
}
