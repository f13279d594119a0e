// This file has the arithmetic of Concurrency limits under which a key is two numbers and records
// in two pieces of memory: as many as fit into the first, and then those in the second.
//
//	used    the number of leases and, below it, their units, 16 bits each; those above are the
//	        store's own
//	mark    the expiry of the last lease, or the instant at which the key became fresh
//	record  the 16 bytes of an id, and a word, which is the low bits of the expiry of the lease
//	        and, below them, its units
//
// The records are in no order, so that a step writes one of them and moves none. No lease ends later
// than a Period of the limit from the last step on, so that the low bits and the mark tell the
// instant. A lease that has ended keeps its record until the next Take or Refund.

package core

import (
	"cmp"
	"encoding/binary"
	"slices"
)

const (
	leaseIDBytes  = 16
	leaseUnitBits = 14 // of a word, enough for maxLeases
	leaseUnits    = 1<<leaseUnitBits - 1

	leaseCountBits = 16 // of each half of the used units
	leaseCountMask = 1<<leaseCountBits - 1
	ownBits        = -1 << (2 * leaseCountBits) // of the store

	// Records have a word of 6 bytes, and if the low bits of that are too few for the Period, of 8.
	shortRecord = 6 + leaseIDBytes
	longRecord  = 8 + leaseIDBytes
	shortExpiry = 1<<(48-leaseUnitBits) - 1
	longExpiry  = 1<<(64-leaseUnitBits) - 1
)

// compactLeases returns the arithmetic of a Concurrency limit. Its units are the bytes of a record.
func compactLeases(l *Limit) Compact {
	c := Compact{form: inLeases, every: l.period(), units: shortRecord, capacity: l.Quota}
	if c.every > shortExpiry {
		c.units = longRecord
	}
	return c
}

// Leased reports whether a key is decided by TakeLease and its siblings.
func (c *Compact) Leased() bool { return c.form == inLeases }

// Leases returns the number of leases of a key.
func (*Compact) Leases(used int64) int { return int(used >> leaseCountBits & leaseCountMask) }

// LeaseBytes returns the bytes that n leases need.
func (c *Compact) LeaseBytes(n int) int { return n * int(c.units) }

// LeaseRoom returns how many leases two pieces of memory have room for.
func (c *Compact) LeaseRoom(head, tail []byte) int {
	r := c.records(head, tail)
	return r.room()
}

// PackLeases writes the leases of a state to two pieces of memory, and returns the numbers of the
// key. ok is false if they have no room for them, or if an id is not one of 32 hexadecimal digits
// in lower case, as limiters make them.
func (c *Compact) PackLeases(leases []Lease, head, tail []byte) (used, mark int64, ok bool) {
	if len(leases) == 0 {
		return 0, 0, true
	}
	r := c.records(head, tail)
	if len(leases) > r.room() || !c.Packs(leases) {
		return 0, 0, false
	}
	for i := range leases {
		l := &leases[i]
		id, _ := parseLeaseID(l.ID)
		r.set(i, record{id, wordOf(l.Expiry, l.Units)})
		used += 1<<leaseCountBits + l.Units
	}
	return used, leases[len(leases)-1].Expiry, true
}

// Packs reports whether PackLeases can write the leases where there is room for them.
func (c *Compact) Packs(leases []Lease) bool {
	if n := len(leases); n > 0 && leases[n-1].Expiry-leases[0].Expiry > c.records(nil, nil).expiryMask {
		return false
	}
	for i := range leases {
		if _, ok := parseLeaseID(leases[i].ID); !ok || leases[i].Units > leaseUnits {
			return false
		}
	}
	return true
}

// UnpackLeases appends the leases of a key to a list, in the order of their expiry.
func (c *Compact) UnpackLeases(used, mark int64, head, tail []byte, leases []Lease) []Lease {
	n := c.Leases(used)
	if n == 0 {
		return leases
	}

	// All ids are parts of one text, which takes one allocation.
	r := c.records(head, tail)
	text := make([]byte, 0, 2*leaseIDBytes*n)
	for i := range n {
		text = appendLeaseID(text, r.get(i).id)
	}
	ids := string(text)

	leases = slices.Grow(leases, n)
	first := len(leases)
	for i := range n {
		at, word := 2*leaseIDBytes*i, r.get(i).word
		leases = append(leases, Lease{ids[at : at+2*leaseIDBytes], r.expiryOf(word, mark), int64(word & leaseUnits)})
	}
	slices.SortStableFunc(leases[first:], func(a, b Lease) int { return cmp.Compare(a.Expiry, b.Expiry) })
	return leases
}

