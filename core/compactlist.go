// This file has the arithmetic of limits under which a key is two numbers and a list of bytes. The
// list may have room for more than the key needs, and is zero for a new key.
//
//	limit           used       mark                     list
//	CalendarWindow  its units  the end of the window    a word: the beginning of the window
//	SlidingLog      its units  the place of the oldest  a ring of words: an instant at which
//	                           word, and their number   units end and, below it, how many
//	SlidingWindow   its units  the newest segment, its  a ring of numbers of one width: the
//	                           place, and the width     units of each segment that may count
//	Concurrency     see compactlease.go

package core

import (
	"encoding/binary"
	"slices"
)

// Listed reports whether a key needs a list beside its two numbers.
func (c *Compact) Listed() bool { return c.form >= inCalendar }

// Windowed reports whether an op has to pass [Op.CheckWindows] before one of the methods below
// decides it.
func (c *Compact) Windowed() bool { return c.form == inCalendar }

// TakeListed is Take for a key with a list, to which it charges the units. If the Take is refused
// or ok is false, it has changed only d. ok is also false if the list has no room.
func (c *Compact) TakeListed(used, mark *int64, list []byte, now, n int64, d *Decision) (ok bool) {
	return c.decideListed(used, mark, list, now, n, d, charging)
}

// TryListed is TakeListed without the charge, which the same TakeListed makes.
func (c *Compact) TryListed(used, mark int64, list []byte, now, n int64, d *Decision) (ok bool) {
	return c.decideListed(&used, &mark, list, now, n, d, trying)
}

// PeekListed is TakeListed for a Peek of n units or of none, which needs no room in the list.
func (c *Compact) PeekListed(used, mark int64, list []byte, now, n int64, d *Decision) (ok bool) {
	ok = c.decideListed(&used, &mark, list, now, max(1, n), d, peeking)
	if n == 0 {
		d.Allowed, d.RetryAfter = true, 0
	}
	return ok
}

// intent is what a decision on a list is for.
type intent uint8

const (
	peeking  intent = iota // the answer alone, with the key as it is
	trying                 // the answer to a Take
	charging               // the Take
)

func (c *Compact) decideListed(used, mark *int64, list []byte, now, n int64, d *Decision, in intent) (ok bool) {
	switch c.form {
	case inCalendar:
		return c.takeInWindow(used, *mark, list, now, n, d, in)
	case inLog:
		return c.takeLogged(used, mark, list, now, n, d, in)
	}
	return c.takeSegmented(used, mark, list, now, n, d, in)
}

// UntryListed turns the decision of TryListed on an allowed Take of n units into the decision on
// a Take that did not happen because its step was refused.
func (c *Compact) UntryListed(used, mark int64, list []byte, n int64, d *Decision) {
	d.Taken = 0
	d.Remaining += n
	d.ResetAfter = 0
	if used > 0 {
		_, fresh := c.Span(mark, list)
		d.ResetAfter = max(0, micros(fresh-d.At))
	}
}

// Pack writes a state, of whose Log no entry is empty, to a list, and returns the numbers of the
// key. ok is false if the list has no room for it.
func (c *Compact) Pack(s *State, list []byte) (used, mark int64, ok bool) {
	switch log := s.live(); {
	case c.form == inCalendar:
		return packWindow(s, list)
	case len(log) == 0:
		clear(list)
		return 0, 0, true
	case c.form == inLog:
		return packLog(log, list)
	default:
		return c.packSegments(log, list)
	}
}

// Unpack writes a key to the state, whose Log it uses again. It leaves what no list has.
func (c *Compact) Unpack(used, mark int64, list []byte, s *State) {
	s.Used, s.Mark, s.Log, s.Head = 0, 0, s.Log[:0], 0
	switch {
	case c.form == inCalendar:
		s.Used, s.Mark, s.Slot = used, mark, int64(binary.LittleEndian.Uint64(list))
	case used == 0:
	case c.form == inLog:
		s.Log = unpackLog(ringOf(mark, list), s.Log)
	default:
		s.Log = c.unpackSegments(mark, list, s.Log)
	}
}

