package redisstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
)

// listing prints a program: its rows as the number of steps and of operations,
// its operations as what they do and the places of key and limit.
func listing(code []byte) string {
	place := func(b []byte) int { return int(b[0])<<16 + int(b[1])<<8 + int(b[2]) }
	var b strings.Builder
	for ; len(code) > 0; code = code[opcodeLength:] {
		if code[0] == opcodeRow {
			fmt.Fprintf(&b, "[%dx%d] ", place(code[1:]), place(code[4:]))
			continue
		}
		fmt.Fprintf(&b, "%d:%d:%d ", code[0], place(code[1:]), place(code[4:]))
	}
	return strings.TrimSpace(b.String())
}

func TestRowHoldsStepsThatAreAlike(t *testing.T) {
	s := MustNew(redis.NewClient(&redis.Options{}), Options{})
	defer s.client.Close()
	second, minute, uneven := limit(t, "5/1s"), limit(t, "10/1m"), limit(t, "7/1m")

	// A step is the keys of takes of 1, with a "!" if it costs 2. Capitals are
	// under the limit of a minute, and a digit is under one without a short cut.
	for steps, want := range map[string]string{
		"a b c":       "[3x1] 0:1:1 0:2:1 0:3:1",
		"a B c":       "[1x1] 0:1:1 [1x1] 0:2:2 [1x1] 0:3:1",
		"a a":         "[1x1] 0:1:1 0:1:1",
		"a b a c d":   "[2x1] 0:1:1 0:2:1 0:1:1 [2x1] 0:3:1 0:4:1",
		"aB cD":       "[2x2] 16:1:1 0:2:2 16:3:1 0:4:2",
		"a cD":        "[1x1] 0:1:1 [1x2] 16:2:1 0:3:2",
		"aB c":        "[1x2] 16:1:1 0:2:2 [1x1] 0:3:1",
		"aB Cd":       "[1x2] 16:1:1 0:2:2 [1x2] 16:3:2 0:4:1",
		"ab ac de":    "[1x2] 16:1:1 0:2:1 16:1:1 0:3:1 [1x2] 16:4:1 0:5:1",
		"aa b":        "16:1:1 0:1:1 [1x1] 0:2:1",
		"a b! c":      "[1x1] 0:1:1 32:2:1 [1x1] 0:3:1",
		"ab!c d":      "16:1:1 48:2:1 0:3:1 [1x1] 0:4:1",
		"a 1 b":       "[1x1] 0:1:1 0:2:2 [1x1] 0:3:1",
		"a1 b2":       "16:1:1 0:2:2 16:3:1 0:4:2",
		"a b c d e f": "[6x1] 0:1:1 0:2:1 0:3:1 0:4:1 0:5:1 0:6:1",
	} {
		var list []*step
		for _, text := range strings.Fields(steps) {
			each := new(step)
			for _, c := range text {
				if c == '!' {
					each.ops[len(each.ops)-1].Cost = 2
					continue
				}
				op := core.Op{Rule: "r", Key: strings.ToLower(string(c)), Limit: second, Cost: 1}
				if c < 'A' {
					op.Limit = uneven
				} else if c < 'a' {
					op.Limit = minute
				}
				each.ops = append(each.ops, op)
			}
			list = append(list, each)
		}

		_, args := s.wire.callMany(list)
		code := args[leadingArgs+args[2].(int)+1].([]byte)
		if got := listing(code); got != want {
			t.Errorf("%s is %s, not %s", steps, got, want)
		}
	}
}

// The number of steps takes more than a byte.
func TestRowOfManySteps(t *testing.T) {
	s := MustNew(redis.NewClient(&redis.Options{}), Options{})
	defer s.client.Close()
	l := limit(t, "5/1s")

	// As many steps as no row of one byte, or of two, could count.
	list := make([]*step, 70_000)
	for i := range list {
		list[i] = &step{ops: []core.Op{{Rule: "r", Key: fmt.Sprint(i), Limit: l, Cost: 1}}}
	}

	_, args := s.wire.callMany(list)
	got := listing(args[leadingArgs+args[2].(int)+1].([]byte))
	if begin, end := "[70000x1] 0:1:1 0:2:1 ", " 0:70000:1"; !strings.HasPrefix(got, begin) ||
		!strings.HasSuffix(got, end) {
		t.Errorf("the program is %.40s ... %s", got, got[len(got)-20:])
	}
}

func TestReplyShapeIsChecked(t *testing.T) {
	for _, ints := range [][]int64{nil, {1}, {1, 1}, {1, 1, 4, 4}, {1, 1, 5}, {1, 1, 6}, {1, 1, 5, 2, 1},
		{1, 1, 7, 1}, {1, -1, 0}} {
		if s := blank(1); decode(s, ints) == nil {
			t.Errorf("%v was read as %+v", ints, s[0].out[0])
		}
	}
}

func TestReplyDecisionsAreReadAsWritten(t *testing.T) {
	us := time.Microsecond

	// The third number has the time until the key is fresh, times four, and in two bits the
	// kind of answer.
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

	// With UpTo each answer has one number more, of what was taken. A reply without it is too
	// short.
	for _, row := range []struct {
		ints []int64
		want core.Decision
	}{
		{[]int64{7, 3, 20, 6}, core.Decision{Allowed: true, Taken: 6, Remaining: 3, ResetAfter: 5 * us, At: 7}},
		{[]int64{7, 0, 22, 2, 0}, core.Decision{RetryAfter: 2 * us, ResetAfter: 5 * us, At: 7}},
	} {
		s := blank(1)
		s[0].ops[0].UpTo, s[0].ops[0].Cost = true, 9
		if err := decode(s, row.ints); err != nil || s[0].err != nil || s[0].out[0] != row.want {
			t.Errorf("UpTo, %v: %+v, %v, %v", row.ints, s[0].out[0], s[0].err, err)
		}

		if last := len(row.ints) - 1; decode(s, row.ints[:last]) == nil {
			t.Errorf("UpTo, %v was read as %+v", row.ints[:last], s[0].out[0])
		}
	}

	// A negative number of remaining units says that the state could not be read.
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
