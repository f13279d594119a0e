package proxy

import (
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"

	"github.com/headgate/headgate/policy"
)

// costly is a policy of 1000 units with the cost.
func costly(c policy.Cost) policy.Policy {
	p := limited("1000/1h fixed-window")
	p.Cost = c
	return p
}

// left returns how many units all callers have left.
func left(t *testing.T, g *gate) int64 {
	t.Helper()
	list, err := g.limiter.Peek(t.Context(), "all")
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	return list[0].Decision.Remaining
}

// A header of the request is believed from a trusted proxy alone, and does not reach the upstream
// from others.
func TestCostByAHeaderOfTheRequest(t *testing.T) {
	var got []string
	h := func(_ http.ResponseWriter, r *http.Request) { got = r.Header["X-Cost"] }
	for _, row := range []struct {
		trusted []string
		left    int64
		passed  string
	}{{[]string{"127.0.0.1"}, 993, "7"}, {[]string{"10.0.0.0/8"}, 998, ""}} {
		g := before(t, h, func(o *options) {
			o.policies, o.trusted = []policy.Policy{costly(policy.Cost{Header: "x-cost", Default: 2})}, row.trusted
		})
		ask(t, g.Client(), request(t, "GET", g.URL+"/", nil, "X-Cost", "7"))
		if n := left(t, g); n != row.left || strings.Join(got, ",") != row.passed {
			t.Errorf("%q: %d left, and the upstream got %q, want %d and %q", row.trusted, n, got, row.left, row.passed)
		}
	}
}

// The client does not get the header that settles, whether or not a policy applies to the request.
func TestCostByAHeaderOfTheAnswer(t *testing.T) {
	p := costly(policy.Cost{AnswerHeader: "x-cost", Estimate: 10, AtMost: 100})
	p.Match.Path = "/a/"
	g := before(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["X-Cost"] = r.Header["X-Say"]
		w.Header().Set("X-Other", "1")
		io.WriteString(w, "hello")
	}, func(o *options) { o.policies = []policy.Policy{p} })

	// The last one is of a path without a policy.
	want := int64(1000)
	for _, row := range []struct {
		path, says string
		costs      int64
	}{{"/a/", "3", 3}, {"/a/", "0", 0}, {"/a/", "77", 77}, {"/a/", "101", 100}, {"/a/", "x", 10}, {"/b", "5", 0}} {

		res, body := ask(t, g.Client(), request(t, "GET", g.URL+row.path, nil, "X-Say", row.says))
		want -= row.costs
		if n := left(t, g); n != want || body != "hello" || res.Header["X-Cost"] != nil ||
			res.Header.Get("X-Other") != "1" {
			t.Errorf("%+v: %d left, want %d; %q %v", row, n, want, body, res.Header)
		}
	}
}

// Nor does the client get it in an interim answer, or behind the body, where it settles nothing.
func TestCostBesideTheHeader(t *testing.T) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		h2 := proto == "HTTP/2.0"
		g := before(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Cost", "9")
			w.Header().Set("Link", "</a>")
			w.WriteHeader(http.StatusEarlyHints)

			w.Header().Del("X-Cost")
			w.Header().Set("Trailer", "X-Cost, X-Sum")
			io.WriteString(w, "hello")

			w.Header().Set("X-Cost", "7")
			w.Header().Set("X-Sum", "42")
			w.Header().Set(http.TrailerPrefix+"X-Late", "1")
		}, func(o *options) {
			o.policies, o.tls = []policy.Policy{costly(policy.Cost{AnswerHeader: "x-cost", Estimate: 10})}, h2
		})

		// The client sees interim answers by a hook.
		var hints textproto.MIMEHeader
		r := request(t, "GET", g.URL+"/", nil)
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(_ int, h textproto.MIMEHeader) error { hints = h; return nil }}))

		res, body := ask(t, g.Client(), r)
		if res.Proto != proto || body != "hello" || res.Trailer.Get("X-Sum") != "42" || hints.Get("Link") != "</a>" {
			t.Errorf("%s %q, trailers %v, hints %v", res.Proto, body, res.Trailer, hints)
		}
		if res.Header["X-Cost"] != nil || res.Trailer["X-Cost"] != nil || hints["X-Cost"] != nil {
			t.Errorf("%s: %v, trailers %v, hints %v", proto, res.Header, res.Trailer, hints)
		}
		if _, announced := res.Trailer["X-Cost"]; announced {
			t.Errorf("%s: it is announced", proto)
		}
		if n := left(t, g); n != 990 {
			t.Errorf("%s: %d left", proto, n)
		}
	}
}

