package faultproxy

import (
	"bufio"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A link is the connection of one client and its counterpart at the server.
//
//	attached ── requests: client to server ─┐
//	         ── replies: server to out      ├─ any end, cut or sever ── severed
//	         ── deliver: out to client ─────┘
//
// A mute link is not attached if it was mute from the beginning. It reads what comes and passes
// nothing, until its client gives up. A severed link has both connections closed, and stays so.
//
// requests appends a call for each command, and replies takes one for each reply, in the same
// order: that is how a reply is known to belong to a script.
type link struct {
	proxy  *Proxy
	client *net.TCPConn
	mute   atomic.Bool   // for ever
	budget atomic.Int64  // how many bytes may still pass
	done   chan struct{} // closed when the link is cut
	out    chan parcel

	mu      sync.Mutex
	server  net.Conn // Guarded by mu until the link is attached.
	severed bool     // Guarded by mu.
	pending []call   // Guarded by mu. Calls whose replies are still to come, the oldest first.
}

// A call is a command and its treatment.
type call struct {
	script bool
	stream bool // replies and commands no longer come in pairs after it
	picked bool
	fault  Fault // in force when it came
}

// A parcel is bytes on their way to the client.
type parcel struct {
	data []byte
	due  time.Time
	last bool
	rst  bool
}

// serve passes bytes until the link is cut.
func (l *link) serve() {
	defer l.proxy.unregister(l)
	defer l.sever(false)
	if l.mute.Load() {
		l.swallow()
		return
	}

	// A client whose server is away is reset, as if the server had been.
	server, err := net.DialTimeout("tcp", l.proxy.upstream(), time.Second)
	if err != nil || !l.attach(server) {
		l.sever(true)
		return
	}

	var pumps sync.WaitGroup
	pumps.Go(l.requests)
	pumps.Go(func() { l.replies(server) })
	pumps.Go(l.deliver)
	pumps.Wait()
}

// attach gives the link its server, unless it is cut already.
func (l *link) attach(server net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.severed {
		server.Close()
		return false
	}
	l.server = server
	return true
}

// sever cuts the link; abort resets the client.
func (l *link) sever(abort bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.severed {
		return
	}

	l.severed = true
	close(l.done)
	if abort {
		l.client.SetLinger(0)
	}

	// Closing ends the reads and writes that are under way.
	l.client.Close()
	if l.server != nil {
		l.server.Close()
	}
}

// swallow reads until the client leaves or the link is cut.
func (l *link) swallow() {
	var buffer [4096]byte
	for {
		if _, err := l.client.Read(buffer[:]); err != nil {
			return
		}
	}
}

// requests passes commands to the server.
func (l *link) requests() {
	defer l.sever(false)
	r := bufio.NewReaderSize(l.client, 64<<10)
	if l.proxy.raw {
		l.upload(r)
		return
	}

	for {
		command, err := readCommand(r)
		if err != nil {
			return
		}

		// After a command such as SUBSCRIBE the client may send what is no command.
		c := l.proxy.classify(command)
		if !l.request(c, command) {
			return
		}
		if c.stream {
			l.upload(r)
			return
		}
	}
}

// request passes one command, and reports whether the link goes on.
func (l *link) request(c call, command []byte) bool {
	if l.mute.Load() {
		return true
	}

	cut := c.picked && c.fault.CutRequest != 0
	part := command
	if cut {
		part = c.fault.CutRequest.head(command)
		c.fault.Drop = true // also if the server is faster than the cut
	}

	// The call is expected before it is sent, as the reply may come at once.
	part, whole := l.spend(part)
	if c.script && len(part) == len(command) {
		l.proxy.passed()
	}
	l.expect(c)
	_, err := l.server.Write(part)
	if cut {
		l.sever(c.fault.Abort)
	}
	return err == nil && whole && !cut
}

// spend returns the part of the data that may still pass, and whether that is
// all of it.
func (l *link) spend(data []byte) (part []byte, whole bool) {
	n := int64(len(data))
	if rest := l.budget.Add(-n); rest < 0 {
		return data[:max(0, n+rest)], false
	}
	return data, true
}

// upload passes the bytes that a client sends in a stream.
func (l *link) upload(r *bufio.Reader) {
	var buffer [4096]byte
	for {
		n, err := r.Read(buffer[:])
		if err != nil {
			return
		}
		if l.mute.Load() {
			continue
		}

		part, whole := l.spend(buffer[:n])
		if _, err := l.server.Write(part); err != nil || !whole {
			return
		}
	}
}

func (l *link) expect(c call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(l.pending, c)
}

// answered returns the call to which the current reply belongs.
func (l *link) answered() call {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) == 0 {
		return call{} // an error at the very beginning answers no call
	}
	c := l.pending[0]
	l.pending = l.pending[1:]
	return c
}

// replies passes replies on. The client still receives the last bytes that the
// server sent.
func (l *link) replies(server net.Conn) {
	defer close(l.out)
	r := bufio.NewReaderSize(server, 64<<10)
	var due time.Time
	if l.proxy.raw {
		l.download(r, due)
		return
	}

	for {
		first, err := r.Peek(1)
		if err != nil {
			return
		}

		// A push of RESP3 answers no call.
		var c call
		if first[0] != '>' {
			c = l.answered()
		}
		if c.stream {
			l.download(r, due)
			return
		}

		reply, err := readFrame(r, nil)
		if err != nil {
			return
		}
		p, ok := l.reply(c, reply)
		if !ok {
			continue
		}

		p.due = l.proxy.due(due)
		if c.picked {
			p.due = p.due.Add(c.fault.Late)
		}
		due = p.due
		if !l.send(p) || p.last {
			return
		}
	}
}

// reply returns the bytes that the client gets of a reply, if any.
func (l *link) reply(c call, reply []byte) (p parcel, ok bool) {
	if c.script {
		l.proxy.answered(reply)
	}
	if l.mute.Load() {
		return p, false
	}

	p.data = reply
	if !c.picked {
		return p, true
	}

	switch f := &c.fault; {
	case f.Drop:
		return p, false
	case f.Garbage != "":
		p.data = []byte(f.Garbage)
	case f.CutReply != 0:
		p = parcel{data: f.CutReply.head(reply), last: true, rst: f.Abort}
	}
	return p, true
}

// download passes the bytes that a server sends in a stream, delayed as replies
// are.
func (l *link) download(r *bufio.Reader, due time.Time) {
	for {
		buffer := make([]byte, 16<<10)
		n, err := r.Read(buffer)
		if err != nil {
			return
		}
		if l.mute.Load() {
			continue
		}

		due = l.proxy.due(due)
		if !l.send(parcel{data: buffer[:n], due: due}) {
			return
		}
	}
}

func (l *link) send(p parcel) bool {
	select {
	case l.out <- p:
		return true
	case <-l.done:
		return false
	}
}
