// This file reads what an answer says about limits.

package transport

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// maxQuotas is how many quotas are remembered of a key, those with the fewest units.
	maxQuotas = 8

	// maxName bounds the name of a quota, in bytes.
	maxName = 64

	// believed is how long a server is believed at most.
	believed = 24 * time.Hour

	// plausible is how far a date may be from that of the answer.
	plausible = 400 * 24 * time.Hour
)

// refusal is why a server has refused a request.
type refusal uint8

const (
	none       refusal = iota
	limited            // over a limit, so that it was not carried out
	secondary          // over GitHub's secondary limit
	overloaded         // 503 with Retry-After: it may have been carried out
)

// report is what an answer says about limits.
type report struct {
	refusal refusal
	wait    time.Duration // of a refusal, 0 if the answer does not say it
	open    bool          // the body of a 403 says whether it is a refusal; see body.go
	n       int           // of quotas
	quotas  [maxQuotas]statedQuota
}

// statedQuota is what an answer says about one quota: left requests may follow until after has
// passed, which is above 0.
type statedQuota struct {
	name  string
	left  int64
	after time.Duration
}

// read reads an answer that arrived now. statuses are those that may refuse a request.
func (r *report) read(resp *http.Response, statuses []int, now time.Time) {
	h := resp.Header
	if age := first(h, "Age"); age == "" || age == "0" { // a cache repeats what was true once
		r.readQuotas(h, now)
	}
	if resp.StatusCode >= 400 && slices.Contains(statuses, resp.StatusCode) {
		r.readRefusal(resp, now)
	}
}

// readQuotas reads the first family of fields that says anything.
func (r *report) readQuotas(h http.Header, now time.Time) {
	if lines := h["Ratelimit"]; lines != nil && r.readDraft(lines, h["Ratelimit-Policy"]) {
		return
	}

	// Zendesk has a field of its own beside those of the others.
	if found := r.readFamilies(families[:], h, now); !found || h[zendeskLimit] != nil {
		r.readVendors(h, now)
	}
}

// readFamilies reads the first family that says anything, and those that may be there as well. It
// reports whether there is one.
func (r *report) readFamilies(families []family, h http.Header, now time.Time) (found bool) {
	for i := range families {
		f := &families[i]
		if lines := h[f.remaining]; lines != nil && r.readFamily(h, f, lines, now) {
			if found = true; !f.more {
				return true
			}
		}
	}
	return found
}

// family is a pair of fields about one quota.
type family struct {
	remaining string
	resets    [2]string // the first that is there counts; the names may be ""
	name      [2]string // fields that name the quota
	units     bool      // the units are not requests
	more      bool      // the next family may be there as well

	// window is until when a server that does not say it gives the units back at the latest. of
	// names a field without which that does not hold, if it is not "".
	window time.Duration
	of     string
}

// maxValues is how many values of one field are read.
const maxValues = maxQuotas

var families = [...]family{
	{remaining: "Ratelimit-Remaining", resets: [2]string{"Ratelimit-Reset"}},
	{
		remaining: "X-Ratelimit-Remaining", resets: [2]string{"X-Ratelimit-Reset-After", "X-Ratelimit-Reset"},
		name: [2]string{"X-Ratelimit-Resource", "X-Ratelimit-Bucket"}, // of GitHub and Discord
	},
	// Those of X and Okta, and of Zendesk, which counts by the minute.
	{
		remaining: "X-Rate-Limit-Remaining", resets: [2]string{"X-Rate-Limit-Reset"},
		window: time.Minute, of: zendeskLimit,
	},
	// Those of OpenAI.
	{remaining: "X-Ratelimit-Remaining-Requests", resets: [2]string{"X-Ratelimit-Reset-Requests"}, more: true},
	{remaining: "X-Ratelimit-Remaining-Tokens", resets: [2]string{"X-Ratelimit-Reset-Tokens"}, units: true},
}

// readFamily reads the values of a family, whose remaining field has these lines. It reports
// whether one has its form. Several values are those of several quotas, in the order of their
// resets.
func (r *report) readFamily(h http.Header, f *family, lines []string, now time.Time) (found bool) {
	name, lastLeft, lastAfter := f.nameIn(h), int64(-1), time.Duration(0)
	for i := range maxValues {
		value, ok := valueAt(lines, i)
		if !ok {
			return found
		}

		// Docker Hub writes the window behind the number.
		value, params, _ := strings.Cut(value, ";")
		left, _, ok := decimal(value)
		if !ok {
			continue
		}

		// Without a time the number says nothing: the units may be those of any window.
		after, ok := f.resetIn(h, i, params, now)
		if !ok || left == lastLeft && after == lastAfter {
			continue
		}

		// A second one is another quota, unless a proxy has repeated the first.
		of := name
		if found {
			of += ";" + strconv.Itoa(i+1)
		}
		r.add(of, left, after, f.units)
		found, lastLeft, lastAfter = true, left, after
	}
	return found
}

