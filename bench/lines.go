package main

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unsafe"
)

// lineSize is the size of a cache line on nearly all machines.
const lineSize = 64

// A span is a piece of memory, and a copy of it.
type span struct {
	begin  uintptr
	memory []byte
	copied []byte
}

// An extent is where a struct lies, and the lock that is held while the struct is changed.
type extent struct {
	begin, end, lock uintptr
}

// isLock reports whether a field of the type guards the struct that it is in.
func isLock(t reflect.Type) bool {
	return t == reflect.TypeFor[sync.Mutex]() || t == reflect.TypeFor[sync.RWMutex]()
}

// A snapshot is the memory that a value leads to, without maps, strings, functions, and pools, of
// which each processor has its own part.
type snapshot struct {
	spans   []span
	guarded []extent
	pools   []extent // which have no lock
	seen    map[unsafe.Pointer]bool
}

// snapshotOf copies what a pointer leads to.
func snapshotOf(pointer any) *snapshot {
	s := &snapshot{seen: map[unsafe.Pointer]bool{}}
	s.follow(reflect.ValueOf(pointer))
	return s
}

// add copies a piece of memory, unless it was copied already.
func (s *snapshot) add(at unsafe.Pointer, size uintptr) bool {
	if at == nil || size == 0 || s.seen[at] {
		return false
	}
	s.seen[at] = true
	memory := unsafe.Slice((*byte)(at), size)
	s.spans = append(s.spans, span{uintptr(at), memory, slices.Clone(memory)})
	return true
}

// follow copies what a value leads to. The memory of the value itself is copied already.
func (s *snapshot) follow(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if s.add(v.UnsafePointer(), sizeOf(v.Type())) {
			s.follow(v.Elem())
		}
	case reflect.Interface:
		s.follow(v.Elem())
	case reflect.Slice:
		if s.add(v.UnsafePointer(), uintptr(v.Cap())*sizeOf(v.Type())) && leads(v.Type().Elem()) {
			s.followAll(v)
		}
	case reflect.Array:
		if leads(v.Type().Elem()) {
			s.followAll(v)
		}
	case reflect.Struct:
		s.followStruct(v)
	}
}

func (s *snapshot) followAll(v reflect.Value) {
	for i := range v.Len() {
		s.follow(v.Index(i))
	}
}

func (s *snapshot) followStruct(v reflect.Value) {
	t := v.Type()
	switch {
	case t == reflect.TypeFor[sync.Pool]():
		s.pools = append(s.pools, extent{begin: v.UnsafeAddr(), end: v.UnsafeAddr() + t.Size()})
		return
	case t.PkgPath() == "sync/atomic" && strings.HasPrefix(t.Name(), "Pointer["):
		// Its first field, an array of no pointers, has the type of what it points to.
		at := v.FieldByName("v").UnsafePointer()
		s.follow(reflect.NewAt(t.Field(0).Type.Elem().Elem(), at))
		return
	}

	for i := range t.NumField() {
		if isLock(t.Field(i).Type) {
			begin := v.UnsafeAddr()
			s.guarded = append(s.guarded, extent{begin, begin + t.Size(), begin + t.Field(i).Offset})
		}
		s.follow(v.Field(i))
	}
}

// sizeOf returns the size of what a pointer or a slice of the type points to.
func sizeOf(t reflect.Type) uintptr { return t.Elem().Size() }

// leads reports whether a value of the type may lead to other memory, or has a lock.
func leads(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Slice, reflect.UnsafePointer:
		return true
	case reflect.Array:
		return leads(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i).Type; isLock(f) || leads(f) {
				return true
			}
		}
	}
	return false
}

// changed returns how many cache lines were written since: those whose bytes have changed, and
// those of the locks of the structs among them, which are free again.
func (s *snapshot) changed() int {
	lines := map[uintptr]bool{}
	for _, p := range s.spans {
		if bytes.Equal(p.memory, p.copied) {
			continue
		}

		// A pool has a part for each processor, which is not shared.
		for i := range p.memory {
			at := p.begin + uintptr(i)
			if p.memory[i] == p.copied[i] || within(s.pools, at) != nil {
				continue
			}
			lines[at/lineSize] = true
			if g := within(s.guarded, at); g != nil {
				lines[g.lock/lineSize] = true
			}
		}
	}
	return len(lines)
}

// within returns the struct that the address is in, or nil.
func within(list []extent, at uintptr) *extent {
	for i := range list {
		if g := &list[i]; g.begin <= at && at < g.end {
			return g
		}
	}
	return nil
}
