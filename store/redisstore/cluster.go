// This file maps keys to slots and keeps a client's view of a Cluster up to date.

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
)

// sharing is which steps may be decided by one script call.
type sharing uint8

const (
	shareNone sharing = iota // it is not known which keys share a server
	shareSlot                // steps whose keys are in one slot
	shareAll
)

// shares returns which steps of a store may share a script call.
func shares(client redis.UniversalClient, o Options) sharing {
	if o.Batch == 1 {
		return shareNone
	}
	if o.OneSlot {
		return shareAll
	}
	switch client.(type) {
	case *redis.Client:
		return shareAll
	case *redis.ClusterClient:
		return shareSlot
	}
	return shareNone
}

// Slots besides those of a Cluster: one for steps that may share a call with
// any other, and one for steps that may share with none.
const (
	anySlot = -1
	noSlot  = -2
)

// slotOf returns the slot of a step whose keys share one, or anySlot or noSlot.
func (s *Store) slotOf(ops []core.Op) int {
	switch s.shared {
	case shareAll:
		return anySlot
	case shareSlot:
		var tag [2 * maxReadable]byte
		return int(crc16(s.text(tag[:0], ops[0].Key)) % 16384)
	}
	return noSlot
}

// crc16 returns the CRC-16/XMODEM of text, from which a Cluster derives the
// slot of a hash tag.
func crc16(text []byte) (crc uint16) {
	nibbles := [...]uint16{
		0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7,
		0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef,
	}
	for _, c := range text {
		crc = crc<<4 ^ nibbles[crc>>12^uint16(c>>4)]
		crc = crc<<4 ^ nibbles[crc>>12^uint16(c&15)]
	}
	return crc
}

func severalSubjects(ops []core.Op) bool {
	for i := range ops {
		if ops[i].Key != ops[0].Key {
			return true
		}
	}
	return false
}

// part holds the operations of a step that are about one subject.
type part struct {
	index []int // their indices in the step
	ops   []core.Op
	out   []core.Decision
}

// bySubject splits a step into parts, in the order in which the subjects
// appear.
func bySubject(ops []core.Op) []*part {
	var parts []*part
	of := map[string]*part{}
	for i := range ops {
		p := of[ops[i].Key]
		if p == nil {
			p = new(part)
			of[ops[i].Key] = p
			parts = append(parts, p)
		}
		p.index = append(p.index, i)
		p.ops = append(p.ops, ops[i])
		p.out = append(p.out, core.Decision{})
	}
	return parts
}

// applyBySubject carries out a step one subject after the other. When one
// refuses, it gives back the takes before it and only peeks at the subjects
// after it. UpTo Takes are an error: what one of them takes depends on the
// subjects after it.
func (s *Store) applyBySubject(ctx context.Context, ops []core.Op, out []core.Decision) error {
	for i := range ops {
		if ops[i].UpTo {
			return fmt.Errorf("redisstore: %w %d (rule %q): UpTo Takes of several keys need Options.OneSlot", core.ErrOp, i, ops[i].Rule)
		}
	}
	parts := bySubject(ops)
	for n, p := range parts {
		if err := s.decidePart(ctx, p); err != nil {
			return s.withdrawAfter(ctx, parts[:n], err)
		}
		if core.Granted(p.ops, p.out) {
			continue
		}
		if err := s.withdraw(ctx, parts[:n]); err != nil {
			return maybeSent(err)
		}
		if err := s.peek(ctx, parts[n+1:]); err != nil {
			return maybeSent(err)
		}
		break
	}
	for _, p := range parts {
		for j, i := range p.index {
			out[i] = p.out[j]
		}
	}
	return nil
}

// withdraw gives back the units that parts took and updates their decisions. A refund
// that fails does not keep the others from being made.
func (s *Store) withdraw(ctx context.Context, parts []*part) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.budget())
	defer cancel()
	var errs []error
	for _, p := range parts {
		undo, index := p.undo()
		if len(undo) == 0 {
			continue
		}
		back := make([]core.Decision, len(undo))
		if err := s.decidePart(ctx, &part{ops: undo, out: back}); err != nil {
			errs = append(errs, fmt.Errorf("redisstore: refunding another subject of the step: %w", err))
			continue
		}
		for k, j := range index {
			d := &p.out[j]
			d.Taken, d.Wait, d.Remaining, d.ResetAfter, d.At = 0, 0, back[k].Remaining, back[k].ResetAfter, back[k].At
		}
	}
	return errors.Join(errs...)
}

// undo returns the refunds of the units that p took, and the indices of the
// refunded operations.
func (p *part) undo() (ops []core.Op, index []int) {
	for j, op := range p.ops {
		if op.Verb != core.Take || !p.out[j].Allowed || op.Cost == 0 {
			continue
		}
		ops, index = append(ops, op.Refund(p.out[j])), append(index, j)
	}
	return ops, index
}

// peek decides parts of a step that is refused already, so their Takes become
// Peeks.
func (s *Store) peek(ctx context.Context, parts []*part) error {
	for _, p := range parts {
		for j := range p.ops {
			if p.ops[j].Verb == core.Take {
				p.ops[j].Verb = core.Peek
			}
		}
		if err := s.decidePart(ctx, p); err != nil {
			return err
		}
		for j := range p.out {
			p.out[j].Wait = 0
		}
	}
	return nil
}

// withdrawAfter gives back the units that parts took before the step failed
// with err.
func (s *Store) withdrawAfter(ctx context.Context, parts []*part, err error) error {
	if failed := s.withdraw(ctx, parts); failed != nil {
		return maybeSent(fmt.Errorf("%w; %w", err, failed))
	}
	if len(parts) > 0 {
		return maybeSent(err)
	}
	return err
}

// relearn is the minimum pause between two requests to a client to reload the
// topology.
const relearn = 200 * time.Millisecond

// learn makes the client of a Cluster reload the topology at once when an error
// indicates that it may be out of date. By itself the client would go on asking
// a dead node for up to a minute. It reloads in its own goroutine, one reload
// at a time, but pauses only after a successful one. The pause here keeps callers
// from overloading the remaining servers during an outage.
func (s *Store) learn(ctx context.Context, err error) {
	c, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return
	}
	if err == nil && !s.mapped.Load() {
		s.mapped.Store(true) // the client has a table, and keeps one
	}
	if err == nil || !doubtsTopology(err) {
		return
	}
	now, last := time.Now().UnixMilli(), s.learned.Load()
	if since := now - last; since >= 0 && since < relearn.Milliseconds() {
		return
	}
	if s.learned.CompareAndSwap(last, now) {
		c.ReloadState(ctx)
		s.learnTable(ctx, c)
	}
}

// doubtsTopology reports whether the error may come from a node that is dead,
// cut off, or no longer responsible.
func doubtsTopology(err error) bool {
	for _, prefix := range []string{"CLUSTERDOWN", "READONLY", "MASTERDOWN", "LOADING"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, redis.ErrPoolTimeout)
}