// nameIn returns the name of the quota. Servers with several name the one that the answer is about.
// Of two names the last one counts.
func (f *family) nameIn(h http.Header) string {
	name := f.remaining
	for _, field := range f.name {
		if field == "" {
			break
		}
		if v := first(h, field); v != "" {
			name = v
		}
	}
	return name
}

// resetIn returns the time until value i of the family resets. params are its parameters.
func (f *family) resetIn(h http.Header, i int, params string, now time.Time) (after time.Duration, ok bool) {
	lines := h[f.resets[0]]
	if lines == nil && f.resets[1] != "" {
		lines = h[f.resets[1]]
	}

	// One time holds for all values. It may be a date, which has a comma.
	if after, ok = until(single(lines), h, now); ok {
		return after, true
	}
	if value, found := valueAt(lines, i); found {
		return until(value, h, now)
	}

	if window, found := strings.CutPrefix(strings.TrimSpace(params), "w="); found {
		return until(window, h, now)
	}
	return f.window, f.window > 0 && (f.of == "" || h[f.of] != nil)
}

// valueAt returns value i of a field whose values are separated by commas or by lines.
func valueAt(lines []string, i int) (value string, ok bool) {
	for _, line := range lines {
		for more := true; more; i-- {
			if value, line, more = strings.Cut(line, ","); i == 0 {
				return strings.TrimSpace(value), true
			}
		}
	}
	return "", false
}

// readDraft reads RateLimit, and of RateLimit-Policy the unit and window of each policy. It
// reports whether RateLimit has its form and says anything. Source:
// draft-ietf-httpapi-ratelimit-headers-11, 4, and draft 07, 3, where it is a Dictionary.
func (r *report) readDraft(lines, policyLines []string) bool {
	// The members with keys are those of draft 07, which is a Dictionary, and all others those of
	// the later drafts, which are a List. A field that is not as it should be says nothing at all.
	policies := policies{lines: policyLines}
	left, reset, bad := int64(-1), int64(-1), false
	ok := parse(lines, func(m member) {
		switch {
		case m.key == "remaining":
			left = m.wholeNumber()
		case m.key == "reset":
			reset = m.wholeNumber()
		case m.key != "":
		case m.value.kind != text && m.value.kind != token, m.params.wrong != 0, m.params.r < 0:
			bad = true
		default:
			if after, units := policies.resetOf(&m); after >= 0 {
				r.add(m.value.text, m.params.r, max(seconds(after), time.Second), units)
			}
		}
	})

	if !ok || bad {
		r.n = 0
		return false
	}

	if left >= 0 && reset >= 0 {
		r.add("Ratelimit", left, max(seconds(reset), time.Second), false)
	}
	return r.n > 0
}

// wholeNumber returns the value of a Dictionary's member that is an Integer, and else -1.
func (m *member) wholeNumber() int64 {
	if m.value.kind != integer {
		return -1
	}
	return m.value.n
}

// policies are the first members of RateLimit-Policy, which is read when it is needed.
type policies struct {
	lines []string // nil when they are read
	n     int
	list  [maxQuotas]policy
}

// policy is one member of RateLimit-Policy.
type policy struct {
	name   string
	window int64 // in seconds, -1 if it has none
	units  bool  // that are not requests
}

// read reads the field, or nothing if it does not have its form.
func (p *policies) read() {
	ok := parse(p.lines, func(m member) {
		if p.n < len(p.list) && m.key == "" && m.params.wrong == 0 {
			p.list[p.n] = policy{m.value.text, m.params.w, m.params.qu != "" && m.params.qu != "requests"}
			p.n++
		}
	})
	if p.lines = nil; !ok {
		p.n = 0
	}
}

// resetOf returns the seconds until the quota of a member resets, at most its window, and -1 if
// neither is known. units reports whether it does not count requests.
func (p *policies) resetOf(m *member) (after int64, units bool) {
	// The policies are parsed only for what RateLimit does not say: the time, or units other than
	// requests. Most answers need neither.
	after = m.params.t
	if after < 0 || slices.ContainsFunc(p.lines, func(line string) bool { return strings.Contains(line, "qu") }) {
		p.read()
	}

	for i := range p.n {
		if q := &p.list[i]; q.name == m.value.text {
			units = q.units
			if after < 0 {
				after = q.window
			}
		}
	}

	return after, units
}

