package nethttp

import (
	"io"
	"net/http"
)

type errorFlusher interface {
	http.Flusher
	FlushError() error
}

// canHijack reports whether a handler can take over the connection, be it
// through [http.ResponseController], which looks underneath.
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

// wrapped returns the recorder with those optional methods that the writer
// underneath has, and no others, so that type assertions come out as without
// it.
func (r *recorder) wrapped() http.ResponseWriter {
	_, flushes := r.ResponseWriter.(http.Flusher)
	p, pushes := r.ResponseWriter.(http.Pusher)
	switch {
	case flushes && pushes:
		return r.flushingPusher(p)
	case flushes:
		return r.flushing()
	case pushes:
		return r.pushing(p)
	}
	return r.plain()
}

// connection tells what the writer underneath can do with the connection.
func (r *recorder) connection() (hijacks, reads bool) {
	_, reads = r.ResponseWriter.(io.ReaderFrom)
	return canHijack(r.ResponseWriter), reads
}

// flushing is the recorder for HTTP/1.
func (r *recorder) flushing() http.ResponseWriter {
	switch hijacks, reads := r.connection(); {
	case hijacks && reads:
		return struct {
			*recorder
			errorFlusher
			http.Hijacker
			io.ReaderFrom
		}{r, flusher{r}, hijacker{r}, readerFrom{r}}
	case hijacks:
		return struct {
			*recorder
			errorFlusher
			http.Hijacker
		}{r, flusher{r}, hijacker{r}}
	case reads:
		return struct {
			*recorder
			errorFlusher
			io.ReaderFrom
		}{r, flusher{r}, readerFrom{r}}
	}
	return struct {
		*recorder
		errorFlusher
	}{r, flusher{r}}
}

// flushingPusher is the recorder for HTTP/2.
func (r *recorder) flushingPusher(p http.Pusher) http.ResponseWriter {
	switch hijacks, reads := r.connection(); {
	case hijacks && reads:
		return struct {
			*recorder
			errorFlusher
			http.Pusher
			http.Hijacker
			io.ReaderFrom
		}{r, flusher{r}, p, hijacker{r}, readerFrom{r}}
	case hijacks:
		return struct {
			*recorder
			errorFlusher
			http.Pusher
			http.Hijacker
		}{r, flusher{r}, p, hijacker{r}}
	case reads:
		return struct {
			*recorder
			errorFlusher
			http.Pusher
			io.ReaderFrom
		}{r, flusher{r}, p, readerFrom{r}}
	}
	return struct {
		*recorder
		errorFlusher
		http.Pusher
	}{r, flusher{r}, p}
}

// pushing is the recorder for a writer that pushes and does not flush.
func (r *recorder) pushing(p http.Pusher) http.ResponseWriter {
	switch hijacks, reads := r.connection(); {
	case hijacks && reads:
		return struct {
			*recorder
			http.Pusher
			http.Hijacker
			io.ReaderFrom
		}{r, p, hijacker{r}, readerFrom{r}}
	case hijacks:
		return struct {
			*recorder
			http.Pusher
			http.Hijacker
		}{r, p, hijacker{r}}
	case reads:
		return struct {
			*recorder
			http.Pusher
			io.ReaderFrom
		}{r, p, readerFrom{r}}
	}
	return struct {
		*recorder
		http.Pusher
	}{r, p}
}

// plain is the recorder for a writer that neither pushes nor flushes.
func (r *recorder) plain() http.ResponseWriter {
	switch hijacks, reads := r.connection(); {
	case hijacks && reads:
		return struct {
			*recorder
			http.Hijacker
			io.ReaderFrom
		}{r, hijacker{r}, readerFrom{r}}
	case hijacks:
		return struct {
			*recorder
			http.Hijacker
		}{r, hijacker{r}}
	case reads:
		return struct {
			*recorder
			io.ReaderFrom
		}{r, readerFrom{r}}
	}
	return r
}
