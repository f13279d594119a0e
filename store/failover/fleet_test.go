package failover

import (
	"cmp"
	"context"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediscall"
	"github.com/headgate/headgate/internal/test/redistest"
)

// book does what the script of a heartbeat does.
type book struct {
	until map[string]time.Time // the instant at which an instance expires
	parts map[string]int64     // the least number by which it may be dividing
}

func newBook() *book { return &book{until: map[string]time.Time{}, parts: map[string]int64{}} }

func (b *book) beat(now time.Time, id string, ttl time.Duration, used, least int64) []int64 {
	// The script of the heartbeat in Go: members whose time is over go first, with their parts.
	for member, until := range b.until {
		if !until.After(now) || ttl == 0 && member == id {
			delete(b.until, member)
			delete(b.parts, member)
		}
	}
	if ttl == 0 {
		return []int64{int64(len(b.until)), UnknownInstances}
	}

	_, known := b.until[id]
	b.until[id] = now.Add(ttl)
	live := int64(len(b.until))
	number := min(max(live, least), UnknownInstances)
	if !known || number < used {
		number = max(number, b.left(id, live))
		if known {
			number = min(number, used)
		}
	}
	b.parts[id] = min(number, used)
	return []int64{live, number}
}

// left returns the number that the others leave.
func (b *book) left(id string, live int64) int64 {
	type entry struct {
		id string
		by int64
	}

	// The largest parts come first; equal ones in an order that does not depend on the map.
	var list []entry
	for member, by := range b.parts {
		list = append(list, entry{member, by})
	}
	slices.SortFunc(list, func(x, y entry) int { return cmp.Or(cmp.Compare(x.by, y.by), cmp.Compare(y.id, x.id)) })

	// Beyond some entries the others are reckoned to be as large as the last one read, which can
	// only be too much.
	const some = 64
	full := len(list) > some
	list = list[:min(len(list), some+1)]

	taken, part, others := 0.0, 0.0, live-1
	for _, e := range list {
		if e.id == id {
			continue
		}
		part = 0
		if e.by < UnknownInstances {
			part = 1 / float64(e.by)
		}
		taken, others = taken+part, others-1
	}
	if full {
		taken += float64(others) * part
	}

	// What the others leave is the part, rounded so that it never becomes more.
	if rest := 1 - taken; rest*UnknownInstances > 1 {
		return int64(math.Ceil(1 / rest * (1 - 1e-9)))
	}
	return UnknownInstances
}

// heart is as much of a Redis as instances need.
type heart struct {
	mu     sync.Mutex
	frozen bool // calls end with their contexts, and do nothing
	books  map[string]*book
	beats  int
}

func newHeart() *heart { return &heart{books: map[string]*book{}} }

// process carries out a heartbeat.
func (h *heart) process(ctx context.Context, cmd redis.Cmder) error {
	// A frozen Redis does not answer before the caller gives up.
	h.mu.Lock()
	frozen := h.frozen
	h.mu.Unlock()
	if frozen {
		<-ctx.Done()
		return ctx.Err()
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	h.beats++
	args := cmd.Args()

	// The arguments are those of the script: the key, who beats, for how long, and the two numbers.
	key, id, ttl := args[3].(string), args[5].(string), time.Duration(args[6].(int64))*ms
	if h.books[key] == nil {
		h.books[key] = newBook()
	}
	reply := h.books[key].beat(time.Now(), id, ttl, args[7].(int64), args[8].(int64))
	cmd.(rediscall.Ints).SetVal(reply)
	return nil
}

func (h *heart) set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

func (h *heart) freeze(frozen bool) { h.set(func() { h.frozen = frozen }) }

// empty forgets all instances, as a Redis that restarts.
func (h *heart) empty() { h.set(func() { h.books = map[string]*book{} }) }

func (h *heart) count(key string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.books[key].until)
}

// line is the connection of one instance to Redis.
type line struct {
	redis.UniversalClient
	heart *heart

	mu       sync.Mutex
	cut      bool      // calls fail
	mute     bool      // calls are carried out and fail
	answered time.Time // the latest answer; zero if there is none since Redis was emptied
}

