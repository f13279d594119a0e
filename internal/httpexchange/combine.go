package httpexchange

import (
	"io"
	"net/http"
)

type errorFlusher interface {
	http.Flusher
	FlushError() error
}

// canHijack reports whether a handler can take over the connection, either by a type
// assertion or through [http.ResponseController], which unwraps writers.
func canHijack(w http.ResponseWriter) bool {
	for {
		switch t := w.(type) {
		case http.Hijacker:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return false
		}
	}
}

// Wrapped returns the recorder with the methods Flush, Hijack and ReadFrom that the
// writer underneath has, and without the others, so that type assertions have the same
// result as without the recorder. Server push is not passed on, because browsers no
// longer accept it.
func (r *Recorder) Wrapped() http.ResponseWriter {
	_, reads := r.ResponseWriter.(io.ReaderFrom)
	hijacks := canHijack(r.ResponseWriter)

	// Which methods a type has is fixed when it is compiled, so each combination needs a type of
	// its own.
	if _, flushes := r.ResponseWriter.(http.Flusher); !flushes {
		switch {
		case hijacks && reads:
			return struct {
				*Recorder
				http.Hijacker
				io.ReaderFrom
			}{r, hijacker{r}, readerFrom{r}}
		case hijacks:
			return struct {
				*Recorder
				http.Hijacker
			}{r, hijacker{r}}
		case reads:
			return struct {
				*Recorder
				io.ReaderFrom
			}{r, readerFrom{r}}
		}
		return r
	}

	switch {
	case hijacks && reads:
		return struct {
			*Recorder
			errorFlusher
			http.Hijacker
			io.ReaderFrom
		}{r, flusher{r}, hijacker{r}, readerFrom{r}}
	case hijacks:
		return struct {
			*Recorder
			errorFlusher
			http.Hijacker
		}{r, flusher{r}, hijacker{r}}
	case reads:
		return struct {
			*Recorder
			errorFlusher
			io.ReaderFrom
		}{r, flusher{r}, readerFrom{r}}
	}

	return struct {
		*Recorder
		errorFlusher
	}{r, flusher{r}}
}
