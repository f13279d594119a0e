package faultproxy

import (
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test"
)

// A Proxy passes commands and replies between clients and one server, and has one
// [Fault] at a time. It is safe for concurrent use.
type Proxy struct {
	// Addr is the address to which clients connect. It stays the same while
	// connections are refused.
	Addr string

	t        testing.TB
	changing sync.Mutex // held while the fault is changed, and taken before mu
	door     door       // Guarded by changing.
	raw      bool       // the traffic is not parsed

	// Guarded by mu.

	mu     sync.Mutex
	server string
	fault  Fault
	calls  int // of scripts since Set
	counts Counts
	random *rand.Rand // always of the same seed
	links  map[*link]struct{}
	closed bool

	running sync.WaitGroup
}

// Counts are the counters of a proxy.
type Counts struct {
	// Connections is how many were accepted.
	Connections int

	// Scripts is how many calls of scripts went to the server whole.
	Scripts int

	// Errors is how many of them the server answered with an error.
	Errors int

	// Struck is how many calls of scripts the fault in force has picked.
	Struck int

	// Request and Reply are the lengths in bytes of the latest call of a script
	// and of the latest reply to one, before any cut.
	Request, Reply int
}

// New starts a proxy in front of the server at the address. It ends with the test.
func New(t testing.TB, server string) *Proxy {
	t.Helper()
	return launch(&Proxy{t: t, server: server})
}

// Raw starts a proxy as [New] does, for traffic that it cannot read, such as
// TLS. It picks and counts no calls of scripts, so faults of calls have no effect.
func Raw(t testing.TB, server string) *Proxy {
	t.Helper()
	return launch(&Proxy{t: t, server: server, raw: true})
}

func launch(p *Proxy) *Proxy {
	p.t.Helper()
	p.links, p.random = map[*link]struct{}{}, rand.New(rand.NewPCG(1, 2))
	p.changing.Lock()
	defer p.changing.Unlock()
	if err := p.open(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(p.Close)
	return p
}

// Set puts f in force at once, in place of the fault before, and starts to
// count the calls of scripts anew. On Windows a Blackhole skips the test, so
// the test's own goroutine has to set it.
func (p *Proxy) Set(f Fault) {
	p.t.Helper()
	if f.Blackhole && !canBlackhole {
		test.Skip(p.t, "Windows answers every attempt to connect")
	}

	// New connections meet the fault before the open ones are ended by it.
	p.changing.Lock()
	defer p.changing.Unlock()
	if !p.enforce(f) {
		return
	}

	if err := p.setDoor(f); err != nil {
		p.t.Errorf("faultproxy: %v", err)
	}
	if f.Refuse || f.Reset {
		p.severAll(f.Reset)
	}
}

// enforce makes f the fault in force, unless the proxy is closed.
func (p *Proxy) enforce(f Fault) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.calls, p.counts.Struck = f, 0, 0
	for l := range p.links {
		if f.mute() {
			l.mute.Store(true)
		}
		l.budget.Store(p.lifeLocked())
	}
	return !p.closed
}

// lifeLocked draws how many bytes a connection may pass.
func (p *Proxy) lifeLocked() int64 {
	if p.fault.Life == 0 {
		return math.MaxInt64
	}
	return p.random.Int64N(int64(p.fault.Life))
}

// Flap sets each of the faults in turn, for as long as every, until stop is
// called. stop sets the zero fault and returns when it is in force.
func (p *Proxy) Flap(every time.Duration, faults ...Fault) (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(every)
		defer tick.Stop()

		for i := 0; ; i++ {
			p.Set(faults[i%len(faults)])
			select {
			case <-tick.C:
			case <-end:
				p.Set(Fault{})
				return
			}
		}
	}()

	return sync.OnceFunc(func() {
		close(end)
		<-done
	})
}

// Redirect makes addr the server of later connections, and resets the open
// ones.
func (p *Proxy) Redirect(addr string) {
	p.mu.Lock()
	p.server = addr
	p.mu.Unlock()
	p.severAll(true)
}

// Counts returns the current counters.
func (p *Proxy) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

// Close ends all connections and waits until the proxy has stopped. It may be
// called again.
func (p *Proxy) Close() {
	p.changing.Lock()
	defer p.changing.Unlock()

	// No link is registered after this, so that those which are ended now are all.
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.shut()
	p.severAll(false)
	p.running.Wait()
}

// severAll ends every connection that is open.
func (p *Proxy) severAll(abort bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.sever(abort)
	}
}

// register registers an accepted client, and returns nil for a client that is to
// be reset.
func (p *Proxy) register(client *net.TCPConn) *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.fault.Reset || p.fault.Refuse {
		return nil
	}
	l := &link{proxy: p, client: client, done: make(chan struct{}), out: make(chan parcel, 256)}
	l.mute.Store(p.fault.mute())
	l.budget.Store(p.lifeLocked())
	p.links[l] = struct{}{}
	p.counts.Connections++
	return l
}

func (p *Proxy) unregister(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// current returns the fault in force.
func (p *Proxy) current() Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault
}

func (p *Proxy) upstream() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.server
}

// classify returns the call of a command. The fault in force picks it or not.
func (p *Proxy) classify(command []byte) call {
	name := commandName(command)

	p.mu.Lock()
	defer p.mu.Unlock()
	c := call{script: isScript(name), stream: isStream(name), fault: p.fault}
	if !c.script || p.fault.mute() {
		return c
	}

	// Only scripts are counted, so that the commands by which clients open connections shift
	// nothing.
	p.calls++
	p.counts.Request = len(command)
	if c.picked = p.fault.picks(p.calls); c.picked {
		p.counts.Struck++
	}
	return c
}

// passed counts a script call that went to the server whole.
func (p *Proxy) passed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts.Scripts++
}

// answered counts the server's reply to a script.
func (p *Proxy) answered(reply []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts.Reply = len(reply)
	if reply[0] == '-' || reply[0] == '!' {
		p.counts.Errors++
	}
}
