package faultproxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/freeport"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

// patience bounds what should happen at once.
const patience = 30 * time.Second

const (
	ping   = "*1\r\n$4\r\nPING\r\n"
	pong   = "+PONG\r\n"
	script = "*3\r\n$7\r\nevalsha\r\n$3\r\nabc\r\n$1\r\n0\r\n"
	answer = "*2\r\n:1\r\n$3\r\nyes\r\n"
)

// server answers commands as the table says, and notes every byte that came.
type server struct {
	addr string

	mu    sync.Mutex
	came  strings.Builder
	conns []net.Conn
	ended int
}

var answers = map[string]string{
	"PING": pong, "EVALSHA": answer, "HELLO": "%1\r\n+proto\r\n:3\r\n", "PUSHED": ">2\r\n+news\r\n:1\r\n+OK\r\n",
	"EVAL": "-ERR no\r\n", "MONITOR": "+OK\r\nline one\nline two\n",
}

func newServer(t testing.TB) *server {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{addr: ln.Addr().String()}

	// Open is the accept loop and every connection that it has made.
	var open sync.WaitGroup
	open.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, c)
			s.mu.Unlock()
			open.Go(func() { s.serve(c) })
		}
	})

	// The connections are closed before the wait, since each of their goroutines reads until an
	// end.
	t.Cleanup(func() {
		ln.Close()
		s.mu.Lock()
		for _, c := range s.conns {
			c.Close()
		}
		s.mu.Unlock()
		open.Wait()
	})
	return s
}

func (s *server) serve(c net.Conn) {
	defer func() {
		c.Close()
		s.mu.Lock()
		s.ended++
		s.mu.Unlock()
	}()

	// What was read is recorded before it is parsed, so that a part of a command counts too.
	r := bufio.NewReader(io.TeeReader(c, s))
	for {
		command, err := readCommand(r)
		if err != nil {
			return
		}
		io.WriteString(c, answers[commandName(command)])
	}
}

func (s *server) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.came.Write(p)
}

func (s *server) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.came.String()
}

func (s *server) endings() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

func dial(t testing.TB, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

func say(t testing.TB, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

func hear(t testing.TB, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("heard %q, %v; want %q", got[:n], err, want)
	}
}

// hearEnd reads what is left, and how the connection ended.
func hearEnd(t testing.TB, c net.Conn, want string, ending error) {
	t.Helper()
	got, err := io.ReadAll(c)
	if string(got) != want || !errors.Is(err, ending) {
		t.Fatalf("heard %q, %v; want %q, %v", got, err, want, ending)
	}
}

// wantReset fails the test unless a connection to addr is reset, at once or later.
func wantReset(t testing.TB, addr string) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err == nil {
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		_, err = io.ReadAll(c)
	}
	if !errors.Is(err, errReset) {
		t.Errorf("%v, want a reset", err)
	}
}

// hearNothing waits a moment for what must not come.
func hearNothing(t testing.TB, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	var b [64]byte
	if n, err := c.Read(b[:]); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("heard %q, %v", b[:n], err)
	}
	c.SetReadDeadline(time.Now().Add(patience))
}

func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	end := time.Now().Add(patience)
	for !done() {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s", what, patience)
		}
		<-tick.C
	}
}

func start(t testing.TB) (*Proxy, *server) {
	s := newServer(t)
	return New(t, s.addr), s
}

