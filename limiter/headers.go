package limiter

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/headgate/headgate/internal/textform"
)

// HeaderStyle names the rate limit headers of an answer. Values combine with
// "|". The zero value means XRateLimit | Draft8.
type HeaderStyle uint8

const (
	// XRateLimit is X-RateLimit-Limit, -Remaining and -Reset, the last in
	// seconds since the Unix epoch, as GitHub sends them.
	XRateLimit HeaderStyle = 1 << iota

	// XRateLimitDelta is the same with the seconds that are left in -Reset.
	XRateLimitDelta

	// Draft8 is RateLimit-Policy and RateLimit, in the form that
	// draft-ietf-httpapi-ratelimit-headers has had since its version 08.
	Draft8

	// NoHeaders is none of them. A refusal has a Retry-After nevertheless.
	NoHeaders

	styleEnd
)

func (h HeaderStyle) check() error {
	switch {
	case h >= styleEnd:
		return fmt.Errorf("Headers: style %#x is not known", uint8(h))
	case h&NoHeaders != 0 && h != NoHeaders:
		return errors.New("Headers: NoHeaders combines with nothing")
	case h&XRateLimit != 0 && h&XRateLimitDelta != 0:
		return errors.New("Headers: XRateLimit and XRateLimitDelta give one header two meanings")
	}
	return nil
}

// Header is one header field. Names are in the form that
// [net/textproto.CanonicalMIMEHeaderKey] returns, such as "X-Ratelimit-Limit".
type Header struct{ Name, Value string }

// headers are those of one answer, from a result that they read, in one buffer.
type headers struct {
	res        *Result // without an engine if there is no limiter
	rendered   bool
	retryAfter int64 // in seconds; 0 for none, and while it is not written
	retryEnd   int   // where its text in the buffer ends, which is the first

	fields []field
	text   []byte
	list   []Header
	order  []int   // the rules that clients may see, the most exhausted first
	around *around // nil unless other limiters have written headers

	values supply[string] // of the entries of header maps
	texts  supply[byte]   // of those values
}

// field is a header. Its value is the part of the buffer from the end of the
// previous field to end.
type field struct {
	name *fieldName
	end  int
}

// fieldName is the name of a header, in both forms that frameworks take.
type fieldName struct {
	text  string
	bytes []byte // never written
}

func newFieldName(text string) fieldName { return fieldName{text, []byte(text)} }

var (
	limitName        = newFieldName("X-Ratelimit-Limit")
	remainingName    = newFieldName("X-Ratelimit-Remaining")
	resetName        = newFieldName("X-Ratelimit-Reset")
	policyName       = newFieldName("Ratelimit-Policy")
	rateLimitName    = newFieldName("Ratelimit")
	retryAfterName   = newFieldName("Retry-After")
	cacheControlName = newFieldName("Cache-Control")
)

const noStore = "no-store" // of Cache-Control

var noStoreBytes = []byte(noStore)

// render writes all values into one buffer.
func (h *headers) render(ctx context.Context) {
	if h.rendered {
		return
	}
	h.rendered = true
	h.text, h.retryEnd = h.text[:0], 0

	if h.res.outcome != Pass {
		h.refusal()
	}

	e := h.res.engine
	switch {
	case h.res.isDenied(): // no count was read
		return
	case e == nil, e.headers == NoHeaders && e.customHeaders == nil:
		return
	case h.res.outcome == QueueFull: // what is left under the limits is not why
		return
	}
	if h.rank(); len(h.order) == 0 {
		return
	}

	// The limiter that is most exhausted has the X-RateLimit headers for itself.
	style := e.headers
	if style&(XRateLimit|XRateLimitDelta) != 0 && (h.around == nil || h.isScarcerThan(h.around.shown)) {
		h.xRateLimit(style)
	}
	if style&Draft8 != 0 {
		h.draft8()
	}
	if e.customHeaders != nil {
		h.custom(ctx)
	}
}

// refusal adds the headers of an answer in place of the handler's.
func (h *headers) refusal() {
	if h.writeRetryAfter() {
		h.fields = append(h.fields, field{&retryAfterName, h.retryEnd})
	}
	h.fixed(&cacheControlName, noStore)
}

// writeRetryAfter begins the buffer with the value of Retry-After. It reports whether there is one.
func (h *headers) writeRetryAfter() bool {
	h.text, h.retryEnd = h.text[:0], 0
	if h.retryAfter = h.mergedRetryAfter(); h.retryAfter == 0 {
		return false
	}
	h.text = textform.AppendInt(h.text, h.retryAfter)
	h.retryEnd = len(h.text)
	return true
}

