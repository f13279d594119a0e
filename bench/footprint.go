package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"time"
)

// footprint measures the heap that a key costs, and the rest of it after all keys
// have expired and one other key has been in use for half the life of a key. The
// text of the keys counts. Each peer runs in its own process, because many of them
// can never be freed.
func footprint(p pace) (*Table, error) {
	t := newTable("bytes", fmt.Sprintf("In memory: heap bytes a key, at %d keys", p.keys),
		fmt.Sprintf("Keys of 13 bytes that expire after %s. After that one key is in use for %s.", p.life, p.life/2),
		[]string{"in use", "after expiry"}, nil)
	for _, peer := range memoryPeers {
		if peer.keyless || slices.Contains([]string{oursAllow, oursTwice, oursTake, goTwice}, peer.name) {
			continue
		}
		t.enter(0, contest([]contender{{peer.name, func() ([]float64, error) { return heapAlone(peer.name, p) }}}, 1))
	}
	return t, nil
}

// heapAlone measures a peer in another process of this program.
func heapAlone(name string, p pace) (f []float64, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.Command(program, "-heap", name, fmt.Sprintf("-quick=%t", p == quick))
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return nil, err
	}
	return f, json.Unmarshal(out, &f)
}

// printHeap prints the two figures of a peer.
func printHeap(name string, p pace) error {
	for _, peer := range memoryPeers {
		if peer.name != name {
			continue
		}
		f, err := peer.heapPerKey(p)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(f)
	}
	return fmt.Errorf("there is no peer %q", name)
}

func (m *memoryPeer) heapPerKey(p pace) ([]float64, error) {
	empty := heap()

	worker, err := m.open(quota{units: 1, period: p.life, burst: 1})
	if err != nil {
		return nil, err
	}

	t := worker()
	fill(t, p.keys)
	filled := heap()

	// After the keys have expired, calls about another give a peer the time to sweep.
	time.Sleep(p.life + time.Second)
	for start := time.Now(); time.Since(start) < p.life/2; {
		t("one")
	}
	left := heap()

	// Without these the last collection would free the peer, and with it all that is measured.
	runtime.KeepAlive(worker)
	runtime.KeepAlive(t)

	n := float64(p.keys)
	return []float64{max(0, (filled-empty)/n), max(0, (left-empty)/n)}, nil
}

// heap returns the bytes of live objects. Objects with a finalizer need more than
// one collection.
func heap() float64 {
	smallest := math.Inf(1)
	for range 10 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if float64(m.HeapAlloc) > smallest-4096 {
			break
		}
		smallest = float64(m.HeapAlloc)
	}
	return smallest
}