func (l *line) Process(ctx context.Context, cmd redis.Cmder) error {
	// A line that is cut loses the heartbeat, and one that is mute only its answer.
	l.mu.Lock()
	cut := l.cut
	l.mu.Unlock()
	if cut {
		return errDown
	}
	if err := l.heart.process(ctx, cmd); err != nil {
		return err
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mute {
		return errDown
	}
	l.answered = time.Now()
	return nil
}

func (l *line) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

// counted reports whether Redis has answered within the TTL.
func (l *line) counted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.answered) < DefaultInstancesTTL
}

// fleet is some instances of a program under one Redis.
type fleet struct {
	t     *testing.T
	heart *heart
	lines []*line
	all   []*Instances
}

func newFleet(t *testing.T, n int) *fleet {
	f := &fleet{t: t, heart: newHeart()}
	for range n {
		f.add(InstancesOptions{})
	}
	f.pass(20 * time.Second)
	return f
}

func (f *fleet) add(o InstancesOptions) {
	l := &line{heart: f.heart}
	f.lines, f.all = append(f.lines, l), append(f.all, begin(f.t, l, o))
}

// leave ends an instance.
func (f *fleet) leave(n int) {
	f.all[n].Close()
	f.lines, f.all = slices.Delete(f.lines, n, n+1), slices.Delete(f.all, n, n+1)
}

// pass lets d pass and checks all the time that the parts are at most the whole.
func (f *fleet) pass(d time.Duration) {
	f.t.Helper()
	for end := time.Now().Add(d); ; time.Sleep(min(10*ms, d)) {
		synctest.Wait()
		f.check()
		if !time.Now().Before(end) {
			return
		}
	}
}

func (f *fleet) check() {
	f.t.Helper()
	whole := new(big.Rat)
	for n, i := range f.all {
		if f.lines[n].counted() && i.Live() < UnknownInstances {
			whole.Add(whole, big.NewRat(1, int64(i.Live())))
		}
	}
	if whole.Cmp(big.NewRat(1, 1)) > 0 {
		f.t.Fatalf("the instances divide by %v, which is %s of the limit", f.live(), whole)
	}
}

func (f *fleet) live() (list []int) {
	for _, i := range f.all {
		list = append(list, i.Live())
	}
	return list
}

// units is what the instances admit of a limit in an outage.
func (f *fleet) units(text string) (sum int64) {
	l := limit(f.t, text)
	for _, i := range f.all {
		sum += l.Part(int64(i.Live())).Quota
	}
	return sum
}

func (f *fleet) want(what string, live ...int) {
	f.t.Helper()
	if got := f.live(); !slices.Equal(got, live) {
		f.t.Fatalf("%s: %v, want %v", what, got, live)
	}
}

// same returns a list of n equal numbers.
func same(n, by int) []int { return slices.Repeat([]int{by}, n) }

// Redis may go away at any instant of a roll-out: each is checked.
func TestInstancesThatAreAddedShareOneLimit(t *testing.T) {
	for _, adds := range []int{1, 3, 7} {
		for _, gap := range []time.Duration{0, 200 * ms, time.Second} {
			t.Run(strconv.Itoa(adds)+"/"+gap.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFleet(t, 1)
					f.want("alone", 1)
					f.add(InstancesOptions{})
					synctest.Wait()

					// The first instance has the whole until its next heartbeat, so the newcomer
					// has next to nothing.
					f.want("at once", 1, UnknownInstances)
					if got := f.units("1000/1h fixed-window"); got != 1001 {
						t.Errorf("%d units at once", got)
					}

					// The others come all at once, or so far apart that heartbeats lie between
					// them.
					for range adds - 1 {
						f.pass(gap)
						f.add(InstancesOptions{})
					}

					f.pass(DefaultInstancesTTL / 6)
					f.want("a sixth of the TTL later", same(1+adds, 1+adds)...)

					// In the outage everyone keeps the part that it had, and all parts make up one
					// limit.
					f.heart.freeze(true)
					f.pass(time.Minute)
					f.want("in an outage", same(1+adds, 1+adds)...)
					if got := f.units("1000/1h fixed-window"); got != 1000 {
						t.Errorf("%d units in an outage", got)
					}
				})
			})
		}
	}
}