// retryAfterText returns the value of Retry-After, or nothing if there is none or it is not written
// yet.
func (h *headers) retryAfterText() []byte { return h.text[:h.retryEnd] }

// mergedRetryAfter returns the Retry-After of all limiters that have turned the request away, or 0.
func (h *headers) mergedRetryAfter() int64 {
	n := h.res.retryAfterSeconds()
	if n > 0 && h.around != nil {
		n = max(n, h.around.retryAfter)
	}
	return n
}

// rank puts the rules that clients may see in order, the most exhausted first.
func (h *headers) rank() {
	res := h.res
	h.order = h.order[:0]
	if res.asked == 1 && res.calls[0].rule.OnLimit != Shadow { // most limiters have one rule
		h.order = append(h.order, 0)
		return
	}
	for i := range res.asked {
		if res.calls[i].rule.OnLimit == Shadow {
			continue
		}
		h.order = append(h.order, i)
		for j := len(h.order) - 1; j > 0 && res.scarcer(h.order[j], h.order[j-1]); j-- {
			h.order[j], h.order[j-1] = h.order[j-1], h.order[j]
		}
	}

	// A rule may have a call for each part, and clients see one of them.
	if res.inParts {
		h.order = h.firstOfRules(h.order)
	}
}

// empty removes all data of the request from the buffers.
func (h *headers) empty() {
	h.rendered, h.retryAfter, h.retryEnd = false, 0, 0
	if len(h.fields) == 0 && len(h.order) == 0 && h.around == nil {
		return
	}

	clear(h.list)
	if e := h.res.engine; e != nil && e.customHeaders != nil {
		clear(h.fields)
	}
	h.fields, h.text, h.list, h.order = h.fields[:0], h.text[:0], h.list[:0], h.order[:0]
	h.around = nil
}

// asText returns the headers as text, once they are rendered.
func (h *headers) asText() []Header {
	if len(h.list) < len(h.fields) {
		text, from := string(h.text), 0
		for _, f := range h.fields {
			h.list = append(h.list, Header{f.name.text, text[from:f.end]})
			from = f.end
		}
	}
	return h.list
}

// put adds the headers to those in m. Their values take their memory from a supply, as two small
// allocations take longer than all else that is done for headers.
func (h *headers) put(m map[string][]string) {
	fields := h.fields
	if len(fields) == 0 {
		return
	}
	values, kept := h.values.take(len(fields)), h.texts.take(len(h.text))
	copy(kept, h.text)

	// What was taken of the supply is never written again.
	text, from := unsafe.String(unsafe.SliceData(kept), len(kept)), 0
	for i := range values {
		f := &fields[i]
		values[i], from = text[from:f.end], f.end
		m[f.name.text] = values[i : i+1 : i+1]
	}
}

// supply is memory that is allocated for several requests at once, and given to each by itself.
type supply[T any] struct{ rest []T }

// supplied is how many elements a supply allocates. What keeps the headers of one answer keeps
// this many values of 16 bytes, and as many times 16 of their text.
const supplied = 32

// take returns n elements that are zero and that no other has.
func (s *supply[T]) take(n int) []T {
	if n > len(s.rest) {
		var one T
		s.rest = make([]T, max(n, supplied*16/int(unsafe.Sizeof(one))))
	}
	taken := s.rest[:n:n]
	s.rest = s.rest[n:]
	return taken
}

// fixed adds a header with the value.
func (h *headers) fixed(name *fieldName, value string) {
	h.text = append(h.text, value...)
	h.fields = append(h.fields, field{name, len(h.text)})
}

// firstOfRules removes all calls of a rule but the first from the order.
func (h *headers) firstOfRules(order []int) []int {
	kept := order[:0]
	for _, i := range order {
		r := h.res.calls[i].rule
		if !slices.ContainsFunc(kept, func(j int) bool { return h.res.calls[j].rule == r }) {
			kept = append(kept, i)
		}
	}
	return kept
}

// fullAfter returns the time until the key of rule i may use its whole limit, which is not before
// a ban ends.
func (h *headers) fullAfter(i int) time.Duration {
	d := &h.res.out[i]
	after := max(0, d.ResetAfter-h.res.aged)
	if d.Banned {
		after = max(after, d.RetryAfter)
	}
	return after
}

