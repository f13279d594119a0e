package redisstore

import (
	"bytes"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// relay passes bytes between clients and a server. While it is mute, it swallows
// what the server says to a connection that has called a script.
type relay struct {
	addr string
	mute atomic.Bool
}

func newRelay(t testing.TB, server string) *relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	r := &relay{addr: ln.Addr().String()}
	var open sync.WaitGroup
	stop := make(chan struct{})

	// Each connection has a goroutine of its own; they end with the test.
	open.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			open.Go(func() { r.serve(client, server, stop) })
		}
	})

	t.Cleanup(func() {
		close(stop)
		ln.Close()
		open.Wait()
	})
	return r
}

// serve passes bytes until one side leaves or the test ends.
func (r *relay) serve(client net.Conn, server string, stop chan struct{}) {
	defer client.Close()
	upstream, err := net.Dial("tcp", server)
	if err != nil {
		return
	}

	defer upstream.Close()
	done := make(chan struct{}, 2)
	var copies sync.WaitGroup

	// What a client has called decides whether its replies may be lost.
	var called atomic.Bool
	copies.Go(func() { io.Copy(request{upstream, &called}, client); done <- struct{}{} })
	copies.Go(func() { io.Copy(reply{client, r, &called}, upstream); done <- struct{}{} })

	select {
	case <-done:
	case <-stop:
	}

	// Closing both ends the copies, which would otherwise wait for bytes.
	client.Close()
	upstream.Close()
	copies.Wait()
}

// request records whether a script is called.
type request struct {
	net.Conn
	called *atomic.Bool
}

func (q request) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("\r\neval")) {
		q.called.Store(true)
	}
	return q.Conn.Write(p)
}

type reply struct {
	net.Conn
	relay  *relay
	called *atomic.Bool
}

func (y reply) Write(p []byte) (int, error) {
	if y.relay.mute.Load() && y.called.Load() {
		return len(p), nil
	}
	return y.Conn.Write(p)
}