// An instance that takes the place of one that has left has its part at once.
func TestInstancesThatAreReplacedShareOneLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)

		// The one that leaves says so, and its part is free for the next.
		for range 4 {
			f.leave(0)
			f.add(InstancesOptions{})
			synctest.Wait()
			f.want("one is replaced", 4, 4, 4, 4)
			f.pass(700 * ms)
		}

		for range 4 { // the new one comes first
			f.add(InstancesOptions{})
			f.pass(3 * time.Second)
			f.leave(0)
		}

		f.pass(2 * DefaultInstancesTTL)
		f.want("all are replaced", 4, 4, 4, 4)
	})
}

// An instance that dies without Close may be alive, so its part is free after a TTL.
func TestInstancesKeepThePartOfOneThatMayHaveDied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)

		// The one that may have died is only cut off from Redis, and would go on granting all.
		f.lines[0].set(func() { f.lines[0].cut = true })
		f.add(InstancesOptions{})
		f.pass(DefaultInstancesTTL - 2*time.Second)
		f.want("within a TTL", 1, UnknownInstances)

		f.pass(4 * time.Second)
		f.want("after a TTL", 1, 2)
		f.pass(DefaultInstancesTTL + 4*time.Second)
		f.want("after two", 1, 1)

		// It was alive: in its first heartbeat it learns that it has no part any more.
		f.lines[0].set(func() { f.lines[0].cut = false })
		for f.all[0].Live() == 1 {
			f.pass(ms)
		}

		f.want("it lives", UnknownInstances, 1)

		f.pass(DefaultInstancesTTL / 6)
		f.want("it has its part", 2, 2)
	})
}

// An instance that has not heard that there is another keeps its part, and the other waits.
func TestInstancesShareOneLimitWhileRepliesAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		f.lines[0].set(func() { f.lines[0].mute = true })
		f.add(InstancesOptions{})
		f.pass(10 * time.Second)
		f.want("replies are lost", 1, UnknownInstances)
		f.lines[0].set(func() { f.lines[0].mute = false })
		f.pass(DefaultInstancesTTL / 6)
		f.want("they arrive", 2, 2)
	})
}

// A newcomer waits for the heartbeat by which another says that its part is smaller.
func TestInstancesSaySoonThatTheirPartIsSmaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		f.add(InstancesOptions{})
		for f.all[0].Live() == 1 {
			f.pass(ms)
		}
		f.pass(DefaultInstancesTTL / 15 / 8)
		if by := f.heart.books["hg:{instances}"].parts[f.all[0].id]; by != 2 {
			t.Errorf("Redis knows that it divides by %d", by)
		}
	})
}

func TestInstancesShareOneLimitWhenRedisIsRestartedEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)

		// An empty Redis learns the parts from the heartbeats of those that hold them.
		f.heart.empty()
		f.pass(DefaultInstancesTTL / 15)
		f.want("restarted", 3, 3, 3)

		// A newcomer finds all parts taken until they have made room.
		f.add(InstancesOptions{})
		synctest.Wait()
		f.want("one more", 3, 3, 3, UnknownInstances)
		f.pass(5 * time.Second)
		f.want("they know of it", 4, 4, 4, 4)

		// One begins in an outage that outlasts a TTL, and reaches Redis before the others.
		f.heart.freeze(true)
		f.pass(time.Minute)
		f.add(InstancesOptions{})
		f.pass(time.Second)

		// Only the newcomer's line works when Redis is back: it must not take the parts of those
		// that are away.
		for _, l := range f.lines[:4] {
			l.set(func() { l.cut = true })
		}
		f.heart.freeze(false)
		f.pass(DefaultInstancesTTL - 2*time.Second)
		f.want("the others are away", 4, 4, 4, 4, UnknownInstances)

		for _, l := range f.lines[:4] {
			l.set(func() { l.cut = false })
		}
		f.pass(10 * time.Second)
		f.want("they are back", same(5, 5)...)
	})
}

