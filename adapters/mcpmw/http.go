package mcpmw

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"mime"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/headgate/headgate/limiter"
)

// arrivalField is a field of the requests that [Handler] hands on, among the headers, because
// the SDK shows nothing else of a request to middleware. No client can send it: a name of HTTP
// has no space. Its values are the parts below.
const arrivalField = "headgate arrival"

const (
	arrivalReply = iota // the number of the reply
	arrivalAddr         // http.Request.RemoteAddr
	arrivalHost         // http.Request.Host
	arrivalParts
)

// replies has the replies that are under way, by number.
var (
	replies   sync.Map // of *reply
	lastReply atomic.Uint64
)

// Handler is put around the [mcp.StreamableHTTPHandler] of servers with the middleware of [New],
// whatever their limiters. With it a call that does not pass has the status of HTTP, 429, 403 or
// 503, and Retry-After, its error being the JSON body. All answers have the fields of
// Config.Headers of the limiters, and rules see the address of the peer and the host.
//
// In RequestExtra.Header the handlers of calls see one field more, whose name no request over HTTP
// can have. A handler that sends headers on copies those that it means.
//
// The status is 200, and the error is an event or the body as without Handler, where it comes
// too late: the POST has a batch of calls (as protocol versions before 2025-06-18 allow), or
// something was sent before the middleware ran, as the first event of a server with an
// EventStore for version 2025-11-25, or a notification of middleware outside of the limiter.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.Body == nil {
			next.ServeHTTP(w, r)
			return
		}

		answer, number := &reply{ResponseWriter: w}, strconv.FormatUint(lastReply.Add(1), 36)
		replies.Store(number, answer)

		// A call may be served when its request has long ended.
		defer func() {
			replies.Delete(number)
			answer.close()
		}()

		// The request stays as it is for the handlers around.
		inner := r.WithContext(r.Context())
		inner.Header = maps.Clone(r.Header)
		if inner.Header == nil {
			inner.Header = http.Header{}
		}
		inner.Header[arrivalField] = []string{number, r.RemoteAddr, r.Host}
		inner.Body = &body{ReadCloser: r.Body, reply: answer}
		next.ServeHTTP(answer, inner)
	})
}

// replyOf returns the reply to the request of a call, or nil.
func replyOf(extra *mcp.RequestExtra) *reply {
	if extra == nil {
		return nil
	}
	noted := extra.Header[arrivalField]
	if len(noted) != arrivalParts {
		return nil
	}
	if r, ok := replies.Load(noted[arrivalReply]); ok {
		return r.(*reply)
	}
	return nil
}

// body finds out whether a request has a batch. The SDK reads it before it serves a call.
type body struct {
	io.ReadCloser
	reply *reply
	begun bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.begun {
		return n, err
	}

	if text := bytes.TrimLeft(p[:n], " \t\r\n"); len(text) > 0 {
		b.begun, b.reply.batch = true, text[0] == '['
	}
	return n, err
}

// reply is the answer to a POST. Its methods may be called on nil, for a call without one.
type reply struct {
	http.ResponseWriter
	batch bool // set before a call is served

	mu     sync.Mutex
	closed bool // the status is sent, or the request has ended. Guarded by mu.
	status int  // that of a call that does not pass, or 0. Guarded by mu.
}

// announce sets the headers and the status of an admission, unless it is too late.
func (r *reply) announce(a *limiter.Admission) {
	if r == nil || r.batch {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}

	// All values are in one allocation, of which each field has a slice of its own. The SDK has a
	// Cache-Control that says more than that of the limiter.
	headers := a.Headers()
	values, header := make([]string, len(headers)), r.ResponseWriter.Header()
	for i, h := range headers {
		if h.Name != "Cache-Control" {
			values[i] = h.Value
			header[h.Name] = values[i : i+1 : i+1]
		}
	}
	r.status = a.Status()
}

// header returns the first value of a header of the answer, or "".
func (r *reply) header(name string) string {
	if r == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ""
	}
	return r.ResponseWriter.Header().Get(name)
}

// close makes what comes later leave the answer alone.
func (r *reply) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// commit sends the status, the first time. message is what is written first, or nil. It returns
// what takes its place.
func (r *reply) commit(status int, message []byte) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return message
	}

	r.closed = true
	if r.status != 0 {
		if text, ok := errorIn(message); ok {
			r.ResponseWriter.Header().Set("Content-Type", "application/json")
			status, message = r.status, text
		}
	}
	r.ResponseWriter.WriteHeader(status)
	return message
}

// WriteHeader waits for the message if a call was refused, whose status is another.
func (r *reply) WriteHeader(status int) {
	r.mu.Lock()
	waits := r.status != 0 && !r.closed
	r.mu.Unlock()
	if !waits {
		r.commit(status, nil)
	}
}

func (r *reply) Write(p []byte) (int, error) {
	message := r.commit(http.StatusOK, p)
	n, err := r.ResponseWriter.Write(message)
	if err == nil {
		n = len(p) // also of an event that was sent as its data
	}
	return n, err
}

// Unwrap is for [http.ResponseController], by which the SDK flushes what it has written.
func (r *reply) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// errorIn returns the answer of JSON-RPC that an event or a body is, if that is an error.
func errorIn(message []byte) (text []byte, ok bool) {
	text = bytes.TrimSpace(message)
	if len(text) > 0 && text[0] != '{' {
		text = eventData(text)
	}

	var answer struct {
		Method string
		Error  json.RawMessage
	}
	if json.Unmarshal(text, &answer) != nil {
		return nil, false
	}
	return text, answer.Method == "" && len(answer.Error) > 0
}

// eventData returns the data of an event with one line of it, or nil.
func eventData(event []byte) []byte {
	for line := range bytes.Lines(event) {
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			return bytes.TrimSpace(data)
		}
	}
	return nil
}

// maxErrorBytes bounds what [Transport] reads of an answer before it knows that it is an error.
const maxErrorBytes = 64 << 10

// Transport has an [mcp.Client] see the error of a refusal over HTTP: the SDK's client, as of its
// version 1.8.0, reads no body under the statuses 429 and 503. It is the transport of the
// [http.Client] in [mcp.StreamableClientTransport]. An answer of these statuses whose body is an
// error of JSON-RPC gets the status 200, and any other goes on as it is. next may be nil, for
// [http.DefaultTransport]; it is where a program sees the status itself.
func Transport(next http.RoundTripper) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	return errorReader{next}
}

type errorReader struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (e errorReader) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := e.next.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		return resp, err
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "application/json" {
		return resp, nil
	}

	// What was read is read again by the client.
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes))
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(text), resp.Body), resp.Body}
	if err != nil {
		return resp, nil // the client meets the error where it reads on
	}

	message, _ := jsonrpc.DecodeMessage(text)
	if answer, ok := message.(*jsonrpc.Response); ok && answer.Error != nil {
		resp.StatusCode, resp.Status = http.StatusOK, "200 OK"
	}
	return resp, nil
}
