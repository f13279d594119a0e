package memstore

import (
	"context"
	"slices"
	"sync"

	"github.com/headgate/headgate/core"
)

// Prepared is a step of Takes that is carried out again and again, for one key after another, as
// by a limiter whose rules count the same caller. It has looked up what the store knows of the
// rules and limits. It is safe for concurrent use.
type Prepared struct {
	store   *Store
	ops     []core.Op // without key and cost
	classes []*limitClass
	quick   bool      // the Takes are quick, if they are of units
	pool    sync.Pool // of *[]core.Op, for the general path
}

// newPrepared returns the ops, which have passed CheckOps, as a step of the store.
func newPrepared(s *Store, ops []core.Op) (*Prepared, error) {
	p := &Prepared{store: s, ops: slices.Clone(ops), quick: len(ops) > 0 && len(ops) <= maxFastTakes}
	p.pool.New = func() any {
		ops := slices.Clone(p.ops)
		return &ops
	}
	for i := range ops {
		v, err := s.classes.classOf(&ops[i])
		if err != nil {
			return nil, err
		}
		p.quick = p.quick && p.isQuick(v, ops[i])
		p.classes = append(p.classes, v)
	}
	return p, nil
}

// isQuick reports whether a Take of units under class v can be quick beside those before it, which
// must not be of the same key.
func (p *Prepared) isQuick(v *limitClass, op core.Op) bool {
	op.Cost = 1
	if !v.compact.Valid() || !v.bare || op.Ban != nil || !quick(&op) || v.compact.Listed() && len(p.ops) > 1 {
		return false
	}
	return !slices.ContainsFunc(p.classes, func(other *limitClass) bool { return other.salt == v.salt })
}

// Take is [Store.Apply] for the ops with that key and cost.
func (p *Prepared) Take(key string, cost int64, out []core.Decision) error {
	s := p.store
	if !p.quick || cost <= 0 || len(out) < len(p.ops) {
		ops := p.opsFor(key, cost)
		defer p.recycle(ops)
		return s.Apply(context.Background(), *ops, out)
	}

	var now int64
	var looked, done bool
	if len(p.classes) == 1 {
		op := core.Op{Key: key, Cost: cost}
		now, looked, done = s.take(p.classes[0], &op, &out[0])
	} else {
		now, done = p.takeTogether(key, cost, out)
		looked = true
	}
	if done {
		s.tidyIfDue(now)
		return nil
	}

	// The key is new, or core has to decide. The clock is not read again for that.
	ops := p.opsFor(key, cost)
	defer p.recycle(ops)
	if looked {
		return s.decideStep(*ops, out, now)
	}
	return s.decideOne(p.classes[0], *ops, out)
}

// opsFor returns the ops with that key and cost, which are recycled by the caller.
func (p *Prepared) opsFor(key string, cost int64) *[]core.Op {
	ops := p.pool.Get().(*[]core.Op)
	for i := range *ops {
		(*ops)[i].Key, (*ops)[i].Cost = key, cost
	}
	return ops
}

// recycle keeps the memory of the ops, and no key of a caller.
func (p *Prepared) recycle(ops *[]core.Op) {
	for i := range *ops {
		(*ops)[i].Key = ""
	}
	p.pool.Put(ops)
}

// takeTogether is Store.takeAll for one key under several rules: it has one hash and one shard.
func (p *Prepared) takeTogether(key string, cost int64, out []core.Decision) (now int64, done bool) {
	keyHash := p.store.keyHash(key)
	h := &p.store.shards[p.store.shardOf(keyHash)]
	now = p.store.clock()

	h.lock()
	if done = now >= h.latest && p.decide(h, keyHash, key, cost, now, out); done {
		h.latest = now
	}
	h.mu.Unlock()
	return now, done
}

// charge is the count of a key once its Take is charged.
type charge struct {
	at         int // the slot, or absent
	used, mark int64
}

// decide is fastTakes.decide for one key, whose shard is locked.
func (p *Prepared) decide(h *shard, keyHash uint64, key string, cost, now int64, out []core.Decision) bool {
	charges := make([]charge, 4)
	if len(p.classes) > len(charges) {
		charges = make([]charge, maxFastTakes)
	}

	granted, known := true, true
	for i, v := range p.classes {
		c, d := &charges[i], &out[i]
		if !c.evaluate(h, v, keyHash, key, cost, now, d) {
			return false
		}
		granted = granted && (d.Allowed || p.ops[i].Soft)
		known = known && c.at != absent
	}

	if !granted {
		return p.undo(charges, cost, out)
	}
	if !known {
		return false
	}

	for i, v := range p.classes {
		if c := &charges[i]; out[i].Allowed {
			slot := &h.slots[c.at]
			slot.used, slot.mark, slot.class = c.used, c.mark, v.id
		}
	}
	return true
}

// evaluate is fastTake.evaluate for a Take of class v without a list.
func (c *charge) evaluate(h *shard, v *limitClass, keyHash uint64, key string, cost, now int64,
	d *core.Decision) (good bool) {

	hash := uint32(v.hash(keyHash) >> 32)
	if c.at = h.seek(h.home(hash), hash, key); c.at == absent {
		c.used, c.mark, good = v.compact.Take(0, 0, now, cost, d)
		return good && h.buckets == 0 && h.store.keys.Load() <= h.store.maxKeys-maxFastTakes
	}

	slot := &h.slots[c.at]
	if slot.class != v.id || h.rareState(c.at) != nil {
		return false
	}
	c.used, c.mark, good = v.compact.Take(slot.used, slot.mark, now, cost, d)
	return good && d.ResetAfter > 0
}

// undo is fastTakes.undoRefused for one key.
func (p *Prepared) undo(charges []charge, cost int64, out []core.Decision) bool {
	for i, v := range p.classes {
		c, d := &charges[i], &out[i]
		if !d.Allowed {
			continue
		}
		v.compact.Untake(c.used, c.mark, cost, d)
		if d.ResetAfter == 0 && c.at != absent {
			return false
		}
	}
	return true
}
