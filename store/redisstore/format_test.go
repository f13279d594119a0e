package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/store/storetest"
)

// formatOne lists what docs/internals.md says that a key holds, at storetest.Epoch. A change
// of these values is a new format.
var formatOne = []struct {
	limit, kind string
	ops         []core.Op
	want        string
}{
	{"10/1h", "units", one(3), packed(3, float64(storetest.Epoch), "360000000 1 10")},
	{"10/1h debt=5", "a debt", []core.Op{{Cost: 10}, {Verb: core.Debit, Cost: 2}},
		packed(12, float64(storetest.Epoch), "360000000 1 10 2 0")},
	{"10/1h", "a booking", []core.Op{{Cost: 10}, {Cost: 1, MaxWait: time.Hour}},
		packed(11, float64(storetest.Epoch), "360000000 1 10 1 1728000360000000")},
	{"10/1h fixed-window", "units", one(3), "3 1728003600000000 3600000000 0"},
	{"10/1h fixed-window aligned", "units", one(3), "3 1728003600000000 3600000000 1"},
	{"10/1h sliding-log", "units", one(2), seven(3600e6) + strings.Repeat(seven(storetest.Epoch+3600e6), 2)},
	{"10/1h sliding-window", "units", one(3), "360000000 4800000 3"},
	{"12/1h sliding-window segments=60", "units under two limits",
		[]core.Op{{Cost: 3, Limit: core.MustParseLimit("9/1h sliding-window")}, {Cost: 2}},
		"60000000/60 28800000 2;360000000 4800000 3"},
	{"10/1h token-bucket", "units", one(3), "3 1728000000000000 3600000000 10 10"},
	{"10/1h token-bucket debt=5", "a debt", []core.Op{{Cost: 10}, {Verb: core.Debit, Cost: 2}},
		"10 1728000000000000 3600000000 10 10 2"},
	{"10/year", "units", one(3), "3 1704067200000000 1735689600000000"},
	{"10 concurrent ttl=1h", "a lease", []core.Op{{Cost: 1, Lease: "a"}},
		seven(3600e6) + seven(storetest.Epoch+3600e6) + leaseID("a")},
	{"10/1h fixed-window", "void takes", []core.Op{{Cost: 3}, {Verb: core.Reset}},
		"v1728000000000000 1728003600000000;"},
	{"10/1h fixed-window", "void takes and units", []core.Op{{Cost: 3}, {Verb: core.Reset}, {Cost: 3}},
		"v1727999999999999 1728003600000000;3 1728003600000000 3600000000 0"},
	{"1/1h fixed-window", "a strike", []core.Op{{Cost: 1, Ban: hour}, {Cost: 1, Ban: hour}},
		"b" + seven(1) + seven(storetest.Epoch+3600e6) + seven(0) + seven(0) + "1 1728003600000000 3600000000 0"},
	{"1/1h fixed-window", "a ban", []core.Op{{Verb: core.Impose, Ban: hour}},
		"b" + seven(0) + seven(storetest.Epoch+3600e6) + seven(3600e6) + seven(storetest.Epoch+2*3600e6)},
}

// seven returns a number in seven bytes, the most significant first.
func seven(n int64) string { return string(binary.BigEndian.AppendUint64(nil, uint64(n))[1:]) }

func one(cost int64) []core.Op { return []core.Op{{Cost: cost}} }

// hour is a ban of an hour after two refusals.
var hour = &core.Ban{Strikes: 2, Within: time.Hour, For: time.Hour, Max: time.Hour}

func TestKeysHoldWhatFormatOneSays(t *testing.T) {
	t.Parallel()
	c := connect(t, redistest.Addr(t))
	for _, row := range formatOne {
		s := MustNew(c, Options{Prefix: redistest.Prefix(t), Timeout: patient, Clock: storetest.NewClock().Now})
		for _, op := range row.ops {
			op.Rule, op.Key = "r", "k"
			if op.Limit == (core.Limit{}) {
				op.Limit = limit(t, row.limit)
			}
			apply(t, s, op)

			// Each state on the way is readable for this format, not only the last one.
			if got := c.Get(t.Context(), keyOf(s, &op)).Val(); laterFormat(got) != nil {
				t.Errorf("%s: %q is of a later format", row.limit, got)
			}
		}

		op := core.Op{Rule: "r", Key: "k", Limit: limit(t, row.limit)}
		if got := c.Get(t.Context(), keyOf(s, &op)).Val(); got != row.want {
			t.Errorf("%s, %s:\n%q, want\n%q", row.limit, row.kind, got, row.want)
		}
	}
}

