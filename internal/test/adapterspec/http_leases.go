package adapterspec

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
)

var httpLeases = []spec{
	{"a stream holds the lease until it ends", onHTTP(heldByServerStream)},
	{"a connection that was taken over holds the lease until it is closed", onHTTP(heldByConnection)},
}

// httpRanges holds for frameworks that can serve contents other than files.
var httpRanges = []spec{{"a content is served in ranges under a lease", onHTTP(contentUnderLease)}}

// inFlight starts a server that lets one request in at a time. Each is answered by the next
// handler that the test sends.
func (h *httpBench) inFlight() chan<- Handler {
	h.Helper()
	next := make(chan Handler, 1)
	h.serve(HTTPApp{Limiter: h.one(), Handler: func(x Exchange) error { return (<-next)(x) }})
	return next
}

func replyOK(x Exchange) error { return x.Reply(200, "ok") }

func heldByServerStream(b *httpBench) {
	for _, contentType := range []string{Plain, "text/event-stream"} {
		g, next := newGate(), b.inFlight()
		next <- func(x Exchange) error {
			return x.Stream(contentType, func(send func(string) error) error {
				if err := send("data: 1\n\n"); err != nil {
					return err
				}
				g.pass()
				return send("data: 2\n\n")
			})
		}

		// Between its two texts the stream has the lease.
		response := b.get("GET /")
		first := make([]byte, len("data: 1\n\n"))
		if _, err := io.ReadFull(response.Body, first); err != nil {
			b.Fatal(err)
		}
		await(b, "the first text has been sent", g.entered)
		b.steps(step{0, "GET /", b.busy()})
		g.leave <- struct{}{}

		// Its headers were sent before its length was known.
		second, err := io.ReadAll(response.Body)
		if err != nil {
			b.Fatal(err)
		}
		want := Typed(200, contentType, "data: 1\n\ndata: 2\n\n").streamed().with(leaseHeaders(0))
		b.equal(answerOf(response, string(first)+string(second)), want, "the stream")

		// The lease is free when the stream has ended.
		b.released()
		next <- replyOK
		b.steps(step{0, "GET /", b.free()})
		b.released()
	}
}

// heldByConnection upgrades to a protocol that sends every line back.
func heldByConnection(b *httpBench) {
	next := b.inFlight()
	next <- func(x Exchange) error { return x.Hijack(func(c net.Conn) { _, _ = io.Copy(c, c) }) }
	conn := b.dial()
	if err := b.request("GET /\nConnection: Upgrade\nUpgrade: echo").Write(conn); err != nil {
		b.Fatal(err)
	}

	lines := bufio.NewReader(conn)
	response, err := http.ReadResponse(lines, nil)
	if err != nil || response.StatusCode != 101 || response.Header.Get("Upgrade") != "echo" {
		b.Fatalf("the upgrade: %+v, %v", response, err)
	}

	// The handler has returned, and the connection still holds the lease.
	for range 2 {
		talk(b, conn, lines)
		b.steps(step{0, "GET /", b.busy()})
	}

	conn.Close()
	b.released()
	next <- replyOK
	b.steps(step{0, "GET /", b.free()})
}

func talk(t testing.TB, conn io.Writer, lines *bufio.Reader) {
	t.Helper()
	if _, err := io.WriteString(conn, "ping\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := lines.ReadString('\n'); err != nil || line != "ping\n" {
		t.Fatalf("got %q, %v", line, err)
	}
}

func contentUnderLease(b *httpBench) {
	const content = "0123456789"
	b.serve(HTTPApp{Limiter: b.one(), Handler: func(x Exchange) error { return x.ServeContent(content) }})
	file := map[string]string{"Accept-Ranges": "bytes", "Last-Modified": Changed.UTC().Format(http.TimeFormat)}
	part := map[string]string{"Content-Range": "bytes 2-4/10"}

	// Each request finds the lease free, as the one before has ended.
	for _, s := range []step{
		{0, "GET /", Text(200, content).with(leaseHeaders(0), file)},
		{0, "GET /\nRange: bytes=2-4", Text(206, "234").with(leaseHeaders(0), file, part)},
		{0, "HEAD /", Text(200, content).with(leaseHeaders(0), file).forHEAD()},
		{0, "GET /", Text(200, content).with(leaseHeaders(0), file)},
	} {
		b.steps(s)
		b.released()
	}
}
