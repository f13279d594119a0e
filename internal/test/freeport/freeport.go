// Package freeport finds ports for the servers of tests that are stopped and started again on the
// same port. [Listen] returns a listener on one, and [Addr] its address.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// The ports are from first to last. The kernel gives the ports that it chooses to outgoing
// connections too, so any connection of the machine may take such a port while its server is
// down. These are below that range. Linux gives outgoing connections those from
// 32768 on, and macOS and Windows those from 49152 on. A Redis Cluster may add
// 10000 to them.
const (
	first = 20000
	last  = 31999
)

// claims are the UDP ports that stand for the ports of this process, which holds them until it
// ends. So no two ports are the same, also of tests that run at the same time in several
// processes. No server of the tests uses UDP.
var claims struct {
	sync.Mutex
	held []net.PacketConn // Guarded by the mutex.
}

// Listen listens on a free loopback port, which no other test gets.
func Listen() (net.Listener, error) {
	var failures []error

	for range 100 {
		// Two processes that draw the same number differ in who has its UDP port.
		addr := fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(last-first+1))
		claim, err := net.ListenPacket("udp", addr)
		if err == nil {
			var l net.Listener
			if l, err = net.Listen("tcp", addr); err == nil {
				claims.Lock()
				defer claims.Unlock()
				claims.held = append(claims.held, claim)
				return l, nil
			}
			claim.Close()
		}

		failures = append(failures, err)
	}
	return nil, fmt.Errorf("no free port: %w", errors.Join(failures...))
}

// Addr returns the address of a free loopback port, which no other test gets. Without one
// it fails the test.
func Addr(t testing.TB) string {
	t.Helper()
	l, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