// xRateLimit adds the headers about the most exhausted rule.
func (h *headers) xRateLimit(style HeaderStyle) {
	h.fixed(&limitName, h.res.calls[h.order[0]].terms.capacity)
	text, remaining := h.appendXRateLimit(h.text, style)
	h.text = text
	h.fields = append(h.fields, field{&remainingName, remaining}, field{&resetName, len(text)})
}

// appendXRateLimit writes the values of X-RateLimit-Remaining and -Reset, and returns where the
// first of them ends. It grows a parameter: a field that holds a pointer costs a write barrier.
func (h *headers) appendXRateLimit(b []byte, style HeaderStyle) (text []byte, remaining int) {
	res, i := h.res, h.order[0]
	after := h.fullAfter(i)
	reset := wholeSeconds(after)
	if style&XRateLimit != 0 {
		at := res.out[i].At + int64(res.aged/time.Microsecond)
		reset = wholeSeconds(time.Duration(at%1e6)*time.Microsecond+after) + at/1e6
	}

	b = textform.AppendInt(b, res.out[i].Remaining)
	remaining = len(b)
	return textform.AppendInt(b, reset), remaining
}

// canonical is an answer that copies the names and the values of its headers.
type canonical interface{ SetCanonical(name, value []byte) }

// isPlain reports whether the headers are of this limiter alone, without those of the program, and
// are not rendered yet.
func (h *headers) isPlain() bool {
	e := h.res.engine
	return e != nil && e.customHeaders == nil && h.around == nil && !h.rendered
}

// setPlain sets plain headers as render has them, without a list of them, which would take longer
// than all else.
func (h *headers) setPlain(answer canonical) {
	res := h.res
	style := res.engine.headers
	if res.outcome != Pass {
		if h.writeRetryAfter() {
			answer.SetCanonical(retryAfterName.bytes, h.text)
		}
		answer.SetCanonical(cacheControlName.bytes, noStoreBytes)

		// No count was read for the first, and what is left is not why there is the second.
		if res.isDenied() || res.outcome == QueueFull {
			return
		}
	}
	if style == NoHeaders {
		return
	}
	if h.rank(); len(h.order) == 0 {
		return
	}

	// The most exhausted rule has the X-RateLimit headers for itself.
	b := h.text[:h.retryEnd]
	if style&(XRateLimit|XRateLimitDelta) != 0 {
		from := len(b)
		text, remaining := h.appendXRateLimit(b, style)
		answer.SetCanonical(limitName.bytes, readOnly(res.calls[h.order[0]].terms.capacity))
		answer.SetCanonical(remainingName.bytes, text[from:remaining])
		answer.SetCanonical(resetName.bytes, text[remaining:])
		b = text
	}
	if style&Draft8 != 0 {
		from := len(b)
		b = h.appendPolicy(b)
		answer.SetCanonical(policyName.bytes, b[from:])
		from = len(b)
		b = h.appendRateLimit(b)
		answer.SetCanonical(rateLimitName.bytes, b[from:])
	}
	h.text = b
}

// readOnly returns the bytes of a text, which must not be written to.
func readOnly(text string) []byte { return unsafe.Slice(unsafe.StringData(text), len(text)) }

// draft8 adds RateLimit-Policy, with the rules in their own order, and RateLimit, with the most
// exhausted rule first.
func (h *headers) draft8() {
	from := len(h.text)
	h.text = h.appendPolicy(h.text)
	if h.around != nil {
		h.mergeList(from, h.around.policies, false)
	}

	from = len(h.text)
	h.text = h.appendRateLimit(h.text)
	if h.around != nil {
		h.mergeList(from, h.around.rateLimit, true)
	}
	h.fields = append(h.fields, field{&policyName, from}, field{&rateLimitName, len(h.text)})
}

// appendPolicy writes the value of RateLimit-Policy. The text of the usual cases is ready; the
// order of a policy never changes.
func (h *headers) appendPolicy(b []byte) []byte {
	res := h.res
	if res.asked == 1 {
		return append(b, res.calls[0].terms.policy...)
	}
	if h.usesOwnLimits(len(h.order)) {
		return append(b, res.set.policy...)
	}

	comma := ""
	for i := range res.asked {
		if slices.Contains(h.order, i) {
			b = append(append(b, comma...), res.calls[i].terms.policy...)
			comma = ", "
		}
	}
	return b
}

