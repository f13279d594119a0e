package limiter

import (
	"math/bits"
	"net/textproto"
	"strconv"
	"strings"
	"time"
)

// SetHeaders puts [Admission.Headers] into h, which may be a
// [net/http.Header], and notes there that a request that passes has been
// counted; see [Limiter.Counted].
func (a *Admission) SetHeaders(h map[string][]string) {
	a.render()
	if n := len(a.fields); n > 0 {
		values := make([]string, n)
		text, from := string(a.text), 0
		for i, f := range a.fields {
			values[i], from = text[from:f.end], f.end
			h[f.name] = values[i : i+1 : i+1]
		}
	}
	if a.result.allowed {
		h[a.result.limiter.mark] = nil
	}
}

// Headers returns the headers that the answer carries whoever writes it. The
// most exhausted rule comes first, and the X-RateLimit headers speak of it
// alone. The slice is valid until Done.
func (a *Admission) Headers() []Header {
	a.render()
	if len(a.headers) < len(a.fields) {
		text, from := string(a.text), 0
		for _, f := range a.fields {
			a.headers = append(a.headers, Header{f.name, text[from:f.end]})
			from = f.end
		}
	}
	return a.headers
}

// EachHeader calls set with each of [Admission.Headers], for adapters whose
// framework copies values. A value is valid during the call alone.
func (a *Admission) EachHeader(set func(name string, value []byte)) {
	a.render()
	from := 0
	for _, f := range a.fields {
		set(f.name, a.text[from:f.end:f.end])
		from = f.end
	}
}

// field is a header, whose value is the piece of the buffer between the one
// before and end.
type field struct {
	name string
	end  int
}

// render writes all values into one buffer.
func (a *Admission) render() {
	if a.rendered {
		return
	}
	a.rendered = true
	res := &a.result
	if o := a.Outcome(); o != Pass {
		if n := a.RetryAfter(); n > 0 {
			a.text = strconv.AppendInt(a.text, n, 10)
			a.cut("Retry-After")
		}
		a.fixed("Cache-Control", "no-store")
	}
	if res.limiter == nil || res.limiter.headers == NoHeaders && res.limiter.customHeaders == nil {
		return
	}
	if a.rank(); len(a.order) == 0 {
		return
	}
	style := res.limiter.headers
	if style&(XRateLimit|XRateLimitDelta) != 0 {
		a.xRateLimit(style)
	}
	if style&Draft8 != 0 {
		a.draft8()
	}
	if res.limiter.customHeaders != nil {
		a.custom()
	}
}

// fixed adds a header whose value is known beforehand.
func (a *Admission) fixed(name, value string) {
	a.text = append(a.text, value...)
	a.cut(name)
}

// cut ends the value of a header in the buffer.
func (a *Admission) cut(name string) {
	a.fields = append(a.fields, field{name, len(a.text)})
}

// rank puts the rules that clients may see in order, the most exhausted first.
func (a *Admission) rank() {
	res := &a.result
	for i := range res.calls {
		if res.calls[i].rule.OnLimit == Shadow {
			continue
		}
		a.order = append(a.order, i)
		for j := len(a.order) - 1; j > 0 && res.scarcer(a.order[j], a.order[j-1]); j-- {
			a.order[j], a.order[j-1] = a.order[j-1], a.order[j]
		}
	}
}

// scarcer tells whether rule i is over its limit and j is not, or has less left
// of its capacity.
func (res *Result) scarcer(i, j int) bool {
	if res.out[i].Allowed != res.out[j].Allowed {
		return !res.out[i].Allowed
	}
	hi1, lo1 := bits.Mul64(uint64(res.out[i].Remaining), uint64(res.ops[j].Limit.Capacity()))
	hi2, lo2 := bits.Mul64(uint64(res.out[j].Remaining), uint64(res.ops[i].Limit.Capacity()))
	return hi1 < hi2 || hi1 == hi2 && lo1 < lo2
}

func (a *Admission) xRateLimit(style HeaderStyle) {
	i := a.order[0]
	d := a.result.decision(i)
	a.fixed("X-Ratelimit-Limit", a.result.calls[i].terms.capacity)
	a.text = strconv.AppendInt(a.text, d.Remaining, 10)
	a.cut("X-Ratelimit-Remaining")
	reset := wholeSeconds(d.ResetAfter)
	if style&XRateLimit != 0 {
		reset = wholeSeconds(time.Duration(d.At%1e6)*time.Microsecond+d.ResetAfter) + d.At/1e6
	}
	a.text = strconv.AppendInt(a.text, reset, 10)
	a.cut("X-Ratelimit-Reset")
}

func (a *Admission) draft8() {
	res := &a.result
	if res.usesOwnLimits(len(a.order)) {
		a.fixed("Ratelimit-Policy", res.set.policy)
	} else {
		comma := ""
		for i := range res.calls {
			if res.calls[i].rule.OnLimit != Shadow {
				a.text = append(append(a.text, comma...), res.calls[i].terms.policy...)
				comma = ", "
			}
		}
		a.cut("Ratelimit-Policy")
	}
	comma := ""
	for _, i := range a.order {
		a.text = append(a.text, comma...)
		a.text = res.appendRemaining(a.text, i)
		comma = ", "
	}
	a.cut("Ratelimit")
}

// usesOwnLimits tells whether every rule that clients may see applies, under
// the limit that it was configured with.
func (res *Result) usesOwnLimits(shown int) bool {
	for i := range res.calls {
		if res.calls[i].terms != res.calls[i].rule.terms {
			return false
		}
	}
	return shown == res.set.shown
}

// appendRemaining writes the item of RateLimit. When a lease ends nobody knows.
func (res *Result) appendRemaining(b []byte, i int) []byte {
	d := res.decision(i)
	b = append(b, res.calls[i].terms.remaining...)
	b = strconv.AppendInt(b, min(d.Remaining, maxInteger), 10)
	if res.ops[i].Limit.Leased() {
		return b
	}
	b = append(b, ";t="...)
	return strconv.AppendInt(b, wholeSeconds(d.ResetAfter), 10)
}

// oneLine keeps a value from ending the header that it is in.
var oneLine = strings.NewReplacer("\r", " ", "\n", " ")

// custom adds the headers of the program's own function.
func (a *Admission) custom() {
	l := a.result.limiter
	defer func() {
		if v := recover(); v != nil {
			l.report(a.ctx, panicked(v))
		}
	}()
	list := make([]RuleDecision, len(a.order))
	for n, i := range a.order {
		list[n] = a.result.ruleDecision(i)
	}
	for _, h := range l.customHeaders(list) {
		a.fixed(textproto.CanonicalMIMEHeaderKey(h.Name), oneLine.Replace(h.Value))
	}
}