// The pages show the values that are text, and the error as an operator sees it.
func TestPagesShowFormatOne(t *testing.T) {
	page, upgrades := readPage(t, "internals"), readPage(t, "upgrades")

	// The page has the text forms; those in bytes are described and not shown.
	for _, row := range formatOne {
		shown := strings.HasPrefix(row.want, "3 ") || strings.HasPrefix(row.want, "360")
		if shown && !strings.HasSuffix(row.limit, " aligned") && !strings.Contains(page, "`"+row.want+"`") {
			t.Errorf("%s: the page does not show %q", row.limit, row.want)
		}
	}

	if said := fmt.Sprintf("redisstore: rule \"login\": %v\n", formatError(3)); !strings.Contains(upgrades, said) {
		t.Errorf("the page does not show %q", said)
	}

	// Every algorithm has its letter in the table of keys.
	for a := range core.CalendarWindow + 1 {
		if !strings.Contains(page, "\n| "+a.Letter()+" |") {
			t.Errorf("the page has no row of %s", a)
		}
	}
}

// readPage returns the text of a page of docs.
func readPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + name + ".md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// laterStates are values of later formats. Each would be a state of some algorithm if its
// first two bytes were others.
func laterStates() []string {
	return []string{
		"\xfe\x03",
		"\xfe\x03 units",
		"\xfe\x03" + strings.Repeat("\x00", 5),
		"\xfe\x03" + strings.Repeat("\x00", 7+23-2),
		"\xfe\xff" + packed(1, float64(storetest.Epoch), "360000000 1 10")[2:],
		"\xfe\x03" + packed(1, float64(storetest.Epoch), "360000000 1 10")[2:],
	}
}

// everyVerb has an operation of each verb, and takes of each kind.
var everyVerb = []core.Op{
	{Cost: 1}, {Cost: 2}, {Cost: 2, UpTo: true}, {Cost: 1, Soft: true}, {Cost: 1, MaxWait: time.Minute},
	{Verb: core.Peek, Cost: 1}, {Verb: core.Peek},
	{Verb: core.Refund, Cost: 1, At: storetest.Epoch}, {Verb: core.Reset}, {Verb: core.Debit, Cost: 1},
	{Verb: core.Lift}, {Verb: core.Impose},
	{Verb: core.Grant, Cost: 1, CreditUntil: storetest.Epoch + 1}, {Verb: core.Revoke},
}

// meeting is a store that meets states of later formats.
type meeting struct {
	t   *testing.T
	c   *redis.Client
	s   *Store
	op  core.Op
	key string
}

// put gives the key a value, without a time to live or with a long one.
func (m *meeting) put(state string, left time.Duration) {
	m.t.Helper()
	if err := m.c.Set(m.t.Context(), m.key, state, left).Err(); err != nil {
		m.t.Fatal(err)
	}
}

// unread checks the error of a step, and that the value is as it was put.
func (m *meeting) unread(how, state string, left time.Duration, err error) {
	m.t.Helper()
	want := fmt.Sprintf("redisstore: rule %q: state of a later format: "+
		"it is of format %d, and this version reads up to format 2", "r", state[1])
	if !errors.Is(err, ErrFormat) || err.Error() != want {
		m.t.Errorf("%s, %+v meets %q: %v", how, m.op, state, err)
	}
	text, now := m.c.Get(m.t.Context(), m.key).Val(), m.c.PTTL(m.t.Context(), m.key).Val()
	if text != state || left == 0 && now != -1 || left != 0 && now <= left/2 {
		m.t.Errorf("%s, %+v has made of %q, which lives for %v: %q for %v", how, m.op, state, left, text, now)
	}
}

// meet has the operation meet a state alone, in a step with one that could be granted, and
// in a call with a step that is.
func (m *meeting) meet(state string, left time.Duration) {
	m.t.Helper()
	ctx := m.t.Context()

	m.put(state, left)
	err := m.s.Apply(ctx, []core.Op{m.op}, make([]core.Decision, 1))
	m.unread("alone", state, left, err)

	beside := core.Op{Rule: "beside", Key: "k", Limit: core.MustParseLimit("10/1h"), Cost: 1}
	err = m.s.Apply(ctx, []core.Op{beside, m.op}, make([]core.Decision, 2))
	m.unread("in a step", state, left, err)
	if n := m.c.Exists(ctx, keyOf(m.s, &beside)).Val(); n != 0 {
		m.t.Errorf("%+v: the other rule of the step was charged", m.op)
	}

	other := m.op

	// The state is the first of a call, the second is good, and the third meets the state again.
	other.Key = "other"
	m.c.Del(ctx, keyOf(m.s, &other))
	steps := []*step{
		newStep([]core.Op{m.op}), newStep([]core.Op{other}), newStep([]core.Op{m.op, beside}),
		newStep([]core.Op{beside}),
	}
	if err := m.s.dispatcher.decideTogether(ctx, steps); err != nil {
		m.t.Fatal(err)
	}

	m.unread("first of a call", state, left, steps[0].err)
	m.unread("in a later step of a call", state, left, steps[2].err)
	if steps[1].err != nil || !steps[1].out[0].Allowed {
		m.t.Errorf("%+v: the next step of the call: %+v, %v", m.op, steps[1].out, steps[1].err)
	}

	// The step that was not decided has left the other rule's unit for the last.
	if steps[3].err != nil || steps[3].out[0].Remaining != 9 {
		m.t.Errorf("%+v: the last step of the call: %+v, %v", m.op, steps[3].out, steps[3].err)
	}
	m.c.Del(ctx, keyOf(m.s, &beside))
}