// appendRateLimit writes the value of RateLimit.
func (h *headers) appendRateLimit(b []byte) []byte {
	comma := ""
	for _, i := range h.order {
		b = h.appendRemaining(append(b, comma...), i)
		comma = ", "
	}
	return b
}

// oneLine replaces line breaks, which would end the header that a value is in.
var oneLine = strings.NewReplacer("\r", " ", "\n", " ")

// custom adds the headers of the program's own function.
func (h *headers) custom(ctx context.Context) {
	defer func() {
		if v := recover(); v != nil {
			h.res.engine.report(ctx, panicked(v))
		}
	}()

	list := make([]RuleDecision, len(h.order))
	for n, i := range h.order {
		list[n] = h.res.ruleDecision(i)
	}
	for _, one := range h.res.engine.customHeaders(list) {
		name := newFieldName(textproto.CanonicalMIMEHeaderKey(one.Name))
		h.fixed(&name, oneLine.Replace(one.Value))
	}
}

// usesOwnLimits reports whether every rule that clients may see applies, under
// the limit that it was configured with.
func (h *headers) usesOwnLimits(shown int) bool {
	for i := range h.res.asked {
		if h.res.calls[i].terms != h.res.calls[i].rule.terms {
			return false
		}
	}
	return shown == h.res.set.shown && !h.res.inParts
}

// appendRemaining writes the item of RateLimit. It has no reset under a concurrency
// limit, because the end of a lease is not known.
func (h *headers) appendRemaining(b []byte, i int) []byte {
	b = append(b, h.res.calls[i].terms.remaining...)
	b = textform.AppendInt(b, min(h.res.out[i].Remaining, maxInteger))
	if h.res.ops[i].Limit.Leased() {
		return b
	}
	b = append(b, ";t="...)
	return textform.AppendInt(b, wholeSeconds(h.fullAfter(i)))
}

// markName is the entry of a [Mark] in the header map of an answer. Its list is empty, so
// no server sends it: net/http itself has programs put empty lists there, to suppress the
// header Date. The texts of the mark are between the length and the capacity of the list.
// A space in the name, which no header can have, keeps the entry from colliding with a
// header that a handler sets. The space alone would not do: net/http sends no such header
// by HTTP/1 and HTTP/2, but quic-go sends it by HTTP/3, and clients refuse the answer.
//
// It is left in the maps of net/http's servers alone; see package internal/httpexchange. A value in
// the request's context needs a copy of the request: 214 ns, 2 allocations and 368 bytes. The
// entry costs 13 ns and no allocation; the whole middleware costs 411 ns.
const markName = "headgate mark"

// markIn returns the texts of the mark in a header map, or none. A copy of the map has
// none, because it copies no more than the length of each list.
func markIn(h map[string][]string) []string {
	values := h[markName]
	return values[:cap(values)]
}

// Mark returns the mark of the limiter and of those around it, for an adapter that keeps
// it in another place than a header map. It is called for a request that passes, after
// its headers were read.
func (a *Admission) Mark() *Mark { return a.headers.mark(a.limiter.mark) }

// mark returns the mark of the limiter, whose own is given, and of those around it.
func (h *headers) mark(mark *Mark) *Mark {
	if len(h.order) > 0 {
		mark = h.res.calls[h.order[0]].terms.mark
	}
	if h.around == nil {
		return mark
	}
	return h.mergedMark(mark)
}

// mergedMark returns the mark of the limiter together with those of the limiters around it.
func (h *headers) mergedMark(mark *Mark) *Mark {
	o := h.around
	capacity := o.mark.values[0]
	if h.res.engine.headers&Draft8 != 0 && h.isScarcerThan(o.listed) {
		capacity = mark.values[0]
	}
	return &Mark{slices.Clip(slices.Concat([]string{capacity}, o.mark.values[1:], mark.values[1:]))}
}

// around is what the limiters around one have written into the answer.
type around struct {
	mark                *Mark
	policies, rateLimit string
	retryAfter          int64
	shown, listed       share // of the rule of the X-RateLimit headers, and of the first of RateLimit
}

// share is how much of its capacity a rule has left. It is zero if there is no rule.
type share struct{ capacity, remaining int64 }

// shareOf returns the share that two numbers state, or none if they are not numbers: code
// in between may have changed the headers.
func shareOf(capacity, remaining string) share {
	c, bad := strconv.ParseInt(capacity, 10, 64)
	r, worse := strconv.ParseInt(remaining, 10, 64)
	if bad != nil || worse != nil || c <= 0 || r < 0 {
		return share{}
	}
	return share{c, r}
}

