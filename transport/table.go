package transport

import "sync"

// table has the gates of all keys: those of requests under way, and up to max others.
type table struct {
	max    int
	spread bool

	mu    sync.Mutex // guards what follows, and refs, prev and next of the gates
	gates map[string]*gate
	idle  int
	root  gate // of the ring of gates without refs, the one that was used last first
}

// init makes the table ready for use. max is how many gates it keeps that no request uses.
func (t *table) init(max int, spread bool) {
	t.max, t.spread, t.gates = max, spread, map[string]*gate{}
	t.root.prev, t.root.next = &t.root, &t.root
}

// hold returns the gate of a key. release has to be called with it.
func (t *table) hold(key string) *gate {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.gates[key]
	switch {
	case g == nil:
		g = newGate(key, t.spread)
		t.gates[g.key] = g
	case g.refs == 0:
		t.unlinkLocked(g)
	}
	g.refs++
	return g
}

// release ends a use of the gate. Beyond max the gate that was not used for longest is forgotten.
func (t *table) release(g *gate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g.refs--; g.refs > 0 {
		return
	}
	g.prev, g.next = &t.root, t.root.next
	g.prev.next, g.next.prev = g, g
	if t.idle++; t.idle > t.max {
		oldest := t.root.prev
		t.unlinkLocked(oldest)
		delete(t.gates, oldest.key)
	}
}

// unlinkLocked takes a gate out of the ring of those without refs.
func (t *table) unlinkLocked(g *gate) {
	g.prev.next, g.next.prev = g.next, g.prev
	t.idle--
}
