package memstore

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/headgate/headgate/core"
)

// memory is a copy of what the processors share in a store, by part: its own fields, the interner,
// the classes, and each shard with its table.
type memory map[string][]byte

// raw returns the bytes of a value.
func raw[T any](v *T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)) }

// rawAll returns the bytes of all values of a slice.
func rawAll[T any](v []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), uintptr(len(v))*unsafe.Sizeof(*new(T)))
}

// memoryOf copies the memory of the store. The pool of steps is left out: each processor has its
// own part of it.
func memoryOf(s *Store) memory {
	m := memory{}
	own := raw(s)
	pool := unsafe.Offsetof(s.steps)
	clear(m.put("store", own)[pool : pool+unsafe.Sizeof(s.steps)])

	m.put("interner", slices.Concat(raw(s.classes), rawAll(s.classes.table.Load().places)))
	for i, v := range *s.classes.list.Load() {
		m.put(fmt.Sprintf("class %d", i), raw(v))
	}

	for i := range s.shards {
		h := &s.shards[i]
		m.put(shardName(i), slices.Concat(raw(h), h.tags, rawAll(h.slots), rawAll(h.exts)))
	}
	return m
}

func shardName(i int) string { return fmt.Sprintf("shard %d", i) }

// put adds a copy of a part and returns the copy.
func (m memory) put(part string, b []byte) []byte {
	m[part] = slices.Clone(b)
	return m[part]
}

// changed returns the parts that differ, sorted.
func (m memory) changed(later memory) []string {
	var parts []string
	for _, part := range slices.Sorted(maps.Keys(later)) {
		if !slices.Equal(m[part], later[part]) {
			parts = append(parts, part)
		}
	}
	return parts
}

// changedWords returns the offsets of the words of a part that differ.
func (m memory) changedWords(part string, later memory) (at []uintptr) {
	before, after := m[part], later[part]
	for i := 0; i < len(after); i += 8 {
		if !slices.Equal(before[i:i+8], after[i:i+8]) {
			at = append(at, uintptr(i))
		}
	}
	return at
}

// shardsOf returns the names of the shards of the ops, sorted.
func shardsOf(t *testing.T, s *Store, ops []core.Op) []string {
	t.Helper()
	var names []string
	for i := range ops {
		p, err := s.locate(&ops[i])
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, shardName(int(p.shard)))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Steps on different keys wait for one another's cache lines only where they write the same
// memory, so a step on a known key writes none that the store shares but its own shards.
func TestStepOnAKnownKeyWritesItsShardsAlone(t *testing.T) {
	const keys = 16

	steps := map[string]func(key string) []core.Op{
		"all algorithms": func(key string) (ops []core.Op) {
			for i, l := range each {
				ops = append(ops, takes(key, l))
				ops[i].Rule = strings.Repeat("r", i+1)
			}
			return ops
		},
	}
	for _, l := range each {
		steps[l.String()] = func(key string) []core.Op { return []core.Op{takes(key, l)} }

		// A rule for each key, and the names of all begin and end with the same letters.
		steps[l.String()+", like names"] = func(key string) []core.Op {
			op := takes(key, l)
			op.Rule = "of " + key + " alone"
			return []core.Op{op}
		}
	}

	for name, step := range steps {
		s, c := newStore(t, 0)
		for i := range keys {
			do(t, s, step(fmt.Sprint("key", i))...)
		}

		// Each step is later than the one before, and all before the store is tidied again.
		for i := range keys {
			c.move(time.Microsecond)
			ops := step(fmt.Sprint("key", i))
			before := memoryOf(s)
			do(t, s, ops...)

			if got, want := before.changed(memoryOf(s)), shardsOf(t, s, ops); !slices.Equal(got, want) {
				t.Errorf("%s, key %d: %q changed, want %q", name, i, got, want)
			}
		}
	}
}

// A key that is new is counted for the whole store. Nothing else of what is shared changes.
func TestStepOnANewKeyWritesTheCountsOfTheStore(t *testing.T) {
	for _, l := range each {
		s, c := newStore(t, 0)
		do(t, s, takes("first", l))
		want := []uintptr{unsafe.Offsetof(s.bytes), unsafe.Offsetof(s.keys)}

		for i := range 16 {
			c.move(time.Microsecond)
			op := takes(fmt.Sprint("key", i), l)
			before := memoryOf(s)
			do(t, s, op)
			after := memoryOf(s)

			parts := append(shardsOf(t, s, []core.Op{op}), "store")
			if got := before.changed(after); !slices.Equal(got, parts) {
				t.Errorf("%s, key %d: %q changed, want %q", l, i, got, parts)
			}
			if got := before.changedWords("store", after); !slices.Equal(got, want) {
				t.Errorf("%s, key %d: the words of the store at %d changed, want %d", l, i, got, want)
			}
		}
	}
}

// The tests above try each algorithm that core has.
func TestEachHasEveryAlgorithm(t *testing.T) {
	var got, want []core.Algorithm
	for _, l := range each {
		got = append(got, l.Algorithm)
	}
	for a := core.Algorithm(0); a.Letter() != ""; a++ {
		want = append(want, a)
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Names that differ in letters of which no hash is taken at first lead to classes of their own.
func TestLikeNamesHaveClassesOfTheirOwn(t *testing.T) {
	s, _ := newStore(t, 0)
	op := takes("key", each[0])
	classes := map[*limitClass]bool{}
	for range 2 {
		for i := range 1000 {
			op.Rule = fmt.Sprintf("x%03dy00z", i)
			v, err := s.classes.classOf(&op)
			if err != nil || !v.matches(&op) {
				t.Fatalf("%s: %+v, %v", op.Rule, v, err)
			}
			classes[v] = true
		}
	}
	if len(classes) != 1000 || s.classes.count() != 1000 {
		t.Errorf("%d classes, and %d held", len(classes), s.classes.count())
	}
}

// What some steps write and others only read, or have nothing to do with, lies in cache lines of
// its own, wherever the allocator puts the value.
func TestWrittenWordsShareNoCacheLine(t *testing.T) {
	s, c := new(Store), new(limitClass)
	for _, group := range []struct {
		name        string
		last, after uintptr // where the last word of a group is, and the first after the group
	}{
		{"what no step writes, and what tidying does", unsafe.Offsetof(s.steps), unsafe.Offsetof(s.tidied)},
		{"what tidying writes, and what new keys do", unsafe.Offsetof(s.earliest), unsafe.Offsetof(s.bytes)},
		{"what new keys write, and the next object", unsafe.Offsetof(s.refused), unsafe.Sizeof(*s)},
		{"a class and its pinned key", unsafe.Offsetof(c.salt), unsafe.Offsetof(c.pinned)},
		{"the pinned key of a class, and the next object", unsafe.Offsetof(c.pinned), unsafe.Sizeof(*c)},
	} {
		if got := group.after - group.last; got < cacheLine {
			t.Errorf("%s: %d bytes apart, want at least %d", group.name, got, cacheLine)
		}
	}
}
