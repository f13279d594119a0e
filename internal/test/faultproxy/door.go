package faultproxy

import (
	"net"
	"time"

	"github.com/headgate/headgate/internal/test/freeport"
)

// door is the port to which clients connect. The holder of Proxy.changing owns it.
type door struct {
	listener *net.TCPListener // nil while the port is closed
	done     chan struct{}    // closed when the listener is no longer served; nil while it is not
	jam      []net.Conn       // fills the queue of a blackhole
}

// backlog is how many clients may wait to be accepted.
const backlog = 128

// setDoor changes the door to the state that the fault requires.
func (p *Proxy) setDoor(f Fault) error {
	switch {
	case f.Refuse:
		p.shut()
		return nil
	case f.Blackhole:
		return p.jam()
	}
	return p.open()
}

// shut closes the port.
func (p *Proxy) shut() {
	p.pause()
	if p.door.listener != nil {
		p.door.listener.Close()
		p.door.listener = nil
	}
}

// pause stops accepting. Clients may still queue.
func (p *Proxy) pause() {
	p.clear()
	if p.door.done == nil {
		return
	}
	p.door.listener.SetDeadline(time.Unix(1, 0))
	<-p.door.done
	p.door.done = nil
}

// open accepts clients.
func (p *Proxy) open() error {
	p.clear()
	if p.door.done != nil {
		return nil
	}
	if err := p.listen(backlog); err != nil {
		return err
	}

	// A pause has left a deadline in the past.
	ln, done := p.door.listener, make(chan struct{})
	ln.SetDeadline(time.Time{})
	p.door.done = done

	p.running.Go(func() {
		defer close(done)
		p.accept(ln)
	})
	return nil
}

// clear empties the queue of a blackhole.
func (p *Proxy) clear() {
	for _, c := range p.door.jam {
		c.Close()
	}
	p.door.jam = nil
}

// jam fills the queue of clients that wait to be accepted, and accepts none:
// the kernel then leaves further attempts to connect without an answer. The
// queue is full when several attempts in a row get none. One unanswered attempt
// proves nothing, because the machine may have stood still.
func (p *Proxy) jam() error {
	if len(p.door.jam) > 0 {
		return nil
	}

	p.pause()
	if err := p.listen(0); err != nil {
		return err
	}

	for unanswered := 0; unanswered < 3; {
		c, err := net.DialTimeout("tcp", p.Addr, 10*time.Millisecond)
		if err != nil {
			unanswered++
			continue
		}
		unanswered = 0
		p.door.jam = append(p.door.jam, c)
	}
	return nil
}

// listen makes the port listen with a queue of so many clients.
func (p *Proxy) listen(queue int) error {
	if p.door.listener == nil {
		if err := p.bind(); err != nil {
			return err
		}
	}

	// Listening again on a socket that listens changes the length of its queue.
	raw, err := p.door.listener.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = setBacklog(fd, queue) }); err != nil {
		return err
	}
	return failed
}

// bind takes a free port the first time, and the same port afterwards.
func (p *Proxy) bind() error {
	ln, err := p.listenAgain()
	if err != nil {
		return err
	}
	p.door.listener, p.Addr = ln.(*net.TCPListener), ln.Addr().String()
	return nil
}

// listenAgain tries for a while to get the port back: a process that the test has
// just started holds copies of all open sockets until it runs its program.
func (p *Proxy) listenAgain() (net.Listener, error) {
	if p.Addr == "" {
		return freeport.Listen()
	}

	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); ; <-tick.C {
		ln, err := net.Listen("tcp", p.Addr)
		if err == nil || time.Now().After(end) {
			return ln, err
		}
	}
}

// accept serves clients until the listener is paused.
func (p *Proxy) accept(ln *net.TCPListener) {
	for {
		client, err := ln.AcceptTCP()
		if err != nil {
			return
		}

		// Without linger a close sends a reset.
		l := p.register(client)
		if l == nil {
			client.SetLinger(0)
			client.Close()
			continue
		}
		p.running.Go(l.serve)
	}
}
