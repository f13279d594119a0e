package memstore

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/core"
)

// A kindID names a kind in few bits. None marks a slot that is free.
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
func (k *kind) matches(op *core.Op) bool { return k.rule == op.Rule && k.limit == op.Limit }

// counts tells whether keys of this kind are the op's to count: under a
// changed limit they still are.
func (k *kind) counts(op *core.Op) bool {
	return k.limit.Algorithm == op.Limit.Algorithm && k.rule == op.Rule
}

// kinds numbers the kinds that the store has seen. It never holds more than
// mostKinds, however many limits a program thinks of.
type kinds struct {
	recent [256]atomic.Uint32     // guesses of an id, by rule and quota
	list   atomic.Pointer[[]kind] // by id; grows only
	mu     sync.RWMutex
	ids    map[kind]kindID // guarded by mu
}

func newKinds() *kinds {
	k := &kinds{ids: make(map[kind]kindID)}
	k.list.Store(&[]kind{none: {}})
	return k
}

// id returns the number of the op's kind, or what is wrong with its limit.
// rule is a hash of the rule's name.
func (k *kinds) id(op *core.Op, rule uint64) (kindID, error) {
	guess := &k.recent[(rule+uint64(op.Limit.Quota)*spread)>>56]
	id := kindID(guess.Load())
	if id != none && (*k.list.Load())[id].matches(op) {
		return id, nil
	}
	id, err := k.find(op)
	if id != none && id != unlisted {
		guess.Store(uint32(id))
	}
	return id, err
}

func (k *kinds) find(op *core.Op) (kindID, error) {
	k.mu.RLock()
	id := k.ids[kind{op.Rule, op.Limit}]
	k.mu.RUnlock()
	if id != none {
		return id, nil
	}
	if err := op.Limit.Validate(); err != nil {
		return none, fmt.Errorf("%w (%s, rule %q): %w", core.ErrOp, op.Verb, op.Rule, err)
	}
	return k.add(kind{op.Rule, op.Limit}), nil
}

func (k *kinds) add(v kind) kindID {
	k.mu.Lock()
	defer k.mu.Unlock()
	if id := k.ids[v]; id != none {
		return id
	}
	if len(k.ids) == mostKinds {
		return unlisted
	}
	v.rule = strings.Clone(v.rule)
	// Readers of the older list never look beyond its own length.
	list := append(*k.list.Load(), v)
	id := kindID(len(list) - 1)
	k.list.Store(&list)
	k.ids[v] = id
	return id
}