// add adds what an answer says about one quota. If its units are not requests, only their end
// says anything.
func (r *report) add(name string, left int64, after time.Duration, units bool) {
	if after == 0 || units && left > 0 {
		return
	}

	// Two quotas with one name are read as the stricter of both.
	stated := statedQuota{name[:min(len(name), maxName)], left, min(after, believed)}
	for i := range r.n {
		if q := &r.quotas[i]; q.name == stated.name {
			q.left, q.after = min(q.left, stated.left), max(q.after, stated.after)
			return
		}
	}

	if r.n < maxQuotas {
		r.quotas[r.n] = stated
		r.n++
		return
	}

	// Those with the fewest units matter, so one with more gives way.
	most := 0
	for i := range r.quotas {
		if r.quotas[i].left > r.quotas[most].left {
			most = i
		}
	}

	if stated.left < r.quotas[most].left {
		r.quotas[most] = stated
	}
}

// readRefusal reads whether and for how long the server refuses by the status of the answer, which
// may do so. Retry-After takes precedence over the quotas. Sources: RFC 9110, 10.2.3; RFC 6585, 4;
// GitHub, "Rate limits for the REST API"; Anthropic, "Errors".
func (r *report) readRefusal(resp *http.Response, now time.Time) {
	wait, said := retryAfterOf(resp.Header, now)

	// 429 and 529 have no other meaning. Others refuse if they say so: a 503 by Retry-After, and a
	// 403 by a used-up quota as well. A status of 500 and above does not say whether the request
	// was carried out.
	over := r.usedUpFor()
	switch status := resp.StatusCode; {
	case status == statusOverloaded, status >= 500 && said:
		r.refusal = overloaded
	case status == http.StatusTooManyRequests, status < 500 && (said || over > 0):
		r.refusal = limited
	case status != http.StatusForbidden:
		return // it is no refusal
	}

	if wait == 0 {
		wait = over
	}
	r.wait = min(wait, believed)

	// GitHub's secondary limit is recognised by what is missing: no wait, and no quota that is
	// used up. Where the status does not say that it is a limit, the body may.
	if ofGitHub := first(resp.Header, "X-Ratelimit-Resource") != ""; ofGitHub && wait == 0 {
		switch r.refusal {
		case limited:
			r.refusal = secondary
		case none:
			r.open = true
		}
	}
}

// usedUpFor returns the time until no quota is used up, 0 if none is.
func (r *report) usedUpFor() (longest time.Duration) {
	for i := range r.n {
		if r.quotas[i].left == 0 {
			longest = max(longest, r.quotas[i].after)
		}
	}
	return longest
}

// first returns the value of a field with one line, and "" otherwise. Two lines contradict each
// other, or are the same.
func first(h http.Header, name string) string { return single(h[name]) }

// single returns the value of a field with one line, or with lines that are the same.
func single(lines []string) string {
	switch {
	case len(lines) == 0:
		return ""
	default:
		for _, line := range lines[1:] {
			if line != lines[0] {
				return ""
			}
		}
		return strings.TrimSpace(lines[0])
	}
}

// until returns the time until the instant that a field names, from the answer on:
//
//	30, 29.4                       seconds, below 100,000,000
//	1795240242, 1795240242.5       seconds since the Unix epoch
//	1795240242000                  milliseconds, and microseconds and nanoseconds
//	1s, 6m0s, 12ms                 durations as Go writes them
//	Mon, 02 Jan 2006 15:04:05 GMT  dates of HTTP, or in UTC
//	2006-01-02T15:04:05Z           dates of RFC 3339
//
// Instants count from the Date of the answer if it has one, so the clocks of both sides need
// not agree. Times in whole seconds are not exact, so they are a second at least, also if they
// have passed. ok is false if the field has none of these forms, or if an instant is more than
// 400 days away.
func until(s string, h http.Header, now time.Time) (d time.Duration, ok bool) {
	if s == "" || len(s) > 40 {
		return 0, false
	}

	// A number is a span or an instant, which its size decides.
	if n, nanos, ok := decimal(s); ok {
		if n < 1e8 {
			return max(seconds(n), shortest(nanos)) + nanos, true
		}
		at, ok := epoch(n, nanos)
		return fromAnswer(at, h, now, ok)
	}

	if c := s[len(s)-1]; isDigit(s[0]) && (c == 's' || c == 'm' || c == 'h') {
		d, err := time.ParseDuration(s)
		return d, err == nil && d >= 0
	}

	at, err := parseDate(s)
	for _, layout := range []string{time.RFC3339, "Mon, 02 Jan 2006 15:04:05 UTC"} {
		if err != nil {
			at, err = time.Parse(layout, s)
		}
	}
	return fromAnswer(at, h, now, err == nil)
}