func TestProxyWithoutFault(t *testing.T) {
	p, s := start(t)
	c := dial(t, p.Addr)
	hello := "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n"
	say(t, c, hello+script+"PUSHED\r\n"+ping)
	hear(t, c, answers["HELLO"]+answer+answers["PUSHED"]+pong)
	if got, want := s.text(), hello+script+"PUSHED\r\n"+ping; got != want {
		t.Errorf("the server got %q, want %q", got, want)
	}
	if got, want := p.Counts(),
		(Counts{Connections: 1, Scripts: 1, Struck: 1, Request: len(script), Reply: len(answer)}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

func TestProxyCountsScriptErrors(t *testing.T) {
	p, _ := start(t)
	c := dial(t, p.Addr)
	say(t, c, script+"EVAL x 0\r\n"+ping)
	hear(t, c, answer+answers["EVAL"]+pong)
	if got := p.Counts(); got.Scripts != 2 || got.Errors != 1 {
		t.Errorf("%+v", got)
	}
}

func TestCutRequestAfterEveryByte(t *testing.T) {
	p, s := start(t)
	for n := range len(script) + 2 {
		p.Set(Fault{CutRequest: After(n)})

		before, ended := len(s.text()), s.endings()
		c := dial(t, p.Addr)
		say(t, c, ping)
		hear(t, c, pong)
		say(t, c, script)
		hearEnd(t, c, "", nil)

		// The server has the bytes of the script up to the cut, and of what came before all of
		// them.
		until(t, "the end at the server", func() bool { return s.endings() > ended })
		if got, want := s.text()[before:], ping+script[:min(n, len(script))]; got != want {
			t.Errorf("after %d bytes the server had %q, want %q", n, got, want)
		}
	}

	// The script was whole with a cut right after its last byte, and with one beyond it.
	if got := p.Counts().Scripts; got != 2 {
		t.Errorf("%d scripts went through whole, want those of the last two cuts", got)
	}
}

func TestCutReplyAfterEveryByte(t *testing.T) {
	p, s := start(t)
	for _, abort := range []bool{false, true} {
		for n := range len(answer) + 1 {
			p.Set(Fault{CutReply: After(n), Abort: abort})
			c := dial(t, p.Addr)
			say(t, c, ping)
			hear(t, c, pong)
			say(t, c, script)
			if abort {
				// A reset may overtake what was sent before it.
				if _, err := io.ReadAll(c); !errors.Is(err, errReset) {
					t.Errorf("after %d bytes: %v, want a reset", n, err)
				}
				continue
			}
			hearEnd(t, c, answer[:n], nil)
		}
	}

	// The server ran the script each time: a lost reply is the fault that matters to callers who
	// would repeat a call.
	if got, want := strings.Count(s.text(), script), 2*(len(answer)+1); got != want {
		t.Errorf("the server ran %d scripts, want %d", got, want)
	}
}

func TestFaultOfNthScript(t *testing.T) {
	p, _ := start(t)
	p.Set(Fault{Nth: 3, Garbage: "@#!\r\n"})
	c := dial(t, p.Addr)

	for i := 1; i <= 5; i++ {
		say(t, c, ping+script)
		want := answer
		if i == 3 {
			want = "@#!\r\n"
		}
		hear(t, c, pong+want)
	}

	if got := p.Counts(); got.Struck != 1 || got.Scripts != 5 {
		t.Errorf("%+v", got)
	}
}

func TestDropKeepsConnection(t *testing.T) {
	p, s := start(t)
	p.Set(Fault{Nth: 1, Drop: true})
	c := dial(t, p.Addr)
	say(t, c, script+ping)
	hear(t, c, pong)
	if got := s.text(); got != script+ping {
		t.Errorf("the server got %q", got)
	}
}

func TestSilence(t *testing.T) {
	for name, f := range map[string]Fault{"silent": {Silent: true}, "blackhole": {Blackhole: true}} {
		t.Run(name, func(t *testing.T) {
			p, s := start(t)
			old := dial(t, p.Addr)
			say(t, old, ping)
			hear(t, old, pong)

			// Both kinds swallow what comes on a connection that worked before.
			p.Set(f)
			say(t, old, script)
			hearNothing(t, old)

			// A silent server also accepts new ones, and answers none of them to the end.
			if name == "silent" {
				c := dial(t, p.Addr)
				say(t, c, ping)
				hearNothing(t, c)
				defer hearNothing(t, c)
			}

			// The old connection has lost bytes and stays silent when the fault is over. A new one
			// works.
			p.Set(Fault{})
			say(t, old, ping)
			hearNothing(t, old)
			if got := s.text(); got != ping {
				t.Errorf("the server got %q", got)
			}

			c := dial(t, p.Addr)
			say(t, c, ping)
			hear(t, c, pong)
		})
	}
}

func TestBlackhole(t *testing.T) {
	p, _ := start(t)
	p.Set(Fault{Blackhole: true})
	c, err := net.DialTimeout("tcp", p.Addr, 30*time.Millisecond)
	var e net.Error
	if !errors.As(err, &e) || !e.Timeout() {
		t.Fatalf("%v, %v; want a timeout", c, err)
	}
}

func TestRefuse(t *testing.T) {
	p, _ := start(t)
	for range 3 {
		c := dial(t, p.Addr)
		say(t, c, ping)
		hear(t, c, pong)
		p.Set(Fault{Refuse: true})
		hearEnd(t, c, "", nil)
		if _, err := net.Dial("tcp", p.Addr); !errors.Is(err, errRefused) {
			t.Fatalf("%v, want a refusal", err)
		}
		p.Set(Fault{})
	}
}

func TestReset(t *testing.T) {
	p, _ := start(t)
	c := dial(t, p.Addr)
	say(t, c, ping)
	hear(t, c, pong)
	p.Set(Fault{Reset: true})
	hearEnd(t, c, "", errReset)
	wantReset(t, p.Addr)
}

func TestDelay(t *testing.T) {
	p, _ := start(t)
	p.Set(Fault{Delay: 30 * time.Millisecond, Jitter: time.Millisecond})
	c := dial(t, p.Addr)
	begin := time.Now()
	say(t, c, ping+script+ping)
	hear(t, c, pong+answer+pong)
	took := time.Since(begin)
	if took < 30*time.Millisecond {
		t.Errorf("three replies after %v", took)
	}
	test.AtMost(t, "three replies, each held back for 30 ms", took, 85*time.Millisecond)
}

// Each second call of a script is late, and what is no script is not.
func TestEachSecondReplyIsLate(t *testing.T) {
	p, _ := start(t)
	p.Set(Fault{Every: 2, Late: 300 * time.Millisecond})
	c := dial(t, p.Addr)

	for n, late := range []bool{false, true, false, true} {
		begin := time.Now()
		say(t, c, ping+script)
		hear(t, c, pong+answer)
		if took := time.Since(begin); late && took < 300*time.Millisecond {
			t.Errorf("reply %d after %v", n, took)
		}
	}

	if n := p.Counts().Struck; n != 2 {
		t.Errorf("%d calls were picked", n)
	}
}

// Replies that come together are due together, and none before an earlier one.
func TestDelayOfPipelinedReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = 30 * time.Millisecond
		p := &Proxy{fault: Fault{Delay: delay}}

		// The two come at the same instant.
		due := p.due(time.Time{})
		if want := time.Now().Add(delay); due != want || p.due(due) != want {
			t.Errorf("due %v and %v, want both %v", due, p.due(due), want)
		}

		// One that comes later is due later.
		time.Sleep(delay / 2)
		if got, want := p.due(due), time.Now().Add(delay); got != want {
			t.Errorf("due %v, want %v", got, want)
		}

		// An earlier reply that is due late holds up those behind it.
		if late := time.Now().Add(time.Hour); p.due(late) != late {
			t.Errorf("due %v, before an earlier reply at %v", p.due(late), late)
		}
	})
}

