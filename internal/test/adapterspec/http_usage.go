package adapterspec

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/llmusage"
)

var httpUsage = []spec{
	{"rules see the answer and the body of the request", onHTTP(answerSeen)},
	{"a body that is not read ahead reaches the handler", onHTTP(bodyLeft)},
}

// Answers of a model.
const (
	usageText = `{"model": "m", "usage": {"prompt_tokens": 9, "completion_tokens": 20, "total_tokens": 29}}`
	usageStep = "data: {\"choices\": [{\"delta\": {}}]}\n\n"
	usageLast = "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 3, \"completion_tokens\": 4}}\n\n"
)

// reading is a view of a request whose body can be read ahead.
type reading interface {
	ReadAhead(max int64) (text []byte, whole bool)
}

// answered is what a rule has seen of a request and its answer.
type answered struct {
	body  string // of the request, or the error
	kind  string // the Content-Type of the answer
	total int64
	err   error
	ended bool
}

// seeing returns a limiter with a rule that reads up to 8 bytes ahead, and sends what it has
// seen.
func (h *httpBench) seeing(into chan<- answered) *limiter.Limiter {
	r := h.rule("tokens", "1000/1m fixed-window")
	r.ReadsUsage = true
	r.Charge = func(r core.Request) (int64, func(limiter.Seen) (int64, error), error) {
		var a answered
		text, whole := r.(reading).ReadAhead(8)
		if a.body = string(text); !whole {
			a.body = "not whole"
		}
		if again, same := r.(reading).ReadAhead(8); same != whole || whole && string(again) != a.body {
			a.body = fmt.Sprintf("%q, and then %q", text, again)
		}

		return 20, func(s limiter.Seen) (int64, error) {
			a.kind, a.ended = strings.Join(s.Header("Content-Type"), "|"), s.Ended
			a.err = errUnseen
			if s.Usage != nil {
				var u llmusage.Usage
				u, a.err = s.Usage.Usage()
				a.total = u.Total
			}
			into <- a
			return 17, nil
		}, nil
	}
	return h.limiter(r)
}

var errUnseen = errors.New("the body is not seen")

func answerSeen(b *httpBench) {
	stream := answered{"{}", "text/event-stream", 7, nil, true}
	if b.BlindToStreams {
		stream.total, stream.err = 0, errUnseen
	}

	left := int64(1000)
	for name, row := range map[string]struct {
		h    Handler
		want answered
	}{
		"a reply": {func(x Exchange) error { return x.Reply(201, usageText) }, answered{"{}", Plain, 29, nil, true}},
		"nothing of use": {func(x Exchange) error { return x.Reply(200, "hello") },
			answered{"{}", Plain, 0, llmusage.ErrNoUsage, true}},
		"a stream": {func(x Exchange) error {
			return x.Stream("text/event-stream", func(send func(string) error) error {
				return errors.Join(send(usageStep), send(usageLast))
			})
		}, stream},
	} {
		seen := make(chan answered, 1)
		l := b.seeing(seen)
		b.serve(HTTPApp{Limiter: l, Handler: row.h})

		r := b.request("POST /\nAccept-Encoding: gzip")
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader("{}")), 2
		conn := b.dial()
		if err := r.Write(conn); err != nil {
			b.Fatal(err)
		}
		readStatus(b, conn)
		if got := await(b, "what is seen of "+name, seen); got != row.want {
			b.Errorf("%s: %+v, want %+v", name, got, row.want)
		}

		// The answer says that 17 units were used, and not 20.
		b.released()
		left -= 17
		b.wantLeft(l, left)
	}
}

// bodyLeft has requests whose bodies are longer than a rule reads, of unknown length, and read.
func bodyLeft(b *httpBench) {
	for body, want := range map[string]string{
		"": "", "12345678": "12345678", "123456789": "not whole", "?": "not whole",
	} {
		seen := make(chan answered, 1)
		b.serve(HTTPApp{Limiter: b.seeing(seen), Handler: func(x Exchange) error {
			text, err := x.Body()
			if err != nil {
				return err
			}
			return x.Reply(200, string(text))
		}})

		r := b.request("POST /")
		if body != "" {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		}
		if body == "?" { // of unknown length
			r.ContentLength = -1
			if b.BlindToStreams {
				want = "?" // that server has read the body by then
			}
		}

		conn := b.dial()
		if err := r.Write(conn); err != nil {
			b.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			b.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		if got := await(b, "a request", seen); got.body != want || string(text) != body || err != nil {
			b.Errorf("%q: the rule read %q, the handler %q, %v", body, got.body, text, err)
		}
	}
}