// epoch returns the instant that n names, in a unit that its size gives away: no unit makes a
// time between 1985 and 5138 of a number that another one does. Smaller numbers are seconds
// that are left.
func epoch(n int64, nanos time.Duration) (time.Time, bool) {
	switch {
	case n >= 5e8 && n < 1e11:
		return time.Unix(n, int64(nanos)), true
	case n >= 5e11 && n < 1e14:
		return time.UnixMilli(n), true
	case n >= 5e14 && n < 1e17:
		return time.UnixMicro(n), true
	case n >= 5e17:
		return time.Unix(0, n), true
	}
	return time.Time{}, false
}

// fromAnswer returns the time from the answer to the instant at.
func fromAnswer(at time.Time, h http.Header, now time.Time, ok bool) (time.Duration, bool) {
	if !ok {
		return 0, false
	}

	// Both times are the server's, so its clock may be wrong.
	if date := first(h, "Date"); date != "" {
		if t, err := parseDate(date); err == nil {
			now = t
		}
	}

	d := at.Sub(now)
	if d > plausible || d < -plausible {
		return 0, false
	}
	return max(d, shortest(time.Duration(at.Nanosecond()))), true
}

// parseDate returns what http.ParseTime does. For an IMF-fixdate, which servers send, it takes a
// quarter of the instructions. Source: RFC 9110, 5.6.7.
func parseDate(s string) (time.Time, error) {
	const days, months = "SunMonTueWedThuFriSat", "JanFebMarAprMayJunJulAugSepOctNovDec"
	if !hasColumns(s) {
		return http.ParseTime(s)
	}
	weekday, month := strings.Index(days, s[:3]), strings.Index(months, s[8:11])
	day, year := number(s[5:7]), number(s[12:16])
	hour, minute, second := number(s[17:19]), number(s[20:22]), number(s[23:25])

	// strings.Index may find a name across two of the list.
	if min(weekday, month) < 0 || weekday%3+month%3 != 0 ||
		min(day, year, hour, minute, second) < 0 || max(minute, second) > 59 {
		return http.ParseTime(s)
	}

	t := time.Date(int(year), time.Month(month/3+1), int(day), int(hour), int(minute), int(second), 0, time.UTC)
	if t.Day() != int(day) { // the month does not have it, or the day not that hour
		return http.ParseTime(s)
	}
	return t, nil
}

// hasColumns reports whether s has the length of an IMF-fixdate, and its signs between the
// numbers and names.
func hasColumns(s string) bool {
	return len(s) == len(http.TimeFormat) && s[3:5] == ", " && s[7] == ' ' && s[11] == ' ' &&
		s[16] == ' ' && s[19] == ':' && s[22] == ':' && s[25:] == " GMT"
}

// shortest returns the shortest time that a number of seconds with this fraction means.
func shortest(fraction time.Duration) time.Duration {
	if fraction == 0 {
		return time.Second
	}
	return 0
}

// seconds returns n seconds, or as many as a Duration holds.
func seconds(n int64) time.Duration {
	if n > int64(math.MaxInt64/time.Second)-1 {
		n = int64(math.MaxInt64/time.Second) - 1
	}
	return time.Duration(n) * time.Second
}

// decimal reads digits, with a fraction or without. The fraction is that of a second, rounded
// up to nanoseconds.
func decimal(s string) (n int64, nanos time.Duration, ok bool) {
	whole, fraction, has := strings.Cut(s, ".")
	n = number(whole)
	if n < 0 || has && (fraction == "" || !digits(fraction)) {
		return 0, 0, false
	}

	unit := time.Second
	for i := range len(fraction) {
		if unit /= 10; unit == 0 {
			return n, nanos + 1, true
		}
		nanos += time.Duration(fraction[i]-'0') * unit
	}
	return n, nanos, true
}

// number returns the number that s has in digits, and -1 if it has other bytes or none, or if an
// int64 does not hold it.
func number(s string) (n int64) {
	if s == "" {
		return -1
	}
	for i := range len(s) {
		d := int64(s[i] - '0')
		if d > 9 || n > (math.MaxInt64-d)/10 {
			return -1
		}
		n = 10*n + d
	}
	return n
}

// digits reports whether s has no bytes but digits.
func digits(s string) bool {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
	}
	return true
}
