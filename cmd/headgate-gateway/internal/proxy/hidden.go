// This file keeps the headers that settle what a request costs from the client, where they stand
// beside the header of the answer.

package proxy

import (
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
)

// withoutInterim returns a request whose interim answers have no headers of the names. They settle
// nothing.
func withoutInterim(r *http.Request, names []string) *http.Request {
	if len(names) == 0 {
		return r
	}

	// This hook is called before that of the ReverseProxy, which passes on what it leaves.
	trace := &httptrace.ClientTrace{Got1xxResponse: func(_ int, header textproto.MIMEHeader) error {
		for _, name := range names {
			delete(header, name)
		}
		return nil
	}}
	return r.WithContext(httptrace.WithClientTrace(r.Context(), trace))
}

// hideTrailers keeps trailers of the names from the client. They settle nothing.
func hideTrailers(res *http.Response, names []string) {
	if len(names) == 0 || res.StatusCode == http.StatusSwitchingProtocols {
		return
	}
	t := &trailers{res.Body, res, names}
	t.hide()
	res.Body = t
}

// trailers is the body of an answer, at whose end come its trailers.
type trailers struct {
	io.ReadCloser
	answer *http.Response
	names  []string
}

// Read implements io.Reader.
func (t *trailers) Read(b []byte) (int, error) {
	n, err := t.ReadCloser.Read(b)
	if err == io.EOF {
		t.hide()
	}
	return n, err
}

func (t *trailers) hide() {
	for _, name := range t.names {
		delete(t.answer.Trailer, name)
	}
}
