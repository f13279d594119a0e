package main

import (
	"fmt"
	"hash/maphash"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/limiter"
)

// A floor is a contender written by hand that does the least that an exact limiter has to do for a
// row of headgate: it bounds what a limiter can reach. It has the name that floorOf returns.

const floorsNote = "A floor is written by hand: the ratio of the least that an exact limiter has to do for its row " +
	"to the same rival, in the same turns. It keeps none of the promises of a limiter (no rules, no errors, no " +
	"memory given back, no refunds), so it is no limiter to use."

// floorOf is the name of the floor of a row.
func floorOf(row string) string { return "floor of " + row }

var memoryFloors = []memoryPeer{
	{name: floorOf(ours), open: openFloor},
	{name: floorOf(oursAllow), open: openFloor},
	{name: floorOf(oursTwice), open: openFloorTwice},
}

// httpFloors are by contest, and answer as the rows do that they are named after.
var httpFloors = map[string][]httpPeer{
	"Gin, headers":     {{floorOf(ours), ginApp(ginFloor)}},
	"Echo, no headers": {{floorOf(ours), echoApp(echoFloor)}},
	"Fiber, headers": {
		{floorOf(ours), fiberApp(fiberFloor(limiter.XRateLimit|limiter.Draft8, false))},
		{floorOf(oursX), fiberApp(fiberFloor(limiter.XRateLimitDelta, false))},
	},
	"Fiber, short refusals": {{floorOf(oursShort), fiberApp(fiberFloor(limiter.NoHeaders, true))}},
}

// places is how many keys of a floor are found at once. Any others are in a map beside them.
const places = 1 << 17

// index finds the states of keys, without locks.
type index[S any] struct {
	places [places]place[S]
	seed   maphash.Seed
	rest   sync.Map // of *S by key
}

// place has the state of a key, with the text of the key beside it. A key of GCRA takes half a
// cache line.
type place[S any] struct {
	state S
	size  atomic.Uint32 // 0 in a free place, and then taken, before it is 1 more than the text is long
	text  [20]byte
}

const taken = 1 << 31

// of returns the state of the key, which is looked for from the place of its hash on, as far as the
// first one that is free.
func (i *index[S]) of(key string) *S {
	first := maphash.String(i.seed, key)
	for n := range uint64(places) {
		p := &i.places[(first+n)%places]
		if len(key) > len(p.text) {
			break
		}

		// The text of a new key is written once, and others wait for it.
		size := p.size.Load()
		for ; size == 0 || size == taken; size = p.size.Load() {
			if size == 0 && p.size.CompareAndSwap(0, taken) {
				p.size.Store(uint32(copy(p.text[:], key)) + 1)
			}
		}
		if string(p.text[:size-1]) == key {
			return &p.state
		}
	}

	s, _ := i.rest.LoadOrStore(key, new(S))
	return s.(*S)
}

// floor counts the units of keys by GCRA, in nanoseconds since begin. It decides without locks.
type floor struct {
	keys           index[atomic.Int64] // when a key has its whole burst again
	interval, most int64               // of a unit, and of the burst
	limit, policy  []byte
	begin          time.Time
}

func newFloor(q quota) *floor {
	interval := q.period.Nanoseconds() / int64(q.units)
	return &floor{
		keys:     index[atomic.Int64]{seed: maphash.MakeSeed()},
		interval: interval,
		most:     interval * int64(q.burst),
		limit:    fmt.Append(nil, q.burst),
		policy:   fmt.Appendf(nil, `"api";q=%d;w=%.0f`, q.units, q.period.Seconds()),
		begin:    time.Now(),
	}
}

// verdict is what a floor decides: at is when the key has its whole burst again.
type verdict struct {
	now, at int64
	ok      bool
}

// take takes a unit of the key.
func (f *floor) take(key string) verdict {
	// The clock waits for all that was read before it, so it comes first.
	now := int64(time.Since(f.begin))
	s := f.keys.of(key)
	for {
		at := s.Load()
		v := f.decide(at, now)
		if !v.ok || s.CompareAndSwap(at, v.at) {
			return v
		}
	}
}

// decide decides about a unit of a key whose burst is whole at that time.
func (f *floor) decide(at, now int64) verdict {
	next := max(at, now) + f.interval
	if next-now > f.most {
		return verdict{now, at, false}
	}
	return verdict{now, next, true}
}

// held is in place of the count of a key while it is decided together with another.
const held = -1

// hold returns the count, which no other has until it is stored again.
func hold(count *atomic.Int64) int64 {
	for {
		if at := count.Swap(held); at != held {
			return at
		}
		runtime.Gosched()
	}
}

// takeWith takes a unit of a key and one of a key of another floor, or none of either. All hold the
// counts in the same order.
func (f *floor) takeWith(key string, g *floor, other string) bool {
	now := int64(time.Since(f.begin))
	s, t := f.keys.of(key), g.keys.of(other)
	sAt, tAt := hold(s), hold(t)

	a, b := f.decide(sAt, now), g.decide(tAt, now)
	if a.ok && b.ok {
		sAt, tAt = a.at, b.at
	}

	t.Store(tAt)
	s.Store(sAt)
	return a.ok && b.ok
}

func openFloor(q quota) (func() take, error) {
	f := newFloor(q)
	return shared(func(key string) bool { return f.take(key).ok })
}

func openFloorTwice(q quota) (func() take, error) {
	f, g := newFloor(q), newFloor(q)
	g.begin = f.begin
	return shared(func(key string) bool { return f.takeWith(key, g, key) })
}

