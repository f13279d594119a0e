package adapterspec

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/nethttp"
)

// Plain is the content type of Exchange.Reply.
const Plain = "text/plain; charset=utf-8"

// Std is the Exchange of net/http, and a base for frameworks built on net/http.
type Std struct {
	W http.ResponseWriter
	R *http.Request
}

// Context returns the context of the request.
func (s Std) Context() context.Context { return s.R.Context() }

// Request returns nethttp's view of the request.
func (s Std) Request() core.Request { return nethttp.Request(s.R) }

// Cookie returns the value of the first cookie with that name.
func (s Std) Cookie(name string) string {
	c, err := s.R.Cookie(name)
	if err != nil {
		return ""
	}
	return c.Value
}

// Body returns the body of the request.
func (s Std) Body() ([]byte, error) { return io.ReadAll(s.R.Body) }

// Host returns the host of the request.
func (s Std) Host() string { return s.R.Host }

// Reply answers.
func (s Std) Reply(status int, body string) error {
	s.W.Header().Set("Content-Type", Plain)
	s.W.WriteHeader(status)
	_, err := io.WriteString(s.W, body)
	return err
}

// Fail answers with the text of the status.
func (s Std) Fail(status int) error { return s.Reply(status, http.StatusText(status)) }

// Stream flushes after each text.
func (s Std) Stream(contentType string, write func(send func(string) error) error) error {
	s.W.Header().Set("Content-Type", contentType)
	control := http.NewResponseController(s.W)
	return write(func(text string) error {
		if _, err := io.WriteString(s.W, text); err != nil {
			return err
		}
		return control.Flush()
	})
}

// Hijack writes the answer itself, because net/http sends nothing after a hijack.
func (s Std) Hijack(serve func(net.Conn)) error {
	conn, _, err := http.NewResponseController(s.W).Hijack()
	if err != nil {
		return err
	}
	_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	if err != nil {
		return err
	}

	// The handler returns, and the connection is served for as long as it lasts.
	go func() {
		defer conn.Close()
		serve(conn)
	}()
	return nil
}

// ServeContent serves a file that was changed at Changed.
func (s Std) ServeContent(content string) error {
	http.ServeContent(s.W, s.R, "a.txt", Changed, strings.NewReader(content))
	return nil
}

// Changed is the modification time of the file that ServeContent serves.
var Changed = time.Unix(1_700_000_000, 0)

// Listen serves h on loopback until the test ends.
func Listen(t testing.TB, h http.Handler) (addr string) {
	t.Helper()
	l := Listener(t)
	s := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		<-done
	})
	return l.Addr().String()
}

// Listener listens on a free port of loopback.
func Listener(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}
