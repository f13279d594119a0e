package redisstore

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

func TestARepliesShapeIsChecked(t *testing.T) {
	for _, ints := range [][]int64{nil, {1}, {1, 1}, {1, 1, 4, 4}, {1, 1, 5}, {1, 1, 6}, {1, 1, 5, 2, 1}, {1, 1, 7, 1}, {1, -1, 0}} {
		if s := blank(1); decode(s, ints) == nil {
			t.Errorf("%v was read as %+v", ints, s[0].out[0])
		}
	}
}

func TestDecisionsAreReadAsScriptsWriteThem(t *testing.T) {
	us := time.Microsecond
	for _, row := range []struct {
		ints []int64
		want core.Decision
	}{
		{[]int64{7, 3, 20}, core.Decision{Allowed: true, Remaining: 3, ResetAfter: 5 * us, At: 7}},
		{[]int64{7, 3, 21, 2}, core.Decision{Allowed: true, Remaining: 3, Wait: 2 * us, ResetAfter: 5 * us, At: 7}},
		{[]int64{7, 0, 22, 2}, core.Decision{RetryAfter: 2 * us, ResetAfter: 5 * us, At: 7}},
		{[]int64{7, 0, 23}, core.Decision{RetryAfter: core.Never, ResetAfter: 5 * us, At: 7}},
	} {
		s := blank(1)
		if err := decode(s, row.ints); err != nil || s[0].err != nil || s[0].out[0] != row.want {
			t.Errorf("%v: %+v, %v, %v", row.ints, s[0].out[0], s[0].err, err)
		}
	}
	s := blank(1)
	if err := decode(s, []int64{7, -1}); err != nil || !errors.Is(s[0].err, ErrUnreadable) {
		t.Error(err, s[0].err)
	}
}

// blank is steps of one operation each.
func blank(n int) []*step {
	steps := make([]*step, n)
	for i := range steps {
		steps[i] = &step{ops: make([]core.Op, 1), out: make([]core.Decision, 1)}
	}
	return steps
}

func FuzzDecode(f *testing.F) {
	f.Add(1, int64(1), int64(-9223372036854775808), int64(3))
	f.Fuzz(func(t *testing.T, n int, a, b, c int64) {
		ints := make([]int64, max(0, min(n, 20)))
		for i := range ints {
			ints[i] = []int64{a, b, c}[i%3]
		}
		decode(blank(2), ints)
	})
}