// seconds are whole ones, rounded up.
func seconds(ns int64) int64 { return (ns + 1e9 - 1) / 1e9 }

// retry returns the seconds until a unit that was refused is there.
func (f *floor) retry(v verdict) int64 { return seconds(v.at + f.interval - f.most - v.now) }

// appendFields appends the values of X-RateLimit-Remaining, X-RateLimit-Reset and RateLimit, and
// returns where the first two end.
func (f *floor) appendFields(b []byte, v verdict, style limiter.HeaderStyle) (text []byte, remaining, reset int) {
	left, after := (f.most-(v.at-v.now))/f.interval, seconds(v.at-v.now)
	b = strconv.AppendInt(b, left, 10)
	remaining = len(b)

	at := after
	if style&limiter.XRateLimit != 0 {
		at = seconds(f.begin.UnixNano() + v.at)
	}
	b = strconv.AppendInt(b, at, 10)
	reset = len(b)

	if style&limiter.Draft8 != 0 {
		b = strconv.AppendInt(append(b, `"api";r=`...), left, 10)
		b = strconv.AppendInt(append(b, ";t="...), after, 10)
	}
	return b, remaining, reset
}

// appendProblem appends the body of a refusal.
func appendProblem(b []byte, retry int64) []byte {
	b = append(b, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",`+
		`"title":"Request cannot be satisfied as assigned quota has been exceeded",`+
		`"status":429,"detail":"Retry after `...)
	return append(strconv.AppendInt(b, retry, 10), ` seconds.","violated-policies":["api"]}`...)
}

const problemType = "application/problem+json"

// refuse writes a refusal in net/http.
func (f *floor) refuse(w http.ResponseWriter, v verdict) error {
	h, retry := w.Header(), f.retry(v)
	h["Content-Type"] = []string{problemType}
	h["Retry-After"] = []string{strconv.FormatInt(retry, 10)}
	h["Cache-Control"] = []string{"no-store"}
	w.WriteHeader(http.StatusTooManyRequests)
	_, err := w.Write(appendProblem(nil, retry))
	return err
}

func echoFloor(q quota) (echo.MiddlewareFunc, error) {
	f := newFloor(q)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if v := f.take(c.RealIP()); !v.ok {
				return f.refuse(c.Response(), v)
			}
			return next(c)
		}
	}, nil
}

func ginFloor(q quota) (gin.HandlerFunc, error) {
	f := newFloor(q)
	limit, policy := []string{string(f.limit)}, []string{string(f.policy)}
	return func(c *gin.Context) {
		v := f.take(c.RemoteIP())

		// The values of a request and their text are one allocation.
		kept := new(struct {
			values [3]string
			text   [96]byte
		})
		b, remaining, reset := f.appendFields(kept.text[:0], v, limiter.XRateLimit|limiter.Draft8)
		text := unsafe.String(&b[0], len(b))
		kept.values = [3]string{text[:remaining], text[remaining:reset], text[reset:]}

		h := c.Writer.Header()
		h["X-Ratelimit-Limit"], h["Ratelimit-Policy"] = limit, policy
		h["X-Ratelimit-Remaining"] = kept.values[0:1:1]
		h["X-Ratelimit-Reset"] = kept.values[1:2:2]
		h["Ratelimit"] = kept.values[2:3:3]

		if !v.ok {
			c.Abort()
			_ = f.refuse(c.Writer, v)
		}
	}, nil
}

// What fasthttp takes as bytes.
var (
	limitName     = []byte("X-Ratelimit-Limit")
	remainingName = []byte("X-Ratelimit-Remaining")
	resetName     = []byte("X-Ratelimit-Reset")
	policyName    = []byte("Ratelimit-Policy")
	rateName      = []byte("Ratelimit")
	retryName     = []byte("Retry-After")
	cacheName     = []byte("Cache-Control")
	noStore       = []byte("no-store")
	shortText     = []byte("Too Many Requests")
)

// fiberFloor sends headers of the style, and refuses with a problem or in a short text.
func fiberFloor(style limiter.HeaderStyle, short bool) func(quota) (fiber.Handler, error) {
	return func(q quota) (fiber.Handler, error) {
		f := newFloor(q)
		return func(c *fiber.Ctx) error {
			v := f.take(c.IP())
			answer := c.Response()
			h := &answer.Header

			var b [256]byte
			if style != limiter.NoHeaders {
				text, remaining, reset := f.appendFields(b[:0], v, style)
				h.SetCanonical(limitName, f.limit)
				h.SetCanonical(remainingName, text[:remaining])
				h.SetCanonical(resetName, text[remaining:reset])
				if style&limiter.Draft8 != 0 {
					h.SetCanonical(policyName, f.policy)
					h.SetCanonical(rateName, text[reset:])
				}
			}
			if v.ok {
				return c.Next()
			}

			retry := f.retry(v)
			answer.SetStatusCode(http.StatusTooManyRequests)
			h.SetCanonical(retryName, strconv.AppendInt(b[:0], retry, 10))
			h.SetCanonical(cacheName, noStore)
			if short {
				h.SetContentType(fiber.MIMETextPlainCharsetUTF8)
				answer.SetBodyRaw(shortText)
				return nil
			}
			h.SetContentType(problemType)
			answer.SetBody(appendProblem(b[:0], retry))
			return nil
		}, nil
	}
}
