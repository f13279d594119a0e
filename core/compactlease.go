// This file has the arithmetic of Concurrency limits under which a key is two numbers and records
// in two pieces of memory: as many as fit into the first, and then those in the second.
//
//	used    the number of leases and, below it, their units, 16 bits each; those above are the
//	        store's own
//	mark    the expiry of the last lease, or the instant at which the key became fresh
//	record  a word, which is the low bits of an expiry and, below them, the units of the lease,
//	        and the 16 bytes of its id
//
// The records are in the order of their expiry. No lease ends later than a Period of the limit
// from the last step on, so that the low bits and the mark tell the instant.

package core

import (
	"encoding/binary"
	"math"
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
)

// compactLeases returns the arithmetic of a Concurrency limit. Its units are the bytes of a record.
func compactLeases(l *Limit) Compact {
	c := Compact{form: inLeases, every: l.period(), units: shortRecord, capacity: l.Quota}
	if c.every >= 1<<c.leaseBits() {
		c.units = longRecord
	}
	return c
}

// leaseBits returns how many low bits of an expiry a record has.
func (c *Compact) leaseBits() int { return 8*(int(c.units)-leaseIDBytes) - leaseUnitBits }

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
		r.set(i, l.Expiry, l.Units, id)
		used += 1<<leaseCountBits + l.Units
	}
	return used, leases[len(leases)-1].Expiry, true
}

// Packs reports whether PackLeases can write the leases where there is room for them.
func (c *Compact) Packs(leases []Lease) bool {
	if n := len(leases); n > 0 && leases[n-1].Expiry-leases[0].Expiry >= 1<<c.leaseBits() {
		return false
	}
	for i := range leases {
		if _, ok := parseLeaseID(leases[i].ID); !ok || leases[i].Units > leaseUnits {
			return false
		}
	}
	return true
}

// UnpackLeases appends the leases of a key to a list.
func (c *Compact) UnpackLeases(used, mark int64, head, tail []byte, leases []Lease) []Lease {
	n := c.Leases(used)
	if n == 0 {
		return leases
	}

	// All ids are parts of one text, which takes one allocation.
	r := c.records(head, tail)
	text := make([]byte, 0, 2*leaseIDBytes*n)
	for i := range n {
		text = appendLeaseID(text, r.id(i))
	}
	ids := string(text)

	leases = slices.Grow(leases, n)
	for i := range n {
		at := 2 * leaseIDBytes * i
		leases = append(leases, Lease{ids[at : at+2*leaseIDBytes], r.expiry(i, mark), r.units(i)})
	}
	return leases
}

