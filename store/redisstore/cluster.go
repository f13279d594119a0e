// This file decides steps whose keys are on several servers, part by part.

package redisstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/core"
)

// severalSubjects reports whether the operations are about more than one subject.
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
func (d *dispatcher) applyBySubject(ctx context.Context, ops []core.Op, out []core.Decision) error {
	for i := range ops {
		if ops[i].UpTo {
			return fmt.Errorf("redisstore: %w %d (rule %q): UpTo Takes of several keys need Options.OneSlot",
				core.ErrOp, i, ops[i].Rule)
		}
	}

	parts := bySubject(ops)
	for n, p := range parts {
		if err := d.decidePart(ctx, p); err != nil {
			return d.withdrawAfter(ctx, parts[:n], err)
		}

		if core.Granted(p.ops, p.out) {
			continue
		}

		// The step is refused here. What came before goes back, and what follows is only looked at.
		if err := d.withdraw(ctx, parts[:n]); err != nil {
			return maybeSent(err)
		}
		if err := d.peek(ctx, parts[n+1:]); err != nil {
			return maybeSent(err)
		}
		break
	}

	for _, p := range parts {
		// The parts are in the order of subjects, and the decisions in that of the operations.
		for j, i := range p.index {
			out[i] = p.out[j]
		}
	}

	return nil
}

// withdraw gives back the units that parts took and updates their decisions. A refund that
// fails does not keep the others from being made.
func (d *dispatcher) withdraw(ctx context.Context, parts []*part) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.servers.budget())
	defer cancel()

	// The caller's time may be over, but its units still have to go back.
	var errs []error
	for _, p := range parts {
		undo, index := p.undo()
		if len(undo) == 0 {
			continue
		}

		back := make([]core.Decision, len(undo))
		if err := d.decidePart(ctx, &part{ops: undo, out: back}); err != nil {
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
func (d *dispatcher) peek(ctx context.Context, parts []*part) error {
	for _, p := range parts {
		for j := range p.ops {
			if p.ops[j].Verb == core.Take {
				p.ops[j].Verb = core.Peek
			}
		}

		if err := d.decidePart(ctx, p); err != nil {
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
func (d *dispatcher) withdrawAfter(ctx context.Context, parts []*part, err error) error {
	if failed := d.withdraw(ctx, parts); failed != nil {
		return maybeSent(fmt.Errorf("%w; %w", err, failed))
	}
	if len(parts) > 0 {
		return maybeSent(err)
	}
	return err
}

// shardError is the error of one shard, for a step on several.
type shardError struct {
	shard string
	err   error
}

func (e *shardError) Error() string { return e.err.Error() }

// Unwrap returns the error of the shard.
func (e *shardError) Unwrap() error { return e.err }

// Shard returns the name of the shard that failed; see [core.Sharded].
func (e *shardError) Shard() string { return e.shard }

// decidePart carries out a part of a step. Its error names the shard that had the part
// when it was asked.
func (d *dispatcher) decidePart(ctx context.Context, p *part) error {
	shard := d.servers.topology.shard(p.ops[0].Key)
	if err := d.decide(ctx, p.ops, p.out); err != nil {
		return &shardError{shard, err}
	}
	return nil
}
