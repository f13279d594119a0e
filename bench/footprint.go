package main

import (
	"fmt"
	"runtime"
	"time"
)

// footprint measures the heap that a key costs, and what is left of that after
// all keys have expired and one other key has been asked for, for as long as a
// life of a key or half of that. The keys' own text is counted.
func footprint(p pace) (*Table, error) {
	names := []string{}
	for _, peer := range memoryPeers {
		if !peer.keyless && peer.name != "headgate, Limiter.Take" {
			names = append(names, peer.name)
		}
	}
	t := newTable("bytes", fmt.Sprintf("In memory: heap bytes a key, at %d keys", p.keys),
		fmt.Sprintf("Keys of 13 bytes that expire after %s. After that one key is in use for %s.", p.life, p.life/2),
		[]string{"in use", "after expiry"}, names)
	for _, peer := range memoryPeers {
		if peer.keyless || peer.name == "headgate, Limiter.Take" {
			continue
		}
		t.enter(0, contest([]contender{{peer.name, func() ([]float64, error) { return weigh(peer, p) }}}, 1))
	}
	return t, nil
}

func weigh(peer memoryPeer, p pace) ([]float64, error) {
	empty := heap()
	worker, err := peer.open(quota{units: 1, period: p.life, burst: 1})
	if err != nil {
		return nil, err
	}
	t := worker()
	for i := range p.keys {
		t(fmt.Sprintf("key%010d", i))
	}
	filled := heap()
	time.Sleep(p.life + time.Second)
	for start := time.Now(); time.Since(start) < p.life/2; {
		t("one")
	}
	left := heap()
	runtime.KeepAlive(worker)
	runtime.KeepAlive(t)
	n := float64(p.keys)
	return []float64{max(0, (filled-empty)/n), max(0, (left-empty)/n)}, nil
}

// heap is the bytes of live objects.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
