// This file decides steps whose keys are on several servers, subject by subject.

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

// subjectOps holds the operations of a step that are about one subject.
type subjectOps struct {
	index []int // their indices in the step
	ops   []core.Op
	out   []core.Decision
}

// bySubject splits a step by its subjects, in the order in which they appear.
func bySubject(ops []core.Op) []*subjectOps {
	var subjects []*subjectOps
	byKey := map[string]*subjectOps{}

	for i := range ops {
		s := byKey[ops[i].Key]
		if s == nil {
			s = new(subjectOps)
			byKey[ops[i].Key] = s
			subjects = append(subjects, s)
		}

		s.index = append(s.index, i)
		s.ops = append(s.ops, ops[i])
		s.out = append(s.out, core.Decision{})
	}
	return subjects
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

	subjects := bySubject(ops)
	for n, s := range subjects {
		if err := d.decideSubject(ctx, s); err != nil {
			return d.withdrawAfter(ctx, subjects[:n], err)
		}

		if core.Granted(s.ops, s.out) {
			continue
		}

		// The step is refused here. What came before goes back, and what follows is only looked at.
		if err := d.withdraw(ctx, subjects[:n]); err != nil {
			return maybeSent(err)
		}
		if err := d.peek(ctx, subjects[n+1:]); err != nil {
			return maybeSent(err)
		}
		break
	}

	for _, s := range subjects {
		// The results are in the order of subjects, and the decisions in that of the operations.
		for j, i := range s.index {
			out[i] = s.out[j]
		}
	}

	return nil
}

// withdraw gives back the units that subjects were charged and updates their decisions. A refund
// that fails does not keep the others from being made.
func (d *dispatcher) withdraw(ctx context.Context, subjects []*subjectOps) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.servers.budget())
	defer cancel()

	// The caller's time may be over, but its units still have to go back.
	var errs []error
	for _, s := range subjects {
		undo, index := s.undo()
		if len(undo) == 0 {
			continue
		}

		back := make([]core.Decision, len(undo))
		if err := d.decideSubject(ctx, &subjectOps{ops: undo, out: back}); err != nil {
			errs = append(errs, fmt.Errorf("redisstore: refunding another subject of the step: %w", err))
			continue
		}

		for k, j := range index {
			d := &s.out[j]
			d.Taken, d.Wait, d.Remaining, d.ResetAfter, d.At = 0, 0, back[k].Remaining, back[k].ResetAfter, back[k].At
			d.Credit, d.FromCredit, d.CreditUntil = back[k].Credit, 0, 0
		}
	}
	return errors.Join(errs...)
}

// undo returns the refunds of the units that the subject was charged, and the indices of the
// refunded operations.
func (s *subjectOps) undo() (ops []core.Op, index []int) {
	for j, op := range s.ops {
		if op.Verb != core.Take || !s.out[j].Allowed || op.Cost == 0 {
			continue
		}
		ops, index = append(ops, op.Refund(s.out[j])), append(index, j)
	}
	return ops, index
}

// peek decides the subjects of a step that is refused already, so their Takes become Peeks.
func (d *dispatcher) peek(ctx context.Context, subjects []*subjectOps) error {
	for _, s := range subjects {
		for j := range s.ops {
			if s.ops[j].Verb == core.Take {
				s.ops[j].Verb = core.Peek
			}
		}

		if err := d.decideSubject(ctx, s); err != nil {
			return err
		}

		for j := range s.out {
			s.out[j].Wait = 0
		}
	}
	return nil
}

// withdrawAfter gives back the units that subjects were charged before the step failed with err.
func (d *dispatcher) withdrawAfter(ctx context.Context, subjects []*subjectOps, err error) error {
	if failed := d.withdraw(ctx, subjects); failed != nil {
		return maybeSent(fmt.Errorf("%w; %w", err, failed))
	}
	if len(subjects) > 0 {
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

// decideSubject carries out the operations of a step on one subject. Its error names the shard that
// had the subject when it was asked.
func (d *dispatcher) decideSubject(ctx context.Context, s *subjectOps) error {
	shard := d.servers.topology.shard(s.ops[0].Key)
	if _, err := d.decide(ctx, s.ops, s.out, nil); err != nil {
		return &shardError{shard, err}
	}
	return nil
}
