// This file holds leases until the body of an answer ends.

package transport

import (
	"io"
	"net/http"
	"sync"
)

// holdUntilRead calls release once, when the body of the answer is closed or a read of it
// returns an error, such as io.EOF.
func holdUntilRead(resp *http.Response, release func()) {
	b := &body{ReadCloser: resp.Body, release: sync.OnceFunc(release)}
	if w, ok := resp.Body.(io.Writer); ok { // of an answer 101, Switching Protocols
		resp.Body = struct {
			*body
			io.Writer
		}{b, w}
		return
	}
	resp.Body = b
}

type body struct {
	io.ReadCloser
	release func()
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.release()
	}
	return n, err
}

func (b *body) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}
