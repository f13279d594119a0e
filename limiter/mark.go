package limiter

import (
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

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

// Counted reports whether l has decided about the request before, so that it
// passes without being counted again. h is the header of its answer, in which
// [Admission.LeaveMark] has left a mark.
//
// A middleware in between that gives the answer another header map, such as a copy or the
// empty one of [net/http.TimeoutHandler], hides the mark. For a nil Limiter Counted returns
// false.
func (l *Limiter) Counted(h map[string][]string) bool { return l.isIn(markIn(h)) }

// CountedBy is [Limiter.Counted] for an adapter that keeps the mark of a request in
// another place than a header map.
func (l *Limiter) CountedBy(m *Mark) bool { return m != nil && l.isIn(m.values) }

// isIn reports whether l is among the limiters of a mark, and warns if it is.
func (l *Limiter) isIn(mark []string) bool {
	if l == nil || len(mark) == 0 || !slices.Contains(mark[1:], l.mark.id()) {
		return false
	}
	l.WarnTwice()
	return true
}

// Mark returns the mark of the limiter and of those around it, for an adapter that keeps
// it in another place than a header map. It is called for a request that passes, after
// its headers were read.
func (a *Admission) Mark() *Mark {
	res := &a.result
	mark := res.limiter.mark
	if len(a.order) > 0 {
		mark = res.calls[a.order[0]].terms.mark
	}
	o := a.around
	if o == nil {
		return mark
	}
	capacity := o.mark.values[0]
	if res.limiter.headers&Draft8 != 0 && a.isScarcerThan(o.listed) {
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
	if outer == nil || a.rendered {
		return
	}
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
	a.around = o
}

// mergeFrom merges the headers with those in h, if another limiter has written them.
func (a *Admission) mergeFrom(h map[string][]string) {
	values := markIn(h)
	if len(values) == 0 {
		return
	}
	a.Merge(&Mark{values}, func(name string) string {
		if list := h[name]; len(list) > 0 {
			return list[0]
		}
		return ""
	})
}

// isScarcerThan reports whether the most exhausted rule that the limiter shows is more
// exhausted than one with the share.
func (a *Admission) isScarcerThan(other share) bool {
	switch {
	case len(a.order) == 0:
		return false
	case other.capacity == 0 || a.Outcome() == Refused:
		return true
	}
	d, l := &a.result.out[a.order[0]], &a.result.ops[a.order[0]].Limit
	hi1, lo1 := bits.Mul64(uint64(d.Remaining), uint64(other.capacity))
	hi2, lo2 := bits.Mul64(uint64(other.remaining), uint64(l.Capacity()))
	return hi1 < hi2 || hi1 == hi2 && lo1 < lo2
}

// mergeList makes one list of that of the limiters around and that which begins at from in
// the buffer. Of two items of one name it keeps that of the more exhausted limiter, whose
// items come first if ranked is true.
func (a *Admission) mergeList(from int, outer string, ranked bool) {
	inner := string(a.text[from:])
	scarcer := a.isScarcerThan(a.around.listed)
	if scarcer {
		outer = without(outer, inner)
	} else {
		inner = without(inner, outer)
	}
	if scarcer && ranked {
		outer, inner = inner, outer
	}
	a.text = append(a.text[:from], outer...)
	if outer != "" && inner != "" {
		a.text = append(a.text, ", "...)
	}
	a.text = append(a.text, inner...)
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
