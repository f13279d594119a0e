package faults

import (
	"strings"
	"testing"
	"time"
)

// judgeTimes finds the slowest request. The time for which the machine had no
// processor is not the limiter's.
func (s *scene) judgeTimes(hits []hit, v *verdict) {
	for i := range hits {
		h := &hits[i]
		for _, d := range []span{{h.from, h.answered}, {h.answered, h.to}} {
			took := d.to.Sub(d.from)
			net := max(0, took-s.waits.during(d.from, d.to))
			v.slowest, v.net = max(v.slowest, took), max(v.net, net)
			if net > added {
				s.tooLate(v, d.from, d.to, "rule %s at %v: held up for %v, %v of it with a processor: %v, %v",
					h.rule, h.from.Sub(s.begun), took, net, h.err, h.release)
			}
		}
	}
}

// tooLate notes that a promise about time was broken, and whether the machine may
// be why: whether it stood still meanwhile.
func (s *scene) tooLate(v *verdict, from, to time.Time, format string, args ...any) {
	v.late.add(format, args...)
	if s.waits.longest(from, to) >= excuse {
		v.stalls++
	}
}

// settle reports the promises about time that were broken. How long the machine
// stood still is known from samples only, so where it did each time that is no
// verdict yet, unless the fault has been inflicted often enough.
func (s *scene) settle(t *testing.T, v *verdict) {
	t.Helper()
	v.disturbed = v.late.n > 0 && v.stalls == v.late.n && s.repeats > 0
	if v.disturbed {
		t.Logf("NOT JUDGED: the machine stood still at all of %d delays:\n%s", v.late.n, strings.Join(v.late.texts, "\n"))
		return
	}
	v.late.report(t, "delays")
}
