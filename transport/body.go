// This file watches the bodies of answers while the program reads them. Nothing is read ahead,
// because a server may send the body late or never.

package transport

import (
	"bytes"
	"io"
	"net/http"
	"sync"
)

// maxSniffed is how many bytes of a body are searched.
const maxSniffed = 4 << 10

// sniffer is a body that calls found, once, when what was read of it names GitHub's secondary
// limit.
type sniffer struct {
	io.ReadCloser
	seen  []byte
	found func()
}

// Read reads from the body, and searches what was read.
func (s *sniffer) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if s.found != nil && len(s.seen) < maxSniffed {
		s.seen = append(s.seen, p[:min(n, maxSniffed-len(s.seen))]...)
		if bytes.Contains(s.seen, []byte("secondary rate limit")) ||
			bytes.Contains(s.seen, []byte("secondary-rate-limits")) {
			s.found()
			s.found, s.seen = nil, nil
		}
	}
	return n, err
}

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

// body is a body that calls release at its end.
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
