// Package llmusage reads the number of tokens that an answer of a language model used,
// while the answer passes.
//
//	proxy := &httputil.ReverseProxy{
//		Rewrite: func(r *httputil.ProxyRequest) {
//			r.SetURL(target)
//			r.Out.Header.Del("Accept-Encoding") // the transport decompresses by itself
//		},
//		ModifyResponse: func(resp *http.Response) error {
//			llmusage.Watch(resp, func(u llmusage.Usage, err error) {
//				fmt.Println(u.Input, u.Output, u.Total, err)
//			})
//			return nil
//		},
//		FlushInterval: -1, // events pass at once
//	}
//
// It knows the chat completions and the responses of OpenAI's API, the messages of Anthropic's, and
// the own forms of Gemini, Bedrock's Converse, Cohere, Ollama, Groq, Moonshot, DeepSeek, xAI and
// Perplexity: as one JSON object, and as a stream of server-sent events, of JSON objects or of AWS
// frames. [Watch] puts a [Meter] into the body of
// an answer, and passes on the [Usage] at its end. A Meter is an [io.Writer] that takes the bytes
// of one answer in pieces of any size and keeps none of them: its memory is fixed. A handler that
// copies an answer by itself has [io.TeeReader] or [io.MultiWriter].
//
// # Streams
//
// OpenAI reports the usage of a stream of chat completions only if the request asks for
// it with "stream_options": {"include_usage": true}. The last event before [DONE] has
// it then, so a stream that is interrupted reports none.
//
// Anthropic reports the input tokens and a first count of output tokens in message_start,
// and all tokens so far in each message_delta. Other servers report all tokens so far in
// each chunk of a chat completion. Counts replace earlier ones; they are not added up. A
// count of 0 replaces none, because servers write it where they do not know.
//
// # Compressed answers
//
// A compressed answer is not read, and [ErrCompressed] says so. A reverse proxy that
// passes the client's Accept-Encoding on gets such answers. Without that header,
// [net/http.Transport] asks for gzip by itself and decompresses what it gets. So delete
// it from the outgoing request.
package llmusage

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

var (
	// ErrNoUsage means that the answer has reported no usage, or nothing but zeros: it is
	// an error, an interrupted stream, a stream whose request did not ask for the usage,
	// or an answer of another API.
	ErrNoUsage = errors.New("llmusage: the answer has reported no usage")

	// ErrPartial means that a stream has reported the usage before its end and not yet at
	// its end, so Output counts the first tokens only. The Usage beside it is what has been
	// reported. More may have been used: charge an estimate if that is more.
	ErrPartial = errors.New("llmusage: the stream has not reported its usage at the end")

	// ErrCompressed means that the answer is compressed, so its usage cannot be read.
	ErrCompressed = errors.New("llmusage: the answer is compressed")
)

// Usage is the number of tokens that one answer used. A number that the answer does not
// report is 0. All are below 2^53; Total may be above if the answer reports no total.
type Usage struct {
	// Input is the number of tokens of the prompt, including those of CacheRead
	// and CacheWrite. Anthropic and Bedrock report the three apart, Gemini what tools have added,
	// and Perplexity the citations; here they are added up. Anthropic also
	// reports the calls that sum up a long conversation, and those of an advisor, apart from
	// the message, and they are added to all of the counts.
	Input int64

	// Output is the number of tokens that the model generated, including those of
	// Reasoning. Gemini and some others report these apart. They are added where the total shows
	// that, where they are more than the output, and where there is no output but a total
	// above the input.
	Output int64

	// Total is the total as reported, or else Input + Output. A total that was reported
	// with earlier counts is raised to the sum of later ones.
	Total int64

	// CacheRead is the number of input tokens that were read from a cache of prompts.
	// Anthropic does not count them for the limits of most models.
	CacheRead int64

	// CacheWrite is the number of input tokens that were written to a cache of
	// prompts.
	CacheWrite int64

	// Reasoning is the number of output tokens that the model spent on reasoning.
	Reasoning int64
}

// Meter reads the usage from the bytes of one answer. Its zero value is ready for use.
// It is not safe for concurrent use.
type Meter struct {
	form     form
	marked   int  // how many bytes of a byte order mark were read
	indented bool // the present line begins with a space
	lines    lines
	frames   frames
	json     scanner
}

// form is the form of an answer, by its first bytes.
type form uint8

const (
	unknown    form = iota
	object          // one JSON object, or several, or an array of them
	events          // server-sent events
	framed          // frames of an AWS event stream
	compressed      // gzip
)

// byteOrderMark may precede a text in UTF-8.
const byteOrderMark = "\xef\xbb\xbf"