func TestTrickle(t *testing.T) {
	p, _ := start(t)
	p.Set(Fault{Rate: 1000})
	c := dial(t, p.Addr)
	begin := time.Now()
	say(t, c, script)
	hear(t, c, answer)
	if took, least := time.Since(begin), time.Duration(len(answer))*time.Millisecond; took < least {
		t.Errorf("%d bytes at 1000 a second after %v", len(answer), took)
	}
}

func TestFlapEndsWithStop(t *testing.T) {
	p, _ := start(t)
	stop := p.Flap(time.Millisecond, Fault{Refuse: true}, Fault{})
	until(t, "refused", func() bool { return p.current().Refuse })
	until(t, "open", func() bool { return !p.current().Refuse })
	stop()
	stop()
	if p.current() != (Fault{}) {
		t.Error("a fault is left")
	}
	c := dial(t, p.Addr)
	say(t, c, ping)
	hear(t, c, pong)
}

func TestStreamWithoutFrames(t *testing.T) {
	p, s := start(t)
	c := dial(t, p.Addr)
	say(t, c, "*1\r\n$7\r\nMONITOR\r\n")
	hear(t, c, answers["MONITOR"])
	say(t, c, "REPLCONF ACK 7\r\n")
	until(t, "the stream", func() bool { return strings.HasSuffix(s.text(), "REPLCONF ACK 7\r\n") })
}

func TestRedirect(t *testing.T) {
	p, first := start(t)
	second := newServer(t)

	c := dial(t, p.Addr)
	say(t, c, ping)
	hear(t, c, pong)

	// A redirect ends connections to the first server, as the loss of a server does.
	p.Redirect(second.addr)
	hearEnd(t, c, "", errReset)

	c = dial(t, p.Addr)
	say(t, c, script)
	hear(t, c, answer)
	if first.text() != ping || second.text() != script {
		t.Errorf("the first got %q, the second %q", first.text(), second.text())
	}
}

func TestResetWithoutServer(t *testing.T) {
	wantReset(t, New(t, freeport.Addr(t)).Addr)
}