// TakeLease decides a Take, Peek or Refund that has passed CheckOps as the only op of its step, and
// carries it out. The key may have been written under a limit with another Quota, or with a longer
// Period. If ok is false, TakeLease has changed only d, and Decide has to decide.
func (c *Compact) TakeLease(used, mark *int64, head, tail []byte, op *Op, now int64, d *Decision) (ok bool) {
	var s leaseStep
	s.open(c, head, tail)
	s.n, s.mark = c.Leases(*used), *mark
	if !s.decide(c, op, now, d) {
		return false
	}

	// A Refund of a fresh key must not make it last longer.
	switch {
	case op.Verb == Refund && s.n > 0:
		s.release(now)
	case op.Verb == Take && op.Cost > 0 && d.Allowed:
		d.Taken = op.Cost
		s.take(op.Cost, now)
	default:
		s.report(op, now, d)
		return true
	}
	*used = *used&ownBits | int64(s.n)<<leaseCountBits | s.held
	if *mark = s.last; s.n == 0 {
		*mark = now
	}
	s.report(op, now, d)
	return true
}

// TryLease is TakeLease for a Take that is part of a step. It changes nothing, and reports the key
// as it is without the Take.
func (c *Compact) TryLease(used, mark int64, head, tail []byte, op *Op, now int64, d *Decision) (ok bool) {
	var s leaseStep
	s.open(c, head, tail)
	s.n, s.mark = c.Leases(used), mark
	if !s.decide(c, op, now, d) {
		return false
	}
	s.report(op, now, d)
	return true
}

// leaseStep is a step on the leases of a key.
type leaseStep struct {
	records
	n      int     // of the records, also of those that no longer count
	ended  int     // of the leases that have ended
	hole   int     // a record of one, or -1
	found  int     // the record of the op's lease, or -1
	units  int64   // of that lease
	held   int64   // units
	mark   int64   // the expiry of the last lease, as the records are written
	last   int64   // the same of those that are held
	others int64   // and of those but the op's, or 0
	period int64   // of the op's limit
	id     leaseID // of the op
}

// decide reads the key, and decides a Take or a Peek.
func (l *leaseStep) decide(c *Compact, op *Op, now int64, d *Decision) (ok bool) {
	id, known := parseLeaseID(op.Lease)
	l.id, l.last, l.period = id, l.mark, op.Limit.period()
	l.read(now, known)
	if !l.suits(c, op, now) {
		return false
	}

	// A renewal needs no units: the lease holds them already.
	*d = Decision{At: now}
	switch missing := l.held + op.Cost - op.Limit.Quota; {
	case op.Verb == Refund || op.Cost == 0:
		d.Allowed = true
	case op.Cost > op.Limit.Quota:
		d.RetryAfter = Never
	case l.found >= 0 || missing <= 0:
		d.Allowed = true
	default:
		wait, ok := l.wait(missing, now)
		d.RetryAfter = micros(wait)
		return ok
	}

	// A new lease needs room, and an id as records have.
	if op.Verb != Take || op.Cost == 0 || l.found >= 0 {
		return true
	}
	return known && (l.hole >= 0 || l.n < l.inHead || l.n < l.room())
}

// read reads the records at now. known is false if none can have the id of the op.
func (l *leaseStep) read(now int64, known bool) {
	l.ended, l.hole, l.found, l.held, l.others = 0, -1, -1, 0, 0
	first := min(l.n, l.inHead)
	l.readIn(l.head, 0, first, now, known)
	l.readIn(l.tail, first, l.n, now, known)
}

