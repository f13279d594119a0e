package httpexchange

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/llmusage"
)

// Recorder records the status of an answer, and keeps leases when the handler takes
// over the connection. [http.ResponseController] reaches the writer underneath
// through Unwrap.
type Recorder struct {
	http.ResponseWriter
	Admission *limiter.Admission
	Sent      int // the final status that was sent, or 0

	usage  *llmusage.Meter // reads the body, or nil
	hidden http.Header     // headers that the client does not get, or nil
}

func (r *Recorder) send(status int) {
	informs := status < 200 && status != http.StatusSwitchingProtocols
	if r.Sent == 0 && !informs {
		r.Sent = status
	}
}

// Unwrap returns the writer underneath.
func (r *Recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// WriteHeader records the status and sends it.
func (r *Recorder) WriteHeader(status int) {
	r.send(status)
	r.ResponseWriter.WriteHeader(status)
}

// Write sends 200 if no status was sent before.
func (r *Recorder) Write(p []byte) (int, error) {
	r.send(http.StatusOK)
	if r.usage != nil {
		_, _ = r.usage.Write(p) // also what the client does not get any more
	}
	return r.ResponseWriter.Write(p)
}

// WriteString avoids the copy that Write needs if the writer underneath implements
// [io.StringWriter].
func (r *Recorder) WriteString(s string) (int, error) {
	r.send(http.StatusOK)
	if r.usage != nil {
		_, _ = io.WriteString(r.usage, s)
	}
	return io.WriteString(r.ResponseWriter, s)
}

// CloseNotify implements [http.CloseNotifier], which Gin's Context.Stream calls without
// a check. The channel never receives if the writer underneath does not implement it.
func (r *Recorder) CloseNotify() <-chan bool {
	//lint:ignore SA1019 handlers that need it without the recorder need it with the recorder
	if n, ok := r.ResponseWriter.(http.CloseNotifier); ok {
		return n.CloseNotify()
	}
	return make(chan bool)
}

// flusher, hijacker and readerFrom are the recorder's optional methods.
type (
	flusher    struct{ r *Recorder }
	hijacker   struct{ r *Recorder }
	readerFrom struct{ r *Recorder }
)

func (f flusher) Flush() { _ = f.FlushError() }

func (f flusher) FlushError() error {
	f.r.send(http.StatusOK)
	return http.NewResponseController(f.r.ResponseWriter).Flush()
}

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := Hijack(h.r.ResponseWriter, h.r.Admission)
	if err == nil {
		h.r.send(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

func (r readerFrom) ReadFrom(src io.Reader) (int64, error) {
	r.r.send(http.StatusOK)
	if r.r.usage != nil {
		src = io.TeeReader(src, r.r.usage)
	}
	return r.r.ResponseWriter.(io.ReaderFrom).ReadFrom(src)
}
