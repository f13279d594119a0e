package adapterspec

import (
	"bufio"
	"errors"
	"maps"
	"net"
	"net/http"

	"github.com/headgate/headgate/limiter"
)

var httpStatus = []spec{
	{"rules get the status that the client sees", onHTTP(statusSeen)},
	{"rules are told of a client that has left", onHTTP(clientLeft)},
}

// kinds returns the handlers that the framework can have.
func (o *overHTTP) kinds() map[string]Handler {
	list := maps.Clone(httpKinds)
	if o.NoRanges {
		delete(list, "a content")
	}
	return list
}

// httpKinds are handlers that answer in different ways.
var httpKinds = map[string]Handler{
	"a reply":              func(x Exchange) error { return x.Reply(201, "made") },
	"a reply with failure": func(x Exchange) error { return x.Reply(418, "a pot") },
	"nothing":              func(Exchange) error { return nil },
	"a failure":            func(x Exchange) error { return x.Fail(404) },
	"an error":             func(Exchange) error { return errors.New("boom") },
	"a panic":              func(Exchange) error { panic("boom") },
	"an error afterwards": func(x Exchange) error {
		if err := x.Reply(202, "well"); err != nil {
			return err
		}
		return errors.New("boom")
	},
	"a panic afterwards": func(x Exchange) error {
		if err := x.Reply(202, "well"); err != nil {
			return err
		}
		panic("boom")
	},
	"a stream": func(x Exchange) error {
		return x.Stream(Plain, func(send func(string) error) error { return send("a") })
	},
	"a hijack":  func(x Exchange) error { return x.Hijack(func(net.Conn) {}) },
	"a content": func(x Exchange) error { return x.ServeContent("0123456789") },
}

func statusSeen(b *httpBench) {
	statuses := make(chan int, 1)
	r := b.rule("a", "1000/10s fixed-window")
	r.RefundIf = func(status int) bool {
		statuses <- status
		return false
	}
	l := b.limiter(r)

	// The request asks for whatever one of the handlers may do: a range, or another protocol.
	for name, h := range b.kinds() {
		b.serve(HTTPApp{Limiter: l, Handler: h})

		conn := b.dial()
		if err := b.request("GET /\nRange: bytes=2-3\nConnection: Upgrade\nUpgrade: echo").Write(conn); err != nil {
			b.Fatal(err)
		}
		seen := readStatus(b, conn)
		if got := await(b, "a status for "+name, statuses); got != seen {
			b.Errorf("%s: the rule got %d, the client %d", name, got, seen)
		}
	}
}

// clientLeft has clients leave before, and after, handlers have answered.
func clientLeft(b *httpBench) {
	if b.BlindToLeaving {
		return
	}

	// What the client has seen counts, and nothing else does: a handler that only fails because
	// the client is away has not failed.
	rows := map[string]struct {
		before, after Handler // the client leaves
		want          int
	}{
		"nothing":              {after: httpKinds["nothing"], want: limiter.StatusClientLeft},
		"a panic":              {after: httpKinds["a panic"], want: limiter.StatusClientLeft},
		"an error":             {after: httpKinds["an error"], want: limiter.StatusClientLeft},
		"a failure of a proxy": {after: func(x Exchange) error { return x.Fail(502) }, want: limiter.StatusClientLeft},
		"a reply":              {after: httpKinds["a reply"], want: 201},
		"a reply with failure": {after: httpKinds["a reply with failure"], want: 418},
		"a stream before":      {before: httpKinds["a stream"], after: httpKinds["nothing"], want: 200},
		"a stream, and panic":  {before: httpKinds["a stream"], after: httpKinds["a panic"], want: 200},
	}

	for name, row := range rows {
		b.row(name, func(b *httpBench) {
			statuses, came := make(chan int, 1), make(chan struct{})
			r := b.rule("a", "1000/10s fixed-window")
			r.RefundIf = func(status int) bool {
				statuses <- status
				return false
			}
			b.serve(HTTPApp{Limiter: b.limiter(r), Handler: func(x Exchange) error {
				ctx := x.Context()
				if row.before != nil {
					if err := row.before(x); err != nil {
						return err
					}
				}

				// The server has noticed that the client is away when the context ends.
				close(came)
				<-ctx.Done()
				return row.after(x)
			}})

			conn := b.dial()
			if err := b.request("GET /").Write(conn); err != nil {
				b.Fatal(err)
			}

			await(b, "the request", came)
			conn.Close()
			if got := await(b, "a status", statuses); got != row.want {
				b.Errorf("the rule got %d, want %d", got, row.want)
			}
		})
	}
}

// readStatus reads the status of the answer that comes over a connection.
func readStatus(b *httpBench, conn net.Conn) int {
	b.Helper()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		b.Fatal(err)
	}
	return response.StatusCode
}
