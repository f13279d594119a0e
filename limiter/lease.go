package limiter

import (
	crand "crypto/rand"
	"encoding/hex"
	"math/rand/v2"
	"sync"
)

// leaseSource makes lease ids: 128 bits that nobody can guess, in hex. A
// ChaCha8 keyed by the system's randomness needs no system call for each.
type leaseSource struct {
	mu      sync.Mutex
	chacha8 *rand.ChaCha8
}

func newLeaseSource() *leaseSource {
	var seed [32]byte
	_, _ = crand.Read(seed[:]) // never fails, as its contract says
	return &leaseSource{chacha8: rand.NewChaCha8(seed)}
}

func (s *leaseSource) next() string {
	var id [16]byte
	s.mu.Lock()
	_, _ = s.chacha8.Read(id[:]) // never fails either
	s.mu.Unlock()
	return hex.EncodeToString(id[:])
}
