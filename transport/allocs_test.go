package transport

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/limiter"
)

// instant answers every request at once with the same answer.
type instant struct{ answer http.Response }

func (s *instant) RoundTrip(*http.Request) (*http.Response, error) { return &s.answer, nil }

// said are the fields of answers, by the kind of server that sends them.
var said = map[string]http.Header{
	"silent": {},
	"draft8": {"Ratelimit": {`"default";r=999999;t=60`}, "Ratelimit-Policy": {`"default";q=1000000;w=60`}},
	"epoch": {"X-Ratelimit-Limit": {"1000000"}, "X-Ratelimit-Remaining": {"999999"},
		"X-Ratelimit-Reset": {strconv.FormatInt(time.Now().Unix()+3600, 10)},
		"Date":              {time.Now().UTC().Format(http.TimeFormat)}},
	"several": {"Ratelimit": {`"burst";r=999;t=1, "daily";r=999999;t=3600`},
		"Ratelimit-Policy": {`"burst";q=1000;w=1, "daily";q=1000000;w=86400`}},
}

// quick returns a transport that has nothing to wait for.
func quick(tb testing.TB, own bool, header http.Header) (*Transport, *http.Request) {
	c := Config{Base: &instant{http.Response{StatusCode: 200, Header: header, Body: http.NoBody}}}
	if own {
		c.Limiter = limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
			{Limit: core.MustParseLimit("1000000000/1s")}}})
	}
	tr, r := MustNew(c), get(tb.Context())
	if _, err := tr.RoundTrip(r); err != nil {
		tb.Fatal(err)
	}
	return tr, r
}

// BenchmarkRoundTrip shows what a transport adds to a request that need not wait.
func BenchmarkRoundTrip(b *testing.B) {
	for _, own := range []bool{false, true} {
		for name, header := range said {
			if own {
				name += " and own limits"
			}

			b.Run(name, func(b *testing.B) {
				tr, r := quick(b, own, header)
				b.ReportAllocs()
				for b.Loop() {
					tr.RoundTrip(r)
				}
			})
		}
	}
}

func TestAddedTime(t *testing.T) {
	if !test.Measures() {
		return
	}

	// The best of twenty rounds is what the code costs: noise of the machine only adds to it.
	for name, header := range said {
		tr, r := quick(t, true, header)

		const rounds, n = 20, 1000
		best := time.Hour
		for range rounds {
			begun := time.Now()
			for range n {
				tr.RoundTrip(r)
			}
			best = min(best, time.Since(begun)/n)
		}

		// A microsecond is nothing beside a request over a network.
		test.AtMost(t, "added to a request with own limits, "+name, best, time.Microsecond)
	}
}