// Bodies that there is no room for are not read ahead, and count as those of unknown length.
func TestBodiesReadAheadAreBounded(t *testing.T) {
	inside := make(chan int64)
	var g *gate
	g = before(t, func(w http.ResponseWriter, r *http.Request) {
		inside <- g.proxy.ahead.bytes.Load()
		io.Copy(io.Discard, r.Body)
	}, func(o *options) {
		o.policies = []policy.Policy{costly(policy.Cost{Usage: "tokens", Estimate: 500})}
	})

	// The first is admitted by its number of tokens, and the second as the whole limit.
	const text = `{"max_tokens": 200}`
	for _, row := range []struct {
		before, held int64
		status       int
	}{{0, 19, 200}, {maxAhead - 19, maxAhead, 200}, {maxAhead - 18, 0, 429}} {
		g.proxy.ahead.bytes.Store(row.before)

		// The upstream sees what is held while the request is under way.
		done := make(chan struct{})
		go func() {
			defer close(done)
			if row.status == 200 {
				if n := <-inside; n != row.held {
					t.Errorf("%+v: %d held", row, n)
				}
			}
		}()

		res, _ := ask(t, g.Client(), request(t, "POST", g.URL+"/", strings.NewReader(text)))
		<-done
		if n := g.proxy.ahead.bytes.Load(); res.StatusCode != row.status || n != row.before {
			t.Errorf("%+v: %d, %d held", row, res.StatusCode, n)
		}
	}
}

// The upstream is not asked to compress what is read.
func TestCostByUsage(t *testing.T) {
	const answer = `{"usage": {"prompt_tokens": 30, "completion_tokens": 12}}`
	g := before(t, func(w http.ResponseWriter, r *http.Request) {
		// What is compressed could not be read.
		if e := r.Header["Accept-Encoding"]; e != nil {
			t.Errorf("the upstream is asked for %q", e)
		}

		// The body reaches the upstream, although the gateway has read it.
		text, err := io.ReadAll(r.Body)
		if err != nil || string(text) != `{"max_tokens": 200}` {
			t.Errorf("the upstream got %q, %v", text, err)
		}
		io.WriteString(w, answer)
	}, func(o *options) {
		o.policies = []policy.Policy{costly(policy.Cost{Usage: "tokens", Estimate: 500})}
	})

	// The length of a body that is not known makes it the whole limit until it is settled.
	for i, length := range []int64{19, -1} {
		r := request(t, "POST", g.URL+"/", strings.NewReader(`{"max_tokens": 200}`), "Accept-Encoding", "gzip")
		r.ContentLength = length
		res, body := ask(t, g.Client(), r)
		want := []int{200, 429}[i]
		if res.StatusCode != want || want == 200 && body != answer {
			t.Errorf("%d %q", res.StatusCode, body)
		}
	}
	if n := left(t, g); n != 1000-42 {
		t.Errorf("%d left", n)
	}
}

// closing is a body that its server closes once it was read.
type closing struct{ io.Reader }

func (c *closing) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if n == 0 {
		err = http.ErrBodyReadAfterClose
	}
	return n, err
}

func (c *closing) Close() error { return nil }

// The end of a body stays its end, also when the server has closed it.
func TestBodyEndsOnce(t *testing.T) {
	x := &exchange{body: &closing{&endsAtOnce{}}}
	if n, err := x.Read(make([]byte, 8)); n != 1 || err != io.EOF {
		t.Fatal(n, err)
	}
	if n, err := x.Read(make([]byte, 8)); n != 0 || err != io.EOF || x.bodyErr != nil {
		t.Errorf("%d, %v, %v", n, err, x.bodyErr)
	}
}

// endsAtOnce returns its last byte with the end.
type endsAtOnce struct{}

func (*endsAtOnce) Read(p []byte) (int, error) { return copy(p, "a"), io.EOF }
