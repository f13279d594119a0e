package memstore

import (
	"fmt"
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/core"
)

// A kindID names a kind in few bits.
type kindID uint32

const (
	none      kindID = 0
	mostKinds        = 1 << 14

	// unlisted is the kind of slots that carry their rule and limit
	// themselves, because the list is full.
	unlisted kindID = mostKinds + 1

	// shared marks the slot of an overflow bucket.
	shared kindID = 1 << 31

	// idle marks a slot that a sweep has found as good as new. It is forgotten
	// if it still is when the sweep comes round again: a key whose limit
	// recovers quickly but that is in use is not to be dropped and inserted
	// time and again.
	idle kindID = 1 << 30

	marks = shared | idle
)

// kind is what keys have in common: the rule and the limit, known to be valid.
type kind struct {
	rule  string
	limit core.Limit
}

// matches tells whether the op is of this very kind.
func (k *kind) matches(op *core.Op) bool { return equal(&k.limit, &op.Limit) && k.rule == op.Rule }

// equal is ==, field by field because the compiler's is three times as slow.
func equal(a, b *core.Limit) bool {
	return a.Quota == b.Quota && a.Period == b.Period && a.Burst == b.Burst &&
		a.Algorithm == b.Algorithm && a.Segments == b.Segments && a.Aligned == b.Aligned
}

// counts tells whether keys of this kind are the op's to count: under a
// changed limit they still are.
func (k *kind) counts(op *core.Op) bool {
	return k.limit.Algorithm == op.Limit.Algorithm && k.rule == op.Rule
}

// listed is a kind with what is known of it beforehand.
type listed struct {
	kind
	id     kindID
	steady core.Steady
	salt   uint64              // of the hashes of its keys: one for each rule and algorithm
	hot    atomic.Pointer[hot] // the key of this kind that became hot last, or nil
}

// kinds numbers the kinds that the store has seen. It never holds more than
// mostKinds, however many limits a program thinks of.
type kinds struct {
	seed   maphash.Seed
	recent [256]atomic.Pointer[listed] // kinds, see guess
	list   atomic.Pointer[[]*listed]   // by id; grows only
	mu     sync.RWMutex
	all    map[kind]*listed // guarded by mu
}

func newKinds() *kinds {
	k := &kinds{seed: maphash.MakeSeed(), all: make(map[kind]*listed)}
	k.list.Store(&[]*listed{none: {}})
	return k
}

// of returns the op's kind, or what is wrong with its limit.
func (k *kinds) of(op *core.Op) (*listed, error) {
	guess := k.guess(op)
	if v := guess.Load(); v != nil && v.matches(op) {
		return v, nil
	}
	v, err := k.find(op)
	if err == nil && v.id != unlisted {
		guess.Store(v)
	}
	return v, err
}

// guess is where to look for the op's kind first. Where that is, is cheap to
// tell; kinds that share a place are merely found more slowly.
func (k *kinds) guess(op *core.Op) *atomic.Pointer[listed] {
	n := uint64(op.Limit.Quota)*spread + uint64(op.Limit.Period)
	if last := len(op.Rule) - 1; last >= 0 {
		n += uint64(op.Rule[last])<<8 + uint64(last)
	}
	return &k.recent[n*spread>>56]
}

func (k *kinds) find(op *core.Op) (*listed, error) {
	k.mu.RLock()
	v := k.all[kind{op.Rule, op.Limit}]
	k.mu.RUnlock()
	if v != nil {
		return v, nil
	}
	if err := op.Limit.Validate(); err != nil {
		return nil, fmt.Errorf("%w (%s, rule %q): %w", core.ErrOp, op.Verb, op.Rule, err)
	}
	return k.add(kind{op.Rule, op.Limit}), nil
}

func (k *kinds) add(new kind) *listed {
	k.mu.Lock()
	defer k.mu.Unlock()
	if v := k.all[new]; v != nil {
		return v
	}
	v := &listed{id: unlisted, salt: (maphash.String(k.seed, new.rule) + uint64(new.limit.Algorithm)) * spread}
	if len(k.all) == mostKinds {
		return v
	}
	new.rule = strings.Clone(new.rule)
	list := *k.list.Load()
	v.kind, v.id, v.steady = new, kindID(len(list)), new.limit.Steady()
	// Readers of the older list never look beyond its own length.
	list = append(list, v)
	k.list.Store(&list)
	k.all[new] = v
	return v
}