// Merge makes the headers of a those of all limiters that the request has met: the
// X-RateLimit headers describe the most exhausted rule of all, RateLimit and
// RateLimit-Policy list the rules of all, and Retry-After is the largest. The most
// exhausted rule is one that refuses the request, or else has the smallest share of its
// capacity left, and is the first in RateLimit. Of two rules of one name only one is
// listed, that of the limiter which has the more exhausted rule.
//
// outer is the mark that the request has, nil for none, and header returns the first
// value of a header of the answer, or "". Merge is called before the headers of a are
// read. SetHeaders calls it itself.
func (a *Admission) Merge(outer *Mark, header func(name string) string) {
	if outer != nil && !a.headers.rendered {
		a.headers.merge(outer, header)
	}
}

func (h *headers) merge(outer *Mark, header func(name string) string) {
	o := &around{mark: outer, policies: header("Ratelimit-Policy"), rateLimit: header("Ratelimit"),
		shown: shareOf(header("X-Ratelimit-Limit"), header("X-Ratelimit-Remaining"))}
	_, left, _ := strings.Cut(o.rateLimit, ";r=")
	if end := strings.IndexAny(left, ";,"); end >= 0 {
		left = left[:end]
	}
	if o.listed = shareOf(outer.values[0], left); o.listed.capacity == 0 {
		o.policies, o.rateLimit = "", ""
	}
	o.retryAfter, _ = strconv.ParseInt(header("Retry-After"), 10, 64)
	h.around = o
}

// mergeFrom merges the headers with those in m, if another limiter has written them.
func (h *headers) mergeFrom(m map[string][]string) {
	values := markIn(m)
	if len(values) == 0 {
		return
	}
	h.merge(&Mark{values}, func(name string) string {
		if list := m[name]; len(list) > 0 {
			return list[0]
		}
		return ""
	})
}

// without returns the list without the items whose names are in the other. An item begins
// with its name in quotes, and has no comma.
func without(list, other string) string {
	var kept []string
	for item := range strings.SplitSeq(list, ", ") {
		name, _, _ := strings.Cut(item, ";")
		if !strings.Contains(", "+other, ", "+name+";") {
			kept = append(kept, item)
		}
	}
	return strings.Join(kept, ", ")
}

// isScarcerThan reports whether the most exhausted rule that the limiter shows is more
// exhausted than one with the share.
func (h *headers) isScarcerThan(other share) bool {
	switch {
	case len(h.order) == 0:
		return false
	case other.capacity == 0 || h.res.outcome == Refused:
		return true
	}
	d, l := &h.res.out[h.order[0]], &h.res.ops[h.order[0]].Limit
	hi1, lo1 := bits.Mul64(uint64(d.Remaining), uint64(other.capacity))
	hi2, lo2 := bits.Mul64(uint64(other.remaining), uint64(l.Capacity()))
	return hi1 < hi2 || hi1 == hi2 && lo1 < lo2
}

// mergeList makes one list of that of the limiters around and that which begins at from in
// the buffer. Of two items of one name it keeps that of the more exhausted limiter, whose
// items come first if ranked is true.
func (h *headers) mergeList(from int, outer string, ranked bool) {
	inner := string(h.text[from:])

	scarcer := h.isScarcerThan(h.around.listed)
	if scarcer {
		outer = without(outer, inner)
	} else {
		inner = without(inner, outer)
	}
	if scarcer && ranked {
		outer, inner = inner, outer
	}

	// Either list may be empty, if all its items are in the other.
	h.text = append(h.text[:from], outer...)
	if outer != "" && inner != "" {
		h.text = append(h.text, ", "...)
	}
	h.text = append(h.text, inner...)
}

// Mark is what limiters leave with the answer to a request that they have admitted. By it
// a limiter that meets the request again does not count it twice, and one inside merges
// its headers with those that are there. A Mark does not change, and no client can set
// it. nil is the mark of a request that no limiter has admitted.
type Mark struct {
	// values are the capacity of the limit that RateLimit names first, which is not in the
	// headers, or "", and then the limiters. The capacity is the length.
	values []string
}

func newMark(capacity, id string) *Mark { return &Mark{[]string{capacity, id}} }

// id returns the first of the limiters.
func (m *Mark) id() string { return m.values[1] }

// has reports whether the limiter of the id is among those of the mark, which may be empty.
func (m *Mark) has(id string) bool { return len(m.values) > 0 && slices.Contains(m.values[1:], id) }
