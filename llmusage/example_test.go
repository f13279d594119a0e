package llmusage_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"

	"github.com/headgate/headgate/llmusage"
)

// A reverse proxy reads what each answer used, while the client gets it.
func ExampleWatch() {
	model := httptest.NewServer(http.HandlerFunc(answer))
	defer model.Close()
	target, err := url.Parse(model.URL)
	if err != nil {
		log.Fatal(err)
	}

	// The body passes through Watch on its way to the client.
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Accept-Encoding") // the transport decompresses by itself
		},
		ModifyResponse: func(resp *http.Response) error {
			llmusage.Watch(resp, func(u llmusage.Usage, err error) {
				fmt.Println(u.Input, u.Output, u.Total, err)
			})
			return nil
		},
		FlushInterval: -1, // events pass at once
	}

	proxy.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/v1/chat/completions", http.NoBody))
	// Output: 19 10 29 <nil>
}

// answer answers as a model does whose client has asked for the usage of the stream.
func answer(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":"Hello!"}}],"usage":null}

data: {"choices":[],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29}}

data: [DONE]

`)
}

// A handler that copies an answer by itself reads it through a meter.
func ExampleMeter() {
	w := httptest.NewRecorder()
	answer(w, nil)
	resp := w.Result()
	defer resp.Body.Close()

	var meter llmusage.Meter
	if _, err := io.Copy(io.Discard, io.TeeReader(resp.Body, &meter)); err != nil {
		log.Fatal(err)
	}
	usage, err := meter.Usage()
	fmt.Println(usage.Total, err)
	// Output: 29 <nil>
}