// Each instance is expected to be one of eight.
func TestInstancesUseTheExpectedNumberWhereThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{t: t, heart: newHeart()}
		o := InstancesOptions{Expected: 8}

		// They begin with an eighth each, so there is room for all eight at once.
		for n := range 8 {
			f.add(o)
			synctest.Wait()
			f.want("at the start", same(n+1, 8)...)
		}

		// Seven leave, and one grows into the whole after a TTL.
		for range 7 {
			f.leave(0)
		}
		f.pass(DefaultInstancesTTL - time.Second)
		f.want("within a TTL", 8)
		f.pass(5 * time.Second)
		f.want("after a TTL", 1)

		// Now the newcomer has to wait for room, as if nothing had been expected.
		f.add(o)
		synctest.Wait()
		f.want("no room", 1, UnknownInstances)
		f.pass(5 * time.Second)
		f.want("room", 2, 8)
	})
}

// Instances come, leave and lose Redis; Redis freezes, carries out what it does not answer,
// and forgets. The parts are at most the whole at any time.
func TestInstancesShareOneLimitWhateverHappens(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 37))
				f := newFleet(t, 1+r.IntN(4))

				// After each disturbance time passes, in which the fleet checks the sum of its
				// parts.
				for range 80 {
					f.disturb(r)
					f.pass(time.Duration(r.IntN(1500)) * ms)
				}

				// In the end all is well: three TTLs later each has its equal part.
				f.heart.freeze(false)
				for _, l := range f.lines {
					l.set(func() { l.cut, l.mute = false, false })
				}

				f.pass(3 * DefaultInstancesTTL)
				f.want("when all is well", same(len(f.all), len(f.all))...)
			})
		})
	}
}

func (f *fleet) disturb(r *rand.Rand) {
	// More come than leave, up to a dozen; the other draws are trouble with a line or with Redis,
	// or nothing.
	switch n := r.IntN(len(f.all)); r.IntN(10) {
	case 0, 1, 2:
		if len(f.all) < 12 {
			f.add(InstancesOptions{})
		}
	case 3:
		if len(f.all) > 1 {
			f.leave(n)
		}
	case 4:
		l := f.lines[n]
		l.set(func() { l.cut = !l.cut })
	case 5:
		l := f.lines[n]
		l.set(func() { l.mute = !l.mute })
	case 6:
		f.heart.set(func() { f.heart.frozen = !f.heart.frozen })
	case 7:
		f.heart.empty()
		for _, l := range f.lines {
			l.set(func() { l.answered = time.Time{} })
		}
	}
}

func TestInstancesSendAHeartbeatASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		before := f.heart.beats
		f.pass(DefaultInstancesTTL)
		if n := f.heart.beats - before; n < 15 || n > 20 {
			t.Errorf("%d heartbeats in a TTL", n)
		}
	})
}

// A count rises with the next heartbeat, and falls after a TTL, also after an outage.
func TestInstancesKnowOfEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		others := begin(t, &line{heart: f.heart}, InstancesOptions{Prefix: "others:"})

		f.want("all have begun", 3, 3, 3)

		// An instance leaves while Redis is frozen: Close gives up after a second, and Redis does
		// not hear of it.
		f.heart.freeze(true)
		closed := time.Now()
		f.leave(2)
		if took := time.Since(closed); took != time.Second {
			t.Errorf("Close took %v", took)
		}

		f.pass(time.Hour / 60)
		f.want("in an outage", 3, 3)

		// After the outage the one that left is counted until its TTL is over.
		f.heart.freeze(false)
		f.pass(DefaultInstancesTTL)
		f.want("less than a TTL after it", 3, 3)
		f.pass(5 * time.Second) // a heartbeat that began in the outage, two more, and one to take the part
		f.want("a TTL after it", 2, 2)

		// One that leaves while Redis is well is forgotten there at once; the part follows after a
		// TTL.
		f.leave(1)
		if n := f.heart.count("hg:{instances}"); n != 1 {
			t.Errorf("%d are left after one has left", n)
		}

		f.pass(DefaultInstancesTTL + 4*time.Second)
		f.want("one has left", 1)

		// A fleet under another prefix is another fleet.
		if got := others.Live(); got != 1 {
			t.Errorf("%d of another fleet", got)
		}
	})
}

type sendBeat func(id string, ttl time.Duration, used, least int64) answer

