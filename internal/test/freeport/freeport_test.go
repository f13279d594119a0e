package freeport

import (
	"net"
	"strconv"
	"testing"
)

// port returns the port of an address.
func port(t *testing.T, addr string) int {
	t.Helper()
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAddrCanBeListenedOnAgain(t *testing.T) {
	l, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	// What Listen holds is held against others too.
	if again, err := net.Listen("tcp", l.Addr().String()); err == nil {
		again.Close()
		t.Errorf("%s is listened on twice", l.Addr())
	}

	for range 2 {
		addr := Addr(t)

		// The range lies below that which Linux gives to outgoing connections.
		if n := port(t, addr); n < first || n > last {
			t.Errorf("%s is not between %d and %d", addr, first, last)
		}

		// The first listener leaves nothing behind that would refuse the second.
		for range 2 {
			l, err := net.Listen("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			l.Close()
		}
	}
}

// A port belongs to a test also while nobody listens on it.
func TestAddrIsGivenOnce(t *testing.T) {
	for range 2 {
		if claim, err := net.ListenPacket("udp", Addr(t)); err == nil {
			claim.Close()
			t.Error("another process could take the port")
		}
	}
}
