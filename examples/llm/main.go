// Llm passes requests on to the API of a language model. Each API key has 60 requests and
// 40000 tokens a minute, which are estimated first and settled as the answer ends, and
// three streams at a time, for which others wait:
//
//	go run ./examples/llm
//	curl -iN http://127.0.0.1:8080/v1/responses -H "Authorization: Bearer $OPENAI_API_KEY" \
//		--json '{"model": "gpt-4.1-mini", "input": "Hello", "stream": true}'
package main

import (
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/llmusage"
	"github.com/headgate/headgate/nethttp"
)

var requests, streams = core.MustParseLimit("60/1m"), core.MustParseLimit("3 concurrent ttl=30s")
var tokens = core.MustParseLimit("40000/1m fixed-window") // whose settlements are exact

func main() {
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", newHandler(&url.URL{Scheme: "https", Host: "api.openai.com"}, nil)))
}

func newHandler(api *url.URL, store core.Store) http.Handler {
	l := limiter.MustNew(limiter.Config{Store: store, KeepResult: true, Rules: []limiter.Rule{
		{Name: "requests", Key: keyfuncs.BearerToken, Limit: requests},
		{Name: "tokens", Key: keyfuncs.BearerToken, Limit: tokens, Cost: estimate, CostAtMost: true},
		{Name: "streams", Key: keyfuncs.BearerToken, Limit: streams, OnLimit: limiter.Wait(time.Minute)},
	}})
	rewrite := func(r *httputil.ProxyRequest) {
		r.SetURL(api)
		r.Out.Header.Del("Accept-Encoding") // the transport decompresses by itself
	}
	return nethttp.New(l)(&httputil.ReverseProxy{FlushInterval: -1, ModifyResponse: settle, Rewrite: rewrite})
}

// estimate counts four bytes of the prompt as a token, and the answer as 1000. A prompt of
// unknown length counts as the whole limit until its answer has ended.
func estimate(r core.Request) int64 {
	length := strings.Join(r.Header("Content-Length"), "")
	if length == "" && r.Method() != http.MethodGet {
		return tokens.Capacity()
	}
	n, _ := strconv.ParseInt(length, 10, 64)
	return n/4 + 1000
}

func settle(resp *http.Response) error {
	ctx := resp.Request.Context()
	llmusage.Watch(resp, func(u llmusage.Usage, err error) { // at the end, and if the client leaves
		result := limiter.FromContext(ctx)

		// An error has used nothing. Of an answer that was left before its end, nothing or only
		// the beginning is known, so its estimate stays unless that beginning is more.
		if resp.StatusCode >= 400 || err == nil || u.Total > charged(result) {
			err = result.Settle(ctx, map[string]int64{"tokens": u.Total})
		}
		log.Println(u.Total, "tokens", err)
	})
	return nil
}

// charged returns how many tokens the request was charged.
func charged(result *limiter.Result) int64 {
	for _, d := range result.Decisions() {
		if d.Rule == "tokens" {
			return d.Decision.Taken
		}
	}
	return 0
}
