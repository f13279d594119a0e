package httpexchange

import (
	"bytes"
	"io"
	"net/http"
)

// ahead is the body of a request that was read ahead, and is read again by the handler.
type ahead struct {
	io.Reader
	io.Closer
	text  []byte
	whole bool // text is all of the body
}

// ReadAhead returns the whole body of a request, which the handler reads again, or false if that
// has more than max bytes, an unknown length, or has not arrived, or if the client waits with it
// for a first answer. Such a body is passed on as it is, with its error. So is one that implements
// interface{ Reserve(bytes int64) bool } and returns false of its length: there is no room for it.
func ReadAhead(r *http.Request, max int64) (text []byte, whole bool) {
	switch body := r.Body.(type) {
	case *ahead: // by another rule
		return body.text, body.whole && int64(len(body.text)) <= max
	case nil:
		return nil, true
	}
	if r.ContentLength < 0 || r.ContentLength > max || len(r.Header["Expect"]) > 0 {
		return nil, false
	}

	if b, ok := r.Body.(interface{ Reserve(bytes int64) bool }); ok && !b.Reserve(r.ContentLength) {
		return nil, false
	}

	// A server that does not hold a client to the length it has announced may have more.
	text, err := io.ReadAll(io.LimitReader(r.Body, max+1))
	body := &ahead{io.MultiReader(bytes.NewReader(text), r.Body), r.Body, text, err == nil && int64(len(text)) <= max}
	switch {
	case err != nil:
		body.Reader = io.MultiReader(bytes.NewReader(text), failing{err})

	// A server closes the body with its answer. A transport may look for the end only then.
	case body.whole:
		body.Reader = bytes.NewReader(text)
	}
	r.Body = body
	return text, body.whole
}

// failing is the end of a body that has not arrived.
type failing struct{ err error }

// Read returns the error that the body has ended with.
func (f failing) Read([]byte) (int, error) { return 0, f.err }