// readIn reads the records from i up to end, which are the first of the memory.
func (l *leaseStep) readIn(memory []byte, i, end int, now int64, known bool) {
	for ; i < end; i++ {
		r := l.records.first(memory)
		memory = memory[l.size:]
		units, expiry := int64(r.word&leaseUnits), l.expiryOf(r.word, l.mark)
		if expiry <= now {
			l.ended++
			l.hole = i
			continue
		}

		l.held += units
		if r.id == l.id && known {
			l.found, l.units = i, units
			continue
		}
		l.others = max(l.others, expiry)
	}
}

// suits reports whether the step is not one that Decide has to decide.
func (l *leaseStep) suits(c *Compact, op *Op, now int64) bool {
	others := l.n - l.ended
	if op.Verb == Take {
		if l.period > c.every {
			return false
		}
		if l.found >= 0 {
			others--
		}
	}

	// A key without other leases is one of the op's limit from now on.
	if others == 0 && (l.period != c.every || op.Limit.Quota != c.capacity) {
		return false
	}

	// Only a clock that was set back leaves a lease that lasts longer.
	return l.n == l.ended || l.mark <= now+c.every
}

// maxWaits is how many leases wait waits for one by one.
const maxWaits = 8

// wait returns the time until the missing units come back. ok is false if too many leases have to
// end for that.
func (l *leaseStep) wait(missing, now int64) (wait int64, ok bool) {
	at := now
	for range maxWaits {
		next, back := l.mark, int64(0)
		for i := range l.n {
			word := l.get(i).word
			switch end := l.expiryOf(word, l.mark); {
			case end <= at || end > next:
			case end == next:
				back += int64(word & leaseUnits)
			default:
				next, back = end, int64(word&leaseUnits)
			}
		}
		if missing -= back; missing <= 0 {
			return next - now, true
		}
		at = next
	}
	return 0, false
}

// release drops the lease of the op, if it is held, and those that have ended.
func (l *leaseStep) release(now int64) {
	if l.found >= 0 {
		l.held -= l.units
		l.remove(l.found)
		l.last = l.others
	}
	l.dropEnded(now)
}

// dropEnded drops the records of leases that have ended.
func (l *leaseStep) dropEnded(now int64) {
	for i := l.n - 1; i >= 0 && l.ended > 0; i-- {
		if l.expiryOf(l.get(i).word, l.mark) <= now {
			l.remove(i)
			l.ended--
		}
	}
}

// remove drops a record, whose place the last one takes.
func (l *leaseStep) remove(i int) {
	if l.n--; i < l.n {
		l.set(i, l.get(l.n))
	}
}

// take adds or renews the lease of the op, and drops those that have ended. Nearly always there is
// at most one, and the new lease has its record.
func (l *leaseStep) take(cost, now int64) {
	if l.ended > 1 || l.ended > 0 && l.found >= 0 {
		l.dropEnded(now)
		l.read(now, true)
	}

	i := l.hole
	switch {
	case l.found >= 0:
		i, cost = l.found, l.units
		l.held -= cost
	case i < 0:
		i = l.n
		l.n++
	}
	end := now + l.period
	l.set(i, record{l.id, wordOf(end, cost)})
	l.held += cost
	l.last, l.ended = max(l.others, end), 0
}

// report completes the decision with what is left of the key.
func (l *leaseStep) report(op *Op, now int64, d *Decision) {
	d.Remaining = max(0, op.Limit.Quota-l.held)
	if l.n > l.ended {
		d.ResetAfter = micros(l.last - now)
	}
}

// records are those of a key: as many as fit into head, and then those in tail.
type records struct {
	head, tail []byte
	size       int   // of a record
	inHead     int   // records
	expiryMask int64 // the bits of an expiry that a record has
}

// record is a lease.
type record struct {
	id   leaseID
	word uint64
}

func (c *Compact) records(head, tail []byte) (r records) {
	r.open(c, head, tail)
	return r
}

// open makes r the records in two pieces of memory. To set it here is faster than to copy it.
func (r *records) open(c *Compact, head, tail []byte) {
	r.head, r.tail = head, tail
	if c.units == shortRecord {
		r.size, r.inHead, r.expiryMask = shortRecord, len(head)/shortRecord, shortExpiry
	} else {
		r.size, r.inHead, r.expiryMask = longRecord, len(head)/longRecord, longExpiry
	}
}

