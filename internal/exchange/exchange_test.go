package exchange

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/test/gatetest"
	"github.com/headgate/headgate/limiter"
)

// request is one to a fake framework, which notes what it is asked to do.
type request struct {
	ctx    context.Context
	mark   *limiter.Mark
	did    []string
	status int // that the handlers answer with
}

func (r *request) note(what string) { r.did = append(r.did, what) }

type fake struct{ limiter *limiter.Limiter }

var errHandler = errors.New("of a handler")

func (fake) Context(r *request) context.Context { return r.ctx }

func (f fake) Ask(r *request) (*request, *limiter.Admission) {
	r.note("ask")
	if f.limiter.CountedBy(r.mark) {
		return r, nil
	}
	a := f.limiter.Admit(view{r})
	if a.Outcome() == limiter.Pass {
		r.mark, r.ctx = a.Mark(), limiter.NewContext(r.ctx, a)
	}
	return r, a
}

func (fake) Next(r *request) error {
	r.note("next")
	if r.status == 0 {
		panic("of a handler")
	}
	return errHandler
}

func (fake) Watch(r *request, _ *limiter.Admission) *request {
	r.note("watch")
	return r
}

func (fake) End(r *request, _ *limiter.Admission, err error, returned bool) int {
	if returned != (err == errHandler) {
		panic("the error of the handlers is lost")
	}
	r.note("end")
	return r.status
}

func (fake) Write(r *request, a *limiter.Admission) (bool, error) {
	_, ok := a.Answer()
	if ok {
		r.note("write")
	}
	return ok, nil
}

// view is the view of a request.
type view struct{ *request }

func (v view) Context() context.Context { return v.ctx }
func (view) Method() string             { return "GET" }
func (view) Path() string               { return "/" }
func (view) Route() string              { return "" }
func (view) RemoteAddr() string         { return "192.0.2.1:1" }
func (view) Header(string) []string     { return nil }

func newExchange(l *limiter.Limiter) *Exchange[*request] {
	return &Exchange[*request]{Limiter: l, Framework: fake{l}}
}

// serve returns what a new request has the framework do.
func serve(x *Exchange[*request], status int) ([]string, error) {
	r := &request{ctx: context.Background(), status: status}
	err := x.Serve(r)
	return r.did, err
}

func want(t *testing.T, x *Exchange[*request], err error, did ...string) {
	t.Helper()
	if got, e := serve(x, 200); !slices.Equal(got, did) || e != err {
		t.Errorf("%q, %v, want %q, %v", got, e, did, err)
	}
}

func TestServePassesAndRefuses(t *testing.T) {
	x := newExchange(gatetest.Limited(t, "1/1h"))
	// The one unit admits the first request, and the second is refused by the limiter itself.
	want(t, x, errHandler, "ask", "next")
	want(t, x, nil, "ask", "write")

	// A hook that neither answers nor fails leaves the refusal to the limiter: the client never
	// goes without an answer.
	for name, row := range map[string]struct {
		answered bool
		err      error
		did      []string
	}{
		"own answer": {true, nil, []string{"ask", "own"}},
		"own error":  {false, errHandler, []string{"ask", "own"}},
		"no answer":  {false, nil, []string{"ask", "own", "write"}},
	} {
		x.Refused = func(r *request, _ *limiter.Admission) (bool, error) { r.note("own"); return row.answered, row.err }
		if got, err := serve(x, 200); !slices.Equal(got, row.did) || err != row.err {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestServeFails(t *testing.T) {
	x := newExchange(nil)
	x.Refused = func(*request, *limiter.Admission) (bool, error) { panic("a failure is no refusal") }
	want(t, x, nil, "ask", "write")
	x.Failed = func(r *request, _ *limiter.Admission) (bool, error) { r.note("own"); return true, nil }
	want(t, x, nil, "ask", "own")
}

func TestServeSkips(t *testing.T) {
	x := newExchange(gatetest.Limited(t, "1/1h"))
	x.Skip = func(*request) bool { return true }
	want(t, x, errHandler, "next")
	x.Skip = func(*request) bool { panic("of the program") }
	want(t, x, errHandler, "ask", "next")
	want(t, x, nil, "ask", "write")
}

// A request whose end counts is watched, also where its handler panics.
func TestServeWatches(t *testing.T) {
	// Status 0 is that of a handler that panics: its unit comes back, that of an error does not.
	l := gatetest.Limited(t, "1/1h fixed-window",
		func(r *limiter.Rule) { r.RefundIf = func(status int) bool { return status == 0 } })

	x := newExchange(l)

	// The panic passes through Serve, which must not swallow it.
	r := &request{ctx: context.Background()}
	func() {
		defer func() {
			if v := recover(); v != "of a handler" {
				t.Errorf("recovered %v", v)
			}
		}()
		_ = x.Serve(r)
	}()

	// The end counts once, though the handler never returned.
	if did := []string{"ask", "watch", "next", "end"}; !slices.Equal(r.did, did) {
		t.Errorf("%q, want %q", r.did, did)
	}
	gatetest.WantLeft(t, l, 1)
	want(t, x, errHandler, "ask", "watch", "next", "end")
	gatetest.WantLeft(t, l, 0)
}

// The program's fallback answers over a Degrade rule, also where the request meets the limiter
// again.
func TestServeDegrades(t *testing.T) {
	degraded := func(r *limiter.Rule) { r.OnLimit = limiter.Degrade }
	// Without a fallback the handler serves over the limit too.
	x := newExchange(gatetest.Limited(t, "1/1h", degraded))
	want(t, x, errHandler, "ask", "next")
	want(t, x, errHandler, "ask", "next")

	// The fallback enters once more, as one that routes the request again does: it is asked, and
	// not looped.
	x.Degraded = func(r *request) error {
		r.note("fallback")
		if len(r.did) == 2 {
			return x.Serve(r)
		}
		return nil
	}
	want(t, x, nil, "ask", "fallback", "ask", "fallback")

	// Without the program's fallback, the answer of the config stands in for the handler.
	x = newExchange(gatetest.Limiter(t, limiter.Config{
		Rules: []limiter.Rule{gatetest.Rule("1/1h", degraded)}, Degraded: limiter.Fixed(limiter.Answer{Status: 203}),
	}))
	want(t, x, errHandler, "ask", "next")
	want(t, x, nil, "ask", "write")
}