// No verb changes a state of a later format, takes it for a fresh key or has it expire, and
// the other steps of a call are decided.
func TestStateOfALaterFormatIsAnErrorAndStays(t *testing.T) {
	t.Parallel()
	servers := map[string]string{"redis": redistest.Addr(t), "miniredis": mini(t).Addr()}
	for name, addr := range servers {
		for _, text := range everyAlgorithm {
			t.Run(name+" "+text, func(t *testing.T) {
				t.Parallel()

				// A verb that an algorithm has not is skipped, so the verbs that were met are
				// counted.
				met := map[core.Verb]int{}
				for _, op := range everyVerb {
					meetAll(t, addr, text, op, met)
				}

				want, l := 9, limit(t, text)
				if l.Leased() {
					want = 5 // leases have no debits, no bans and no credit
				} else if l.Algorithm == core.SlidingLog {
					want = 8 // a log has no debits
				}

				if len(met) != want {
					t.Errorf("verbs that met a state: %v, want %d", met, want)
				}
			})
		}
	}
}

// meetAll has an operation under a limit meet each state, with and without a ban.
func meetAll(t *testing.T, addr, text string, op core.Op, met map[core.Verb]int) {
	c := connect(t, addr)
	for _, ban := range []*core.Ban{nil, hour} {
		s := MustNew(c, Options{Prefix: redistest.Prefix(t), Timeout: patient, Clock: storetest.NewClock().Now})
		op.Rule, op.Key, op.Lease, op.Limit, op.Ban = "r", "k", "a", limit(t, text), ban
		ops := inWindows(s, op)
		if core.CheckOps(ops, make([]core.Decision, 1)) != nil {
			continue
		}

		met[op.Verb]++
		m := &meeting{t, c, s, ops[0], keyOf(s, &op)}

		// Half of the states have no time to live, and none may get one.
		for i, state := range laterStates() {
			m.meet(state, time.Duration(i%2)*time.Hour)
		}
	}
}

// A list of bans that would lack one is an error.
func TestBansInALaterFormatAreNotListed(t *testing.T) {
	t.Parallel()
	now := storetest.Epoch
	o := Options{Prefix: redistest.Prefix(t), Timeout: patient, Clock: func() int64 { return now }}
	s := MustNew(connect(t, redistest.Addr(t)), o)
	banning(t, s, s.wire.clock)("r", "k", time.Minute)
	op := core.Op{Rule: "r", Key: "k", Limit: limit(t, "1/1s")}
	s.client.Set(t.Context(), keyOf(s, &op), "\xfe\x03", 0)
	_, err := s.Report().Bans(context.Background(), []string{"r"}, 10)
	if !errors.Is(err, ErrFormat) || !strings.HasPrefix(err.Error(), `redisstore: list bans: rule "r": `) {
		t.Errorf("error %v", err)
	}
}

// What begins with the mark and has no later number was written by another program.
func TestMarkWithoutALaterFormatIsUnreadable(t *testing.T) {
	t.Parallel()
	s, c := fresh(t, redistest.Addr(t), Options{})
	op := core.Op{Rule: "r", Key: "k", Limit: limit(t, "10/1h"), Cost: 1}

	// No second byte, a number of the present or an earlier format, and other marks.
	for _, state := range []string{"\xfe", "\xfe\x00", "\xfe\x01", "\xff\x02", "\xfd\x02", "\xfe\x02\x01"} {
		for n := range 2 {
			c.Set(t.Context(), keyOf(s, &op), state, 0)

			ops := slices.Repeat([]core.Op{op}, n+1)
			err := s.Apply(t.Context(), ops, make([]core.Decision, n+1))
			left := c.PTTL(t.Context(), keyOf(s, &op)).Val()

			// Unlike a later format, rubbish expires, so that the key recovers.
			if !errors.Is(err, ErrUnreadable) || left <= 0 || left > time.Minute {
				t.Errorf("%q, %d operations: %v, and lives for %v", state, n+1, err, left)
			}
		}
	}
}

func TestLaterFormatIsTheNextOne(t *testing.T) {
	for state, want := range map[string]bool{
		"": false, "\xfe": false, "\xfe\x01": false, "\xfe\x02": false, "\xfe\x03": true, "\xfe\xff": true, "\xff\x02": false,
		"b\x02": false,
	} {
		if got := laterFormat(state) != nil; got != want {
			t.Errorf("%q: %t", state, got)
		}
	}
	if lua.Format != 2 {
		t.Error("the test, docs/internals.md and docs/upgrades.md are about formats up to 2")
	}
}