// room returns the number of records that have room.
func (r *records) room() int {
	if r.size == shortRecord {
		return r.inHead + len(r.tail)/shortRecord
	}
	return r.inHead + len(r.tail)/longRecord
}

// at returns the memory from record i on.
func (r *records) at(i int) []byte {
	if i < r.inHead {
		return r.head[i*r.size:]
	}
	return r.tail[(i-r.inHead)*r.size:]
}

// get returns record i.
func (r *records) get(i int) record { return r.first(r.at(i)) }

// first returns the record that the memory begins with.
func (r *records) first(memory []byte) record {
	if r.size == shortRecord {
		_ = memory[shortRecord-1]
		return record{
			leaseID{binary.LittleEndian.Uint64(memory), binary.LittleEndian.Uint64(memory[8:])},
			binary.LittleEndian.Uint64(memory[shortRecord-8:]) >> 16,
		}
	}
	_ = memory[longRecord-1]
	return record{
		leaseID{binary.LittleEndian.Uint64(memory), binary.LittleEndian.Uint64(memory[8:])},
		binary.LittleEndian.Uint64(memory[16:]),
	}
}

// set writes record i. The id overwrites what a short word does not have.
func (r *records) set(i int, v record) {
	b := r.at(i)
	if r.size == shortRecord {
		binary.LittleEndian.PutUint64(b[shortRecord-8:], v.word<<16)
	} else {
		binary.LittleEndian.PutUint64(b[longRecord-8:], v.word)
	}
	binary.LittleEndian.PutUint64(b, v.id.first)
	binary.LittleEndian.PutUint64(b[8:], v.id.last)
}

// wordOf returns the word of a lease.
func wordOf(expiry, units int64) uint64 { return uint64(expiry)<<leaseUnitBits | uint64(units) }

// expiryOf returns the instant at which the lease of a word ends, where last is that of the last.
func (r *records) expiryOf(word uint64, last int64) int64 {
	return last - (last-int64(word>>leaseUnitBits))&r.expiryMask
}

// leaseID is an id of 32 hexadecimal digits in lower case. Each number stands for 16 of them: the
// high half of each byte for one of the first eight, and the low half for one of the others.
type leaseID struct{ first, last uint64 }

const (
	eachByte = 0x0101010101010101
	lowHalf  = 15 * eachByte
)

// parseLeaseID returns the form of an id in records. ok is false for every id of another kind.
func parseLeaseID(id string) (v leaseID, ok bool) {
	if len(id) != 2*leaseIDBytes {
		return v, false
	}
	a, wrongA := valuesOf(textOf(id[0:8]))
	b, wrongB := valuesOf(textOf(id[8:16]))
	c, wrongC := valuesOf(textOf(id[16:24]))
	d, wrongD := valuesOf(textOf(id[24:32]))
	return leaseID{a<<4 | b, c<<4 | d}, wrongA|wrongB|wrongC|wrongD == 0
}

// appendLeaseID appends the text of an id.
func appendLeaseID(text []byte, id leaseID) []byte {
	for _, half := range [2]uint64{id.first, id.last} {
		text = binary.LittleEndian.AppendUint64(text, digitsOf(half>>4&lowHalf))
		text = binary.LittleEndian.AppendUint64(text, digitsOf(half&lowHalf))
	}
	return text
}

// textOf returns eight characters as one number.
func textOf(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// valuesOf returns the values of eight hexadecimal digits. wrong is not 0 if one is none in lower
// case.
func valuesOf(digits uint64) (values, wrong uint64) {
	// A letter has the bit of 64, and stands for nine more than its low half. No value is above 24,
	// so none reaches the next byte.
	values = digits&lowHalf + digits>>6&eachByte*9
	return values, values&^lowHalf | digitsOf(values) ^ digits
}

// digitsOf returns the digits of eight values.
func digitsOf(values uint64) uint64 {
	letters := (values + 6*eachByte) >> 4 & eachByte
	return values + '0'*eachByte + letters*('a'-10-'0')
}
