package redisstore

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/core"
)

func severalSubjects(ops []core.Op) bool {
	for i := range ops {
		if ops[i].Key != ops[0].Key {
			return true
		}
	}
	return false
}

// part is the operations of a step that are about one subject.
type part struct {
	index []int // where they stand in the step
	ops   []core.Op
	out   []core.Decision
}

// bySubject splits a step, in the order in which subjects appear.
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
// refuses, the takes before it are given back and those after it only peek.
func (s *Store) applyBySubject(ctx context.Context, ops []core.Op, out []core.Decision) error {
	parts := bySubject(ops)
	for n, p := range parts {
		if err := s.decide(ctx, p.ops, p.out); err != nil {
			return s.withdrawAfter(ctx, parts[:n], err)
		}
		if core.Granted(p.ops, p.out) {
			continue
		}
		if err := s.withdraw(ctx, parts[:n]); err != nil {
			return err
		}
		if err := s.peek(ctx, parts[n+1:]); err != nil {
			return err
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

// withdraw gives back what parts took and brings their decisions up to date.
func (s *Store) withdraw(ctx context.Context, parts []*part) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
	defer cancel()
	for _, p := range parts {
		undo, index := p.undo()
		if len(undo) == 0 {
			continue
		}
		back := make([]core.Decision, len(undo))
		if err := s.decide(ctx, undo, back); err != nil {
			return fmt.Errorf("giving back what a refused step took: %w", err)
		}
		for k, j := range index {
			d := &p.out[j]
			d.Wait, d.Remaining, d.ResetAfter, d.At = 0, back[k].Remaining, back[k].ResetAfter, back[k].At
		}
	}
	return nil
}

// undo returns the refunds of what p took, and of which operations they are.
func (p *part) undo() (ops []core.Op, index []int) {
	for j, op := range p.ops {
		if op.Verb != core.Take || !p.out[j].Allowed || op.Cost == 0 {
			continue
		}
		ops, index = append(ops, op.Refund(p.out[j])), append(index, j)
	}
	return ops, index
}

// peek decides parts of a step that is refused already: its Takes only peek.
func (s *Store) peek(ctx context.Context, parts []*part) error {
	for _, p := range parts {
		for j := range p.ops {
			if p.ops[j].Verb == core.Take {
				p.ops[j].Verb = core.Peek
			}
		}
		if err := s.decide(ctx, p.ops, p.out); err != nil {
			return err
		}
		for j := range p.out {
			p.out[j].Wait = 0
		}
	}
	return nil
}

// withdrawAfter gives back what parts took before the step failed with err.
func (s *Store) withdrawAfter(ctx context.Context, parts []*part, err error) error {
	if failed := s.withdraw(ctx, parts); failed != nil {
		return fmt.Errorf("%w; %w", err, failed)
	}
	return err
}
