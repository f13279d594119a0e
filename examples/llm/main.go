// Llm passes requests on to the API of a language model. Each API key has 60 requests and
// 40000 tokens a minute, and three streams at a time, for which others wait.
//
// The tokens are estimated first and settled as the answer ends. The estimate is a token for four
// bytes of the prompt, and the max_tokens of the request or 1000. It stays if the answer ends early
// without a larger count. A request without a Content-Length may have a prompt of any length: it
// counts as the whole limit until its answer has ended.
//
//	go run ./examples/llm
//	curl -iN http://127.0.0.1:8080/v1/responses -H "Authorization: Bearer $OPENAI_API_KEY" \
//		--json '{"model": "gpt-4.1-mini", "input": "Hello", "stream": true}'
package main

import (
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
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
	proxy := &httputil.ReverseProxy{FlushInterval: -1, ModifyResponse: settle, Rewrite: rewrite}
	return readMaxTokens(nethttp.New(l)(proxy))
}

// maxTokens is the key of the most tokens that a request may use, an int64.
type maxTokens struct{}

// readMaxTokens finds out how many tokens requests may use. It reads no body whose estimate
// is the whole limit anyway: none of unknown length, and none that is longer than the limit.
func readMaxTokens(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength < 0 || r.ContentLength > 4*tokens.Capacity() {
			next.ServeHTTP(w, with(r, tokens.Capacity()))
			return
		}

		// The API gets the same text.
		text, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, "the request has not arrived", http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(text))

		most := llmusage.ReadRequest(text).Tokens(1000)
		next.ServeHTTP(w, with(r, min(most, tokens.Capacity())))
	})
}

func with(r *http.Request, most int64) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), maxTokens{}, most))
}

func estimate(r core.Request) int64 {
	most, _ := r.Context().Value(maxTokens{}).(int64)
	return most
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