// ListSize returns the bytes of a list for the state, with some room for more.
func (c *Compact) ListSize(s *State) int {
	switch c.form {
	case inCalendar:
		return wordSize
	case inLog:
		return c.logSize(len(s.live()))
	}
	return c.sizeOf(widthOf(s.live()))
}

// LongerSize returns the bytes of a longer list for the key of a SlidingLog, of which TakeListed
// has not decided a Take at now, if it has no room for that Take, and otherwise 0.
func (c *Compact) LongerSize(mark int64, list []byte, now int64) int {
	r := ringOf(mark, list)
	if c.form != inLog || r.n == 0 || r.n < len(list)/wordSize || r.at(r.n-1).At >= now+c.every {
		return 0
	}
	return c.logSize(r.n + 1)
}

// MoveLog copies the words of a SlidingLog to a longer list, and returns the mark of the key there.
func (c *Compact) MoveLog(mark int64, list, longer []byte) int64 {
	r := ringOf(mark, list)
	first := list[wordSize*r.first:]
	first = first[:wordSize*min(r.n, len(first)/wordSize)]
	n := copy(longer, first)
	copy(longer[n:], list[:wordSize*r.n-n])
	r.first = 0
	return r.mark()
}

// logSize returns the bytes of a list of n words, with some room for more.
func (c *Compact) logSize(n int) int { return wordSize * max(n, min(n+n/8+1, int(c.capacity))) }

// Span returns an instant that the last Take of a key in use was not before, and the one at which
// the key is fresh.
func (c *Compact) Span(mark int64, list []byte) (began, fresh int64) {
	switch c.form {
	case inCalendar:
		return int64(binary.LittleEndian.Uint64(list)), mark
	case inLeases:
		return mark - c.every, mark
	case inLog:
		r := ringOf(mark, list)
		fresh = r.at(r.n - 1).At
		return fresh - c.every, fresh
	}
	newest, _, _ := splitMark(mark)
	began = newest * c.every
	return began, began + c.every + c.units*c.every
}

func packWindow(s *State, list []byte) (used, mark int64, ok bool) {
	if len(list) < wordSize {
		return 0, 0, false
	}
	binary.LittleEndian.PutUint64(list, uint64(s.Slot))
	return s.Used, s.Mark, true
}

// takeInWindow is decideListed for CalendarWindow. Decide begins a window, because Op.Windows say
// when it ends. A key without units has the end 0.
func (c *Compact) takeInWindow(
	used *int64, end int64, list []byte, now, n int64, d *Decision, in intent,
) (ok bool) {
	held := *used
	if now >= end || now < int64(binary.LittleEndian.Uint64(list)) {
		return false
	}

	*d = Decision{At: now, ResetAfter: micros(end - now)}
	switch {
	case n > c.capacity:
		d.RetryAfter = Never
	case held+n > c.capacity:
		d.RetryAfter = d.ResetAfter
	case in == peeking:
		d.Allowed = true
	default:
		d.Allowed, d.Taken, held = true, n, held+n
		*used = held
	}
	d.Remaining = max(0, c.capacity-held)
	return true
}

// ring are the words of a SlidingLog that count, oldest first.
type ring struct {
	list     []byte
	first, n int
}

const (
	wordSize = 8
	unitBits = 10 // of a word, enough for maxLog
)

func ringOf(mark int64, list []byte) ring {
	return ring{list, int(mark >> 32), int(uint32(mark))}
}

func (r *ring) mark() int64 { return int64(r.first)<<32 | int64(r.n) }

// word returns word i, or the room for it.
func (r *ring) word(i int) []byte {
	i += r.first
	if room := len(r.list) / wordSize; i >= room {
		i -= room
	}
	return r.list[wordSize*i:][:wordSize]
}

func (r *ring) at(i int) Entry { return entryOf(binary.LittleEndian.Uint64(r.word(i))) }

func entryOf(word uint64) Entry {
	return Entry{int64(word) >> unitBits, int64(word & (1<<unitBits - 1))}
}

func (r *ring) set(i int, e Entry) {
	binary.LittleEndian.PutUint64(r.word(i), uint64(e.At<<unitBits|e.N))
}

