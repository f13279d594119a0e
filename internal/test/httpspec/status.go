package httpspec

import (
	"bufio"
	"errors"
	"net"
	"net/http"

	"github.com/headgate/headgate/limiter"
)

var status = []spec{
	{"rules get the status that the client sees", statusSeen},
	{"rules are told of a client that has left", left},
	{"only failed logins count", login},
}

// kinds are handlers that answer in different ways.
var kinds = map[string]Handler{
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

func statusSeen(b *bench) {
	statuses := make(chan int, 1)
	r := b.rule("a", "1000/10s fixed-window")
	r.RefundIf = func(status int) bool {
		statuses <- status
		return false
	}
	l := b.limiter(r)
	for name, h := range kinds {
		if b.NoRanges && name == "a content" {
			continue
		}
		b.serve(App{Limiter: l, Handler: h})
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

// left has clients leave before, and after, handlers have answered.
func left(b *bench) {
	if b.BlindToLeaving {
		return
	}
	rows := map[string]struct {
		before, after Handler // the client leaves
		want          int
	}{
		"nothing":              {after: kinds["nothing"], want: limiter.StatusClientLeft},
		"a panic":              {after: kinds["a panic"], want: limiter.StatusClientLeft},
		"an error":             {after: kinds["an error"], want: limiter.StatusClientLeft},
		"a failure of a proxy": {after: func(x Exchange) error { return x.Fail(502) }, want: limiter.StatusClientLeft},
		"a reply":              {after: kinds["a reply"], want: 201},
		"a reply with failure": {after: kinds["a reply with failure"], want: 418},
		"a stream before":      {before: kinds["a stream"], after: kinds["nothing"], want: 200},
		"a stream, and panic":  {before: kinds["a stream"], after: kinds["a panic"], want: 200},
	}
	for name, row := range rows {
		b.row(name, func(b *bench) {
			statuses, came := make(chan int, 1), make(chan struct{})
			r := b.rule("a", "1000/10s fixed-window")
			r.RefundIf = func(status int) bool {
				statuses <- status
				return false
			}
			b.serve(App{Limiter: b.limiter(r), Handler: func(x Exchange) error {
				ctx := x.Context()
				if row.before != nil {
					if err := row.before(x); err != nil {
						return err
					}
				}
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
func readStatus(b *bench, conn net.Conn) int {
	b.Helper()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		b.Fatal(err)
	}
	return response.StatusCode
}

// login refunds every attempt that did not fail, before the client has its answer.
func login(b *bench) {
	r := b.rule("a", "5/10s fixed-window")
	r.RefundIf = func(status int) bool { return status < 400 }
	next := make(chan Handler, 1)
	b.serve(App{Limiter: b.limiter(r), Handler: func(x Exchange) error { return (<-next)(x) }})
	welcome := func(x Exchange) error { return x.Reply(200, "welcome") }
	rows := []struct {
		handler Handler
		want    Answer
		left    int // while it is being answered
	}{
		{welcome, Text(200, "welcome"), 4},
		{welcome, Text(200, "welcome"), 4},
		{kinds["a reply with failure"], Text(418, "a pot"), 4},
		{welcome, Text(200, "welcome"), 3},
		{kinds["a failure"], b.Fails(404), 3},
		{welcome, Text(200, "welcome"), 2},
		{kinds["an error"], b.Errs, 2},
		{welcome, Text(200, "welcome"), 1},
		{kinds["a panic"], b.Panics, 1},
		{welcome, Text(200, "welcome"), 0},
		{func(x Exchange) error { return x.Fail(401) }, b.Fails(401), 0},
	}
	for _, row := range rows {
		next <- row.handler
		b.steps(step{0, "POST /login", row.want.with(rate(0, 5, row.left, 10))})
	}
	b.steps(step{0, "POST /login", refusal("a", 10).with(rate(0, 5, 0, 10))})
}