// Write reads the next bytes of the answer. It does not keep p, and it never fails.
func (m *Meter) Write(p []byte) (int, error) {
	n := len(p)
	// The form may be known only after several pieces.
	for m.form == unknown && len(p) > 0 {
		if m.readStart(p[0]) {
			p = p[1:]
		}
	}

	switch m.form {
	case object:
		m.json.scan(p)
	case events:
		m.lines.split(p, &m.json)
	case framed:
		m.frames.split(p, &m.json)
	}
	return n, nil
}

// readStart reads c if it precedes the text of the answer, and reports whether it has.
// Otherwise the form of the answer begins with c.
func (m *Meter) readStart(c byte) bool {
	// A byte order mark may come first. A part of one is no mark but the beginning of a line.
	if m.marked < len(byteOrderMark) {
		if c == byteOrderMark[m.marked] {
			m.marked++
			return true
		}

		// The length of a frame has four bytes, and is below 2^24.
		switch {
		case m.marked > 0:
			m.indented = true // a part of a mark is the name of no field
		case c == 0x1f:
			m.form = compressed
			return false
		case c == 0:
			m.form = framed
			return false
		}
		m.marked = len(byteOrderMark)
	}

	// Space may precede an object. In a stream it begins a line that is no field.
	switch c {
	case ' ', '\t':
		m.indented = true
		return true
	case '\r', '\n':
		m.indented = false
		return true
	case '{', '[':
		m.form = object
		return false
	}

	// Whatever else comes first is taken for a stream, in which lines without data are passed.
	m.form = events
	if m.indented {
		m.lines.in = skipped
	}
	return false
}

// Usage returns what the answer has reported so far. The error is nil, [ErrNoUsage],
// [ErrPartial] or [ErrCompressed].
func (m *Meter) Usage() (Usage, error) {
	switch u := m.json.counts.usage(); {
	case m.form == compressed:
		return u, ErrCompressed
	case !m.json.counts.reported():
		return u, ErrNoUsage
	case !m.json.final, m.streamed() && (m.json.goesOn || m.json.open > 0) && !m.json.finished:
		return u, ErrPartial
	default:
		return u, nil
	}
}

// MaxModel is the length of the longest name of a model that is reported, in bytes.
const MaxModel = 64

// Model returns the name of the model that the answer has reported, or "": none, one with more than
// MaxModel bytes, or one with a backslash. It is what the answer says, and may hold any bytes.
func (m *Meter) Model() string { return string(m.json.model.letters[:m.json.model.length]) }

// streamed reports whether the answer comes in parts, each with what is known so far.
func (m *Meter) streamed() bool { return m.form == events || m.form == framed || m.json.chunks }

// Final is Usage of an answer that came to its end, or was left before. At its end the last usage
// is that of the whole answer, also if no event has said so. Of a stream that was left before, it
// is only if an event has said so; otherwise the error is [ErrPartial].
func (m *Meter) Final(ended bool) (Usage, error) {
	u, err := m.Usage()
	switch {
	case ended && m.json.final && errors.Is(err, ErrPartial):
		return u, nil
	case !ended && m.streamed() && !m.json.finished && err == nil:
		return u, ErrPartial
	}
	return u, err
}

// Watch replaces the body of resp by one that reads the usage of the answer while the
// body is read. The first Close of the body calls done once, with the results of
// [Meter.Usage], after it has closed the body of before. The error is ErrCompressed if
// resp has a Content-Encoding. It is ErrPartial if a stream is closed before its end, and no
// event has said that its usage is the last: the client has left, or the API broke off.
//
// An answer that switches protocols has no body to read. Watch leaves it as it is and
// calls done at once, with ErrNoUsage.
func Watch(resp *http.Response, done func(Usage, error)) {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		done(Usage{}, ErrNoUsage)
		return
	}

	b := &body{ReadCloser: resp.Body, done: done}
	if e := resp.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		b.meter.form = compressed
	}
	resp.Body = b
}

// body is a body whose bytes a meter reads. Close may be called while a Read is under
// way, so mu guards the meter.
type body struct {
	io.ReadCloser

	mu    sync.Mutex
	meter Meter
	ended bool               // the end of the answer was read
	done  func(Usage, error) // nil after the first Close
}

// Read reads from the body, and has the meter read the same.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	_, _ = b.meter.Write(p[:n])
	b.ended = b.ended || err == io.EOF
	return n, err
}

// Close closes the body, and calls done if it is the first Close.
func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.mu.Lock()
	u, reported := b.meter.Final(b.ended)
	done := b.done
	b.done = nil
	b.mu.Unlock()

	// Without the lock, because done is the program's and may take long.
	if done != nil {
		done(u, reported)
	}
	return err
}