// drop drops the oldest word.
func (r *ring) drop() {
	r.n--
	if r.first++; r.first == len(r.list)/wordSize {
		r.first = 0
	}
}

func packLog(log []Entry, list []byte) (used, mark int64, ok bool) {
	r := ring{list: list, n: len(log)}
	if r.n > len(list)/wordSize {
		return 0, 0, false
	}
	for i, e := range log {
		r.set(i, e)
		used += e.N
	}
	return used, r.mark(), true
}

func unpackLog(r ring, log []Entry) []Entry {
	log = slices.Grow(log, r.n)
	for range 2 { // up to the end of the ring, and from its beginning
		words := r.list[wordSize*r.first:]
		n := min(r.n, len(words)/wordSize)
		for words = words[:wordSize*n]; len(words) >= wordSize; words = words[wordSize:] {
			log = append(log, entryOf(binary.LittleEndian.Uint64(words)))
		}
		r.first, r.n = 0, r.n-n
	}
	return log
}

// takeLogged is decideListed for SlidingLog.
func (c *Compact) takeLogged(used, mark *int64, list []byte, now, n int64, d *Decision, in intent) (ok bool) {
	r, held := ringOf(*mark, list), *used
	for r.n > 0 {
		oldest := r.at(0)
		if oldest.At > now {
			break
		}
		held -= oldest.N
		r.drop()
	}

	// Units that end later were taken under a longer period, or before the clock was set back.
	end, newest := now+c.every, Entry{At: now}
	if r.n > 0 {
		newest = r.at(r.n - 1)
	}
	if newest.At > end {
		return false
	}

	*d = Decision{At: now}
	switch missing := held + n - c.capacity; {
	case n > c.capacity:
		d.RetryAfter = Never
	case missing > 0:
		i := 0
		for missing -= r.at(0).N; missing > 0; missing -= r.at(i).N {
			i++
		}
		d.RetryAfter = micros(r.at(i).At - now)
	case in == peeking:
		d.Allowed = true
	case newest.At < end && r.n == len(list)/wordSize:
		return false
	default:
		if newest.At < end {
			newest = Entry{At: end}
			r.n++
		}
		newest.N += n
		d.Allowed, d.Taken, held = true, n, held+n
		if in == charging {
			r.set(r.n-1, newest)
			*used, *mark = held, r.mark()
		}
	}
	d.Remaining, d.ResetAfter = max(0, c.capacity-held), micros(newest.At-now)
	return true
}

// The mark of a SlidingWindow is the number of the newest segment, the place of its units in the
// list, and the width of the numbers there: 1, 2, 4 or 8 bytes, as a power of two.
const (
	placeBits = 9 // enough for maxSegments
	widthBits = 2
	maxWidth  = 1<<widthBits - 1
)

func markOf(newest int64, place int, width uint8) int64 {
	return newest<<(placeBits+widthBits) | int64(place)<<widthBits | int64(width)
}

func splitMark(mark int64) (newest int64, place int, width uint8) {
	return mark >> (placeBits + widthBits), int(mark >> widthBits & (1<<placeBits - 1)), uint8(mark & maxWidth)
}

// next returns the place after another: that of the segment after it, and of the oldest segment
// after that of the newest.
func (c *Compact) next(place int) int {
	if place++; place > int(c.units) {
		return 0
	}
	return place
}

// sizeOf returns the bytes of a list of numbers of the width.
func (c *Compact) sizeOf(width uint8) int { return int(c.units+1) << width }

// widthOf returns the width that the units of each entry fit into.
func widthOf(log []Entry) (width uint8) {
	for _, e := range log {
		for !fits(e.N, width) {
			width++
		}
	}
	return width
}

// fits reports whether n units fit into a number.
func fits(n int64, width uint8) bool { return width == maxWidth || n>>(8<<width) == 0 }

// unitsAt returns the number at a place.
func unitsAt(list []byte, width uint8, place int) int64 {
	switch width {
	case 0:
		return int64(list[place])
	case 1:
		return int64(binary.LittleEndian.Uint16(list[2*place:]))
	case 2:
		return int64(binary.LittleEndian.Uint32(list[4*place:]))
	}
	return int64(binary.LittleEndian.Uint64(list[8*place:]))
}

