package server

import (
	"errors"
	"net"
	"sync"
)

// limitConnections returns a listener that accepts at most n connections at a time. The
// others wait in the queue of the kernel.
func limitConnections(l net.Listener, n int) net.Listener {
	return &limitListener{Listener: l, free: make(chan struct{}, n), done: make(chan struct{})}
}

type limitListener struct {
	net.Listener
	free chan struct{} // holds a value for each open connection
	once sync.Once
	done chan struct{}
}

// Accept implements net.Listener.
func (l *limitListener) Accept() (net.Conn, error) {
	select {
	case l.free <- struct{}{}:
	case <-l.done:
		return nil, net.ErrClosed
	}

	c, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &limitedConn{Conn: c, l: l}, nil
}

// Close implements net.Listener.
func (l *limitListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.Listener.Close()
}

// limitedConn makes room when it is closed.
type limitedConn struct {
	net.Conn
	l    *limitListener
	once sync.Once
}

// Close implements net.Conn.
func (l *limitedConn) Close() error {
	err := l.Conn.Close()
	l.once.Do(func() { <-l.l.free })
	return err
}

// CloseWrite ends the answer, so that a client which still sends can read it.
func (l *limitedConn) CloseWrite() error {
	if c, ok := l.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}
