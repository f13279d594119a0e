package spoe

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/callers"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/engine"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/quietlog"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/policy"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func shop(name, limit string) policy.Policy {
	return policy.Policy{Name: name, Apps: []string{"shop"}, Limit: core.MustParseLimit(limit), Key: "ip"}
}

// open returns a server that carries out the policies in memory, with the options of f.
func open(t testing.TB, logger *slog.Logger, f func(*callers.Options, *Options), policies ...policy.Policy) *Server {
	t.Helper()
	co, o := callers.Options{}, Options{}
	if f != nil {
		f(&co, &o)
	}
	c, err := callers.New(co)
	if err != nil {
		t.Fatal(err)
	}

	e, err := engine.Open(t.Context(),
		engine.Options{Apps: []string{"shop", "blog"}, Source: engine.Fixed(policies), Bindings: c.Bindings(),
			Logger: logger})
	if err != nil {
		t.Fatal(err)
	}

	log := quietlog.New(logger)
	o.Callers, o.Log = c, log
	s, err := New(e, o)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := errors.Join(s.Shutdown(context.Background()), e.Close()); err != nil {
			t.Error(err)
		}
		log.Close()
	})
	return s
}

// haproxy is HAProxy's side of a connection.
type haproxy struct {
	t testing.TB
	c net.Conn
	r *bufio.Reader
}

// connect returns a connection to the server, before the HELLO.
func connect(t testing.TB, s *Server) *haproxy {
	t.Helper()
	ours, theirs := net.Pipe()
	c := &conn{server: s, net: theirs, pending: make(chan struct{}, maxPending)}
	if s.add(c) {
		go c.serve()
	} else {
		_ = theirs.Close()
	}
	t.Cleanup(func() { _ = ours.Close() })
	return &haproxy{t, ours, bufio.NewReader(ours)}
}

func (h *haproxy) send(b []byte) {
	h.t.Helper()
	if _, err := h.c.Write(b); err != nil {
		h.t.Fatal(err)
	}
}

func (h *haproxy) receive() frame {
	h.t.Helper()
	f, err := readFrame(h.r, maxFrame)
	if err != nil {
		h.t.Fatal(err)
	}
	return f
}

// ended checks that the server has closed the connection.
func (h *haproxy) ended() {
	h.t.Helper()
	if _, err := h.r.ReadByte(); !errors.Is(err, io.EOF) {
		h.t.Errorf("the connection goes on: %v", err)
	}
}

// pairs returns the pairs of a payload.
func (h *haproxy) pairs(f frame) map[string]value {
	h.t.Helper()
	list := map[string]value{}
	p := parser{rest: f.payload}
	if err := p.pairs(func(name string, v value) { list[name] = v }); err != nil {
		h.t.Fatal(err)
	}
	return list
}

// helloFrame is the first frame, of pairs of names and values.
func helloFrame(pairs ...any) []byte {
	b := beginFrame(nil, haproxyHello, 0, 0)
	for i := 0; i < len(pairs); i += 2 {
		b = appendPair(b, pairs[i].(string), pairs[i+1])
	}
	return endFrame(b)
}

// greeted returns a connection after the HELLO.
func greeted(t testing.TB, s *Server) *haproxy {
	t.Helper()
	h := connect(t, s)
	h.send(helloFrame("supported-versions", "2.0", "max-frame-size", uint32(16380), "capabilities", "pipelining,async"))
	if f := h.receive(); f.kind != agentHello {
		t.Fatalf("the HELLO was answered by type %d", f.kind)
	}
	return h
}

// message is a request that HAProxy asks about.
type message struct {
	name            string // "" is Message
	src             string
	method, path    string
	headers         [][2]string
	app, user, plan string
	claims          string
	without         []string
	more            int // so many further arguments
}

// append appends the message to a payload.
func (m message) append(b []byte) []byte {
	var args []byte
	n := 0
	add := func(name string, value []byte) {
		if !slices.Contains(m.without, name) {
			args = append(appendText(args, name), value...)
			n++
		}
	}

	if ip, err := netip.ParseAddr(m.src); err != nil {
		add("src", []byte{typeNull})
	} else if ip.Is4() {
		add("src", append([]byte{typeIPv4}, ip.AsSlice()...))
	} else {
		add("src", append([]byte{typeIPv6}, ip.AsSlice()...))
	}

	add("method", appendValue(nil, m.method))
	if m.path == "" {
		add("path", []byte{typeNull})
	} else {
		add("path", appendValue(nil, m.path))
	}

	var headers []byte
	for _, h := range m.headers {
		headers = appendText(appendText(headers, h[0]), h[1])
	}
	add("headers", appendText([]byte{typeBinary}, append(headers, 0, 0)))

	// In the order of the map, another one each time: the arguments have names and no places.
	for name, v := range map[string]string{"app": m.app, "user": m.user, "plan": m.plan, "claims": m.claims} {
		if v != "" {
			add(name, appendValue(nil, v))
		}
	}
	for range m.more {
		add("more", []byte{typeNull})
	}

	name := m.name
	if name == "" {
		name = Message
	}
	b = append(appendText(b, name), byte(n))
	return append(b, args...)
}

// notifyFrame asks about the messages.
func notifyFrame(stream, number uint64, list ...message) []byte {
	b := beginFrame(nil, notify, stream, number)
	for _, m := range list {
		b = m.append(b)
	}
	return endFrame(b)
}

// about is a usual request.
func about(src string) message {
	return message{src: src, method: "GET", path: "/", headers: [][2]string{{"host", "shop.example"}}}
}

// ask returns the variables that the answer to a message sets.
func (h *haproxy) ask(m message) map[string]value {
	h.t.Helper()
	h.send(notifyFrame(7, 300, m))
	f := h.receive()
	if f.kind != ack || f.flags != final || f.stream != 7 || f.frame != 300 {
		h.t.Fatalf("answered by %+v", f)
	}
	return h.variables(f)
}

// variables returns the variables that an ACK sets.
func (h *haproxy) variables(f frame) map[string]value {
	h.t.Helper()

	set := map[string]value{}
	p := parser{rest: f.payload}
	for p.rest != "" && p.err == nil {
		if verb, n, scope := p.byte(), p.byte(), p.byte(); verb != 1 || n != 3 || scope != 2 {
			h.t.Fatalf("the action %d with %d arguments in scope %d", verb, n, scope)
		}
		name := p.text()
		set[name] = p.value()
	}

	if p.err != nil {
		h.t.Fatal(p.err)
	}
	return set
}