func TestProxyClosed(t *testing.T) {
	p, _ := start(t)
	c := dial(t, p.Addr)
	say(t, c, ping)
	hear(t, c, pong)
	p.Close()
	p.Close()
	p.Set(Fault{Blackhole: true})
	hearEnd(t, c, "", nil)
	if _, err := net.Dial("tcp", p.Addr); !errors.Is(err, errRefused) {
		t.Errorf("%v", err)
	}
}

func TestFrames(t *testing.T) {
	for _, frame := range []string{
		"+OK\r\n", "-ERR no\r\n", ":12\r\n", "$-1\r\n", "$0\r\n\r\n", "$3\r\na\r\n\r\n",
		"*0\r\n", "*-1\r\n", "_\r\n", "#t\r\n",
		",1.5\r\n", "(123\r\n", "=7\r\ntxt:abc\r\n", "!5\r\nERR x\r\n", "*2\r\n*1\r\n:1\r\n$1\r\nx\r\n",
		"%1\r\n+a\r\n~2\r\n:1\r\n:2\r\n",

		"|1\r\n+ttl\r\n:3\r\n*1\r\n:1\r\n", ">2\r\n+a\r\n*1\r\n_\r\n",
	} {
		// The bytes of the next frame must be left in the reader.
		r := bufio.NewReader(strings.NewReader(frame + "+next\r\n"))
		got, err := readFrame(r, nil)
		if string(got) != frame || err != nil {
			t.Errorf("%q was read as %q, %v", frame, got, err)
		}
	}

	// Frames that end too early or have a length that cannot be believed.
	for _, frame := range []string{"x\r\n", "$x\r\n", "$-2\r\n", "*9999999999\r\n", "+OK", "$3\r\nab", "*2\r\n:1\r\n"} {
		if got, err := readFrame(bufio.NewReader(strings.NewReader(frame)), nil); err == nil {
			t.Errorf("%q was read as %q", frame, got)
		}
	}
}

func TestFrameCommand(t *testing.T) {
	for text, want := range map[string]string{ping: "PING", script: "EVALSHA", "quit now\r\n": "QUIT",
		"*0\r\n": "", "\r\n": ""} {
		command, err := readCommand(bufio.NewReader(strings.NewReader(text)))
		if got := commandName(command); got != want || err != nil {
			t.Errorf("%q is %q, %v", text, got, err)
		}
	}
	if fmt.Sprint(isScript("EVALSHA"), isScript("GET"),
		isStream("PSYNC"), isStream("EVAL")) != "true false true false" {
		t.Error("kinds of commands are mixed up")
	}
}

// Fewer bytes than Life pass both ways, and then the connection ends on both sides.
func TestConnectionLife(t *testing.T) {
	for _, raw := range []bool{false, true} {
		s := newServer(t)
		p := New(t, s.addr)
		if raw {
			p = Raw(t, s.addr)
		}

		old := dial(t, p.Addr)
		say(t, old, ping)
		hear(t, old, pong)

		// A connection ends after fewer bytes than Life, so none gets through a whole call and its
		// reply.
		p.Set(Fault{Life: len(script) + len(answer)})
		for i, c := range []net.Conn{old, dial(t, p.Addr), dial(t, p.Addr), dial(t, p.Addr)} {
			before := len(s.text())
			say(t, c, script)
			got, _ := io.ReadAll(c)
			until(t, "an end", func() bool { return s.endings() == i+1 })

			passed := s.text()[before:]
			if !strings.HasPrefix(script, passed) || !strings.HasPrefix(answer, string(got)) ||
				len(passed)+len(got) >= len(script)+len(answer) {
				t.Errorf("raw %t: %q passed to the server and %q back", raw, passed, got)
			}
		}

		// Without the fault a connection lives on.
		p.Set(Fault{})
		c := dial(t, p.Addr)
		say(t, c, script)
		hear(t, c, answer)
	}
}

func TestRawProxy(t *testing.T) {
	s := newServer(t)
	p := Raw(t, s.addr)
	c := dial(t, p.Addr)
	say(t, c, ping[:3]) // not yet a command
	until(t, "half a command", func() bool { return s.text() == ping[:3] })
	say(t, c, ping[3:]+script)
	hear(t, c, pong+answer)
	if got, want := p.Counts(), (Counts{Connections: 1}); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
}

// A process that is being started may hold the port for a moment.
func TestPortTakenBack(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()

	p := New(t, server.Addr().String())

	// The port is closed and taken by another, as by a process that is being started.
	p.Set(Fault{Refuse: true})
	other, err := net.Listen("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(20*time.Millisecond, func() { other.Close() }).Stop()

	// The proxy tries again until the other has gone.
	p.Set(Fault{})
	c, err := net.Dial("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}