// heartbeats sends them to a real Redis by hand.
func heartbeats(t *testing.T, c *redis.Client, prefix string) sendBeat {
	return func(id string, ttl time.Duration, used, least int64) answer {
		t.Helper()
		i := &Instances{client: c, calls: rediscall.NewCaller(c), prefix: prefix, key: prefix + "{instances}", id: id,
			ttl: time.Hour, count: least}
		i.live.Store(used)
		a, err := i.beatWithin(t.Context(), ttl) // a busy machine has no answer within a second
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
}

// What other tests assume of Redis is what the script does, with few instances and with
// more than it adds up.
func TestInstancesAreCountedByRedis(t *testing.T) {
	t.Parallel()
	c := patiently(t, redistest.Start(t).Addr)
	r := rand.New(rand.NewPCG(1, 2))

	// Five members are added up one by one, and of two hundred only those with the largest parts.
	for _, ids := range []int{5, 200} {
		prefix, b := "hg"+strconv.Itoa(ids)+":", newBook()
		beat := heartbeats(t, c, prefix)
		all := int64(ids)
		numbers := []int64{all / 2, all, 2 * all, 3 * all, 1, UnknownInstances}

		for n := range 1500 {
			// Now and then one leaves.
			ttl := time.Hour
			if r.IntN(ids) == 0 {
				ttl = 0
			}
			// In the large fleet none divides by 1, so that some are left a part.
			id, used, least := strconv.Itoa(r.IntN(ids)), numbers[r.IntN(4)], numbers[r.IntN(6)]
			if r.IntN(4) == 0 && ids < 10 {
				used = numbers[r.IntN(6)]
			}

			got := beat(id, ttl, used, least)
			want := b.beat(time.Now(), id, ttl, used, least)
			if got.count != max(1, want[0]) || got.number != want[1] {
				t.Fatalf("%d: %s uses %d and wants %d: %v, want %v", n, id, used, least, got, want)
			}
		}
	}

	everyKeyExpires(t, c)
}

func TestInstancesForgetThoseWhoseTimeIsOver(t *testing.T) {
	t.Parallel()
	c := patiently(t, redistest.Start(t).Addr)
	beat := heartbeats(t, c, "hg:")

	// An entry that Redis has kept beyond its time, in both keys.
	over := redis.Z{Score: 1, Member: "one whose time is over"}
	if err := c.ZAdd(t.Context(), "hg:{instances}", over).Err(); err != nil {
		t.Fatal(err)
	}
	part := redis.Z{Score: -2, Member: over.Member}
	if err := c.ZAdd(t.Context(), "hg:{instances}:parts", part).Err(); err != nil {
		t.Fatal(err)
	}

	// The newcomer is alone, as the entry no longer counts, neither in number nor in parts.
	if got := beat("a", time.Hour, UnknownInstances, 1); got != (answer{1, 1}) {
		t.Errorf("%v", got)
	}

	if got := beat("b", time.Hour, UnknownInstances, 1); got != (answer{2, UnknownInstances}) {
		t.Errorf("%v", got)
	}
}

// Versions that know the first key alone add instances to it, and forget them.
func TestInstancesCountThoseOfOlderVersions(t *testing.T) {
	t.Parallel()
	c := patiently(t, redistest.Start(t).Addr)
	beat := heartbeats(t, c, "hg:")

	// An older version has written the first key and knows nothing of parts.
	old := redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: "old"}
	if err := c.ZAdd(t.Context(), "hg:{instances}", old).Err(); err != nil {
		t.Fatal(err)
	}

	// Its part is reckoned as an equal one.
	if got := beat("a", time.Hour, UnknownInstances, 1); got != (answer{2, 2}) {
		t.Errorf("beside an older version: %v", got)
	}
	if got := beat("b", time.Hour, UnknownInstances, 1); got != (answer{3, 3}) {
		t.Errorf("one more: %v", got)
	}

	// It forgets members without their parts, which must not remain taken.
	if err := c.ZRem(t.Context(), "hg:{instances}", "a", "old").Err(); err != nil {
		t.Fatal(err)
	}
	if got := beat("b", time.Hour, UnknownInstances, 1); got != (answer{1, 1}) {
		t.Errorf("after the older version has forgotten one: %v", got)
	}
}