// TakeLease decides a Take, Peek or Refund that has passed CheckOps as the only op of its step, and
// carries it out. The key may have been written under a limit with another Quota, or with a longer
// Period. If ok is false, TakeLease has changed only d, and Decide has to decide.
func (c *Compact) TakeLease(used, mark *int64, head, tail []byte, op *Op, now int64, d *Decision) (ok bool) {
	var s leaseStep
	if !s.decide(c, *used, *mark, head, tail, op, now, d) {
		return false
	}

	// A Refund of a fresh key must not make it last longer.
	switch {
	case op.Verb == Refund && s.n > 0:
		s.release()
	case op.Verb == Take && op.Cost > 0 && d.Allowed:
		d.Taken = op.Cost
		s.take(op, now)
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
	if !s.decide(c, used, mark, head, tail, op, now, d) {
		return false
	}
	s.report(op, now, d)
	return true
}

// leaseStep is a step on the leases of a key.
type leaseStep struct {
	records
	first, n int   // of the records that count
	found    int   // the record of the op's lease, or -1
	held     int64 // units
	last     int64 // the expiry of the last lease
	id       leaseID
}

// decide reads the key, and decides a Take or a Peek.
func (l *leaseStep) decide(
	c *Compact, used, mark int64, head, tail []byte, op *Op, now int64, d *Decision,
) (ok bool) {
	limit := &op.Limit
	l.records, l.n, l.found = c.records(head, tail), c.Leases(used), -1
	l.held, l.last = used&leaseCountMask, mark

	l.skipEnded(now)

	*d = Decision{At: now}
	known := false
	if l.id, known = parseLeaseID(op.Lease); known {
		l.found = l.find()
	}
	if !l.suits(c, op, now) {
		return false
	}

	// A renewal needs no units: the lease holds them already.
	switch missing := l.held + op.Cost - limit.Quota; {
	case op.Verb == Refund || op.Cost == 0:
		d.Allowed = true
	case op.Cost > limit.Quota:
		d.RetryAfter = Never
	case l.found >= 0 || missing <= 0:
		d.Allowed = true
	default:
		d.RetryAfter = micros(l.wait(missing, now))
	}

	// A new lease needs room, and an id as records have.
	if op.Verb != Take || op.Cost == 0 || !d.Allowed || l.found >= 0 {
		return true
	}
	n := l.n - l.first
	return known && (n < l.inHead || n < l.room())
}

// skipEnded skips the records of leases that have ended.
func (l *leaseStep) skipEnded(now int64) {
	for l.first < l.n {
		word := l.word(l.first)
		if l.expiryOf(word, l.last) > now {
			return
		}
		l.held -= int64(word & leaseUnits)
		l.first++
	}
}

// suits reports whether the step is not one that Decide has to decide.
func (l *leaseStep) suits(c *Compact, op *Op, now int64) bool {
	limit, others := &op.Limit, l.n-l.first
	if op.Verb == Take && limit.period() > c.every {
		return false
	}
	if op.Verb == Take && l.found >= 0 {
		others--
	}

	// A key without other leases is one of the op's limit from now on.
	if others == 0 && (limit.period() != c.every || limit.Quota != c.capacity) {
		return false
	}

	// Only a clock that was set back leaves a lease that lasts longer.
	return l.first == l.n || l.last <= now+c.every
}

// wait returns the time until the missing units come back.
func (l *leaseStep) wait(missing, now int64) int64 {
	i := l.first
	for missing -= l.units(i); missing > 0; missing -= l.units(i) {
		i++
	}
	return l.expiry(i, l.last) - now
}

// find returns the record of the id, or -1.
func (l *leaseStep) find() int {
	for i := l.first; i < l.n; i++ {
		if l.records.id(i) == l.id {
			return i
		}
	}
	return -1
}

// release drops the lease of the op, if it is held.
func (l *leaseStep) release() {
	if l.found >= 0 {
		l.held -= l.units(l.found)
	}
	l.drop()
}

// drop drops the records that no longer count, and that of the op's lease.
func (l *leaseStep) drop() {
	last := l.last
	if l.found >= 0 {
		if l.found == l.n-1 && l.n-1 > l.first {
			last = l.expiry(l.n-2, l.last)
		}
		l.move(l.found, l.found+1, l.n)
		l.n--
	}
	if l.first > 0 {
		l.move(0, l.first, l.n)
		l.n, l.first = l.n-l.first, 0
	}
	l.last, l.found = last, -1
}

// take adds or renews the lease of the op.
func (l *leaseStep) take(op *Op, now int64) {
	units := op.Cost
	if l.found >= 0 {
		units = l.units(l.found)
		l.held -= units
	}
	l.drop()

	// Nearly always it is the last to end. One of a shorter Period goes before those that end
	// later.
	end, i := now+op.Limit.period(), l.n
	for i > 0 && l.expiry(i-1, l.last) > end {
		i--
	}
	if i == l.n {
		l.last = end
	}
	l.makeRoom(i, l.n)
	l.set(i, end, units, l.id)
	l.n++
	l.held += units
}

// report completes the decision with what is left of the key.
func (l *leaseStep) report(op *Op, now int64, d *Decision) {
	d.Remaining = max(0, op.Limit.Quota-l.held)
	if l.n > l.first {
		d.ResetAfter = micros(l.last - now)
	}
}

// records are those of a key: as many as fit into head, and then those in tail.
type records struct {
	head, tail []byte
	size       int    // of a record
	inHead     int    // records
	wordMask   uint64 // the bits of a word
}

func (c *Compact) records(head, tail []byte) records {
	r := records{head: head, tail: tail, size: int(c.units), wordMask: math.MaxUint64}
	if r.size == shortRecord {
		r.wordMask = 1<<48 - 1
	}
	r.inHead = r.fitInto(head)
	return r
}

// fitInto returns how many records fit into the memory. A division by a constant is fast.
func (r *records) fitInto(memory []byte) int {
	if r.size == shortRecord {
		return len(memory) / shortRecord
	}
	return len(memory) / longRecord
}

// room returns the number of records that have room.
func (r *records) room() int { return r.inHead + r.fitInto(r.tail) }

// at returns record i.
func (r *records) at(i int) []byte {
	b := r.head
	if i >= r.inHead {
		b, i = r.tail, i-r.inHead
	}
	return b[i*r.size:][:r.size]
}

// word returns the word of record i.
func (r *records) word(i int) uint64 { return binary.LittleEndian.Uint64(r.at(i)) & r.wordMask }

func (r *records) units(i int) int64 { return int64(r.word(i) & leaseUnits) }

// expiry returns the instant at which lease i ends, where last is that of the last.
func (r *records) expiry(i int, last int64) int64 { return r.expiryOf(r.word(i), last) }

// expiryOf returns the instant at which the lease of a word ends.
func (r *records) expiryOf(word uint64, last int64) int64 {
	mask := int64(r.wordMask >> leaseUnitBits)
	return last - (last-int64(word>>leaseUnitBits))&mask
}

func (r *records) id(i int) leaseID {
	b := r.at(i)[r.size-leaseIDBytes:]
	return leaseID{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}
}

// set writes record i. The id overwrites what a short word has no room for.
func (r *records) set(i int, expiry, units int64, id leaseID) {
	b := r.at(i)
	binary.LittleEndian.PutUint64(b, uint64(expiry)<<leaseUnitBits|uint64(units))
	b = b[r.size-leaseIDBytes:]
	binary.LittleEndian.PutUint64(b, id[0])
	binary.LittleEndian.PutUint64(b[8:], id[1])
}

// move moves the records from up to end to the place to, which is before them.
func (r *records) move(to, from, end int) {
	if n := min(end, r.inHead) - from; n > 0 {
		copy(r.head[to*r.size:], r.head[from*r.size:][:n*r.size])
		to, from = to+n, from+n
	}
	for ; from < end && to < r.inHead; to, from = to+1, from+1 {
		copy(r.at(to), r.at(from))
	}
	if from < end {
		copy(r.tail[(to-r.inHead)*r.size:], r.tail[(from-r.inHead)*r.size:(end-r.inHead)*r.size])
	}
}

// makeRoom moves the records from i up to end by one place.
func (r *records) makeRoom(i, end int) {
	if first := max(i, r.inHead); first < end {
		tail := r.tail[(first-r.inHead)*r.size:]
		n := (end - first) * r.size
		copy(tail[r.size:], tail[:n])
	}
	if i >= r.inHead || i == end {
		return
	}
	if end >= r.inHead {
		copy(r.at(r.inHead), r.at(r.inHead-1))
		end = r.inHead - 1
	}
	head := r.head[i*r.size:]
	copy(head[r.size:], head[:(end-i)*r.size])
}

// leaseID is an id of 32 hexadecimal digits in lower case. Each number stands for 16 of them: the
// high half of each byte for one of the first eight, and the low half for one of the others.
type leaseID [2]uint64

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
	for _, half := range id {
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