// setUnits sets the number at a place.
func setUnits(list []byte, width uint8, place int, n int64) {
	switch width {
	case 0:
		list[place] = uint8(n)
	case 1:
		binary.LittleEndian.PutUint16(list[2*place:], uint16(n))
	case 2:
		binary.LittleEndian.PutUint32(list[4*place:], uint32(n))
	default:
		binary.LittleEndian.PutUint64(list[8*place:], uint64(n))
	}
}

func (c *Compact) packSegments(log []Entry, list []byte) (used, mark int64, ok bool) {
	width, newest := widthOf(log), log[len(log)-1].At
	if len(list) < c.sizeOf(width) {
		return 0, 0, false
	}

	// The newest has the last place.
	clear(list)
	for _, e := range log {
		setUnits(list, width, int(c.units+e.At-newest), e.N)
		used += e.N
	}
	return used, markOf(newest, int(c.units), width), true
}

func (c *Compact) unpackSegments(mark int64, list []byte, log []Entry) []Entry {
	newest, place, width := splitMark(mark)
	for i := newest - c.units; i <= newest; i++ {
		place = c.next(place)
		if n := unitsAt(list, width, place); n > 0 {
			log = append(log, Entry{i, n})
		}
	}
	return log
}

// takeSegmented is decideListed for SlidingWindow.
func (c *Compact) takeSegmented(used, mark *int64, list []byte, now, n int64, d *Decision, in intent) (ok bool) {
	newest, place, width := splitMark(*mark)
	held, passed, begun := *used, now-newest*c.every, int64(0)
	if passed < 0 || len(list) < c.sizeOf(width) {
		return false
	}

	// Each segment that has begun since the newest has the place of one that no longer counts.
	if passed >= c.every {
		begun, passed = passed/c.every, passed%c.every
		for range min(begun, c.units+1) {
			place = c.next(place)
			held -= unitsAt(list, width, place)
		}
	}

	// Decide counts no more than this of a segment.
	if held > c.most {
		return false
	}

	// Only the oldest segment counts by its overlap with the Period.
	inUse := held
	if held > 0 {
		if oldest := unitsAt(list, width, c.next(place)); oldest > 0 {
			inUse += ceilDiv(oldest*(c.every-passed), c.every) - oldest
		}
	}

	*d = Decision{At: now}
	switch missing := inUse + n - c.capacity; {
	case n > c.capacity:
		d.RetryAfter = Never
	case missing > 0:
		d.RetryAfter = micros(c.wait(list, width, place, missing, passed))
	case in == peeking:
		d.Allowed = true
	default:
		sum := n
		if begun == 0 {
			sum += unitsAt(list, width, place)
		}
		if !fits(sum, width) {
			return false
		}
		d.Allowed, d.Taken, inUse, held = true, n, inUse+n, held+n
		if in == charging {
			c.clearBefore(list, width, place, begun)
			setUnits(list, width, place, sum)
			*used, *mark = held, markOf(newest+begun, place, width)
		}
		begun = 0
	}

	// Of a refused Take the newest segment is as many segments ago as have begun.
	d.Remaining = max(0, c.capacity-inUse)
	if held > 0 {
		d.ResetAfter = micros((1+c.units-begun)*c.every - passed)
	}
	return true
}

// clearBefore clears the places of so many segments, of which the last has the place.
func (c *Compact) clearBefore(list []byte, width uint8, place int, begun int64) {
	for range min(begun, c.units+1) {
		setUnits(list, width, place, 0)
		if place--; place < 0 {
			place = int(c.units)
		}
	}
}

// wait returns the time until the missing units have come back, where the newest segment has the
// place, and of it so much has passed.
func (c *Compact) wait(list []byte, width uint8, place int, missing, passed int64) int64 {
	for left := c.every - passed; ; left += c.every {
		place = c.next(place)
		n := unitsAt(list, width, place)
		weight := ceilDiv(n*min(c.every, left), c.every)

		// It counts by the largest overlap at which it weighs so much less.
		if missing <= weight {
			return left - (weight-missing)*c.every/n
		}
		missing -= weight
	}
}
