package waitline_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/waitline"
)

func TestQueueBoundsWhoWaits(t *testing.T) {
	var q waitline.Queue
	q.Init(3, 2)
	// Three may wait in all, and two of one key. The third of a is refused though the queue has a
	// place.
	a, b, c := waitline.Key{Rule: "r", Key: "a"}, waitline.Key{Rule: "r", Key: "b"}, waitline.Key{Rule: "r", Key: "c"}
	rows := []struct {
		k    waitline.Key
		want error
	}{{a, nil}, {a, nil}, {a, waitline.ErrFull}, {b, nil}, {c, waitline.ErrFull}}
	for i, row := range rows {
		if err := q.Enter(row.k); err != row.want {
			t.Errorf("request %d: %v, want %v", i, err, row.want)
		}
	}

	q.Exit(a)
	if n := q.Waiting(); n != 2 {
		t.Errorf("%d wait, want 2", n)
	}

	// A drain refuses who comes, and ends when the last of those who wait has left.
	empty := q.Drain(context.Background())
	if err := q.Enter(a); err != waitline.ErrDrained {
		t.Errorf("after the drain: %v", err)
	}
	q.Exit(a)
	select {
	case <-empty:
		t.Error("empty while b waits")
	default:
	}

	// Both are read without a timeout: a channel that stayed open would hold up the test.
	q.Exit(b)
	<-empty
	<-q.Draining()
}

// member is a request under a limit of one unit a second.
type member struct {
	waitline.Turn
	ops    []core.Op
	answer waitline.Answer
}

// join has a request come that the store has refused for a second.
func join(q *waitline.Queue) *member {
	now := time.Now()
	m := &member{Turn: q.Arrive(now), ops: []core.Op{
		{Rule: "r", Key: "k", Cost: 1, Limit: core.MustParseLimit("1/1s")}}}
	m.answer = waitline.Answer{Op: &m.ops[0], Ops: m.ops, Limit: &m.ops[0].Limit, End: now.Add(time.Minute),
		Took: true, AskedAt: now, AnsweredAt: now, Span: time.Second}
	m.tell()
	return m
}

// tell joins the line, or tells it of another answer.
func (m *member) tell() {
	m.Join(&m.answer, func() bool { return false })
}

func (m *member) want(t *testing.T, who string, want waitline.Do) {
	t.Helper()
	if next, _, _ := m.Next(time.Now()); next != want {
		t.Errorf("%s: %d, want %d", who, next, want)
	}
}

func TestOldestAsksWhenItsUnitsCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q waitline.Queue
		q.Init(9, 9)
		// The units of the first come in a second, and those of the second later.
		first := join(&q)
		time.Sleep(time.Millisecond)
		second := join(&q)
		first.want(t, "the first at once", waitline.Sleep)

		// The second slept for the first: it is not its turn until that one has left.
		time.Sleep(time.Second)
		second.want(t, "the second after a second", waitline.Sleep)
		first.want(t, "the first after a second", waitline.Ask)
		first.Leave(true, true)
		second.want(t, "the second at the turn of the first", waitline.Ask)

		// The last one takes the line with it.
		second.Leave(false, true)
		if n := q.Lines(); n != 0 {
			t.Errorf("%d lines are left", n)
		}
	})
}

func TestSlotOfOneWhoLeavesGoesToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q waitline.Queue
		q.Init(9, 9)
		// The millisecond gives the two an order.
		first := join(&q)
		time.Sleep(time.Millisecond)
		second := join(&q)

		// The first has booked a slot and leaves before its instant.
		time.Sleep(time.Second)
		first.want(t, "the first after a second", waitline.Ask)
		due := time.Now().Add(time.Second / 2)
		slot := &waitline.Slot{Ops: first.ops, Out: make([]core.Decision, 1), Booked: time.Now(), Due: due}
		first.answer.Slot = slot
		first.tell()

		// The slot has a taker, so that nothing is returned to the store.
		if surplus := first.Leave(false, true); len(surplus) != 0 {
			t.Errorf("%d slots are given back", len(surplus))
		}
		if next, until, _ := second.Next(time.Now()); next != waitline.Sleep || !until.Equal(due) {
			t.Errorf("the second: %d until %s, want the instant of the slot", next, until)
		}

		// It is used without another call of the store.
		time.Sleep(time.Second / 2)
		if next, _, used := second.Next(time.Now()); next != waitline.UseSlot || used != slot {
			t.Errorf("at the instant of the slot: %d", next)
		}
		second.Leave(true, true)
	})
}

func TestSlotThatNobodyWantsIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q waitline.Queue
		q.Init(9, 9)
		// A line of one: no other could use the slot.
		only := join(&q)
		time.Sleep(time.Second)
		only.want(t, "after a second", waitline.Ask)
		only.answer.Slot = &waitline.Slot{Ops: only.ops, Out: make([]core.Decision, 1), Due: time.Now().Add(time.Hour)}
		only.tell()

		// The caller returns the slot to the store.
		surplus := only.Leave(false, true)
		if len(surplus) != 1 || surplus[0] != only.answer.Slot {
			t.Fatalf("%d slots are given back, want 1", len(surplus))
		}

		// Meanwhile no request came, and the line is gone with the last.
		if more := q.Canceled(only.Key(), surplus); len(more) != 0 || q.Lines() != 0 {
			t.Errorf("%d more slots, and %d lines are left", len(more), q.Lines())
		}
	})
}
