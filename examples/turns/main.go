// Turns makes one picture after another, though many are asked for at once. A request
// waits in a line until the one before it has ended, however long that takes:
//
//	go run ./examples/turns
//	seq 5 | xargs -P 5 -I{} curl -s http://127.0.0.1:8080/
//
// A picture takes a second, and each of the five lines comes a second after the one
// before. Of 20 requests at once eleven get a picture, as ten may wait, and the others a 503
// at once.
package main

import (
	"io"
	"log"
	"net/http"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

func main() {
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", newHandler()))
}

func newHandler() http.Handler {
	l := limiter.MustNew(limiter.Config{
		Rules: []limiter.Rule{{
			Name:    "pictures",
			Key:     keyfuncs.Global,
			Limit:   core.MustParseLimit("1 concurrent ttl=30s"),
			OnLimit: limiter.Wait(time.Minute),
		}},
		MaxWaiters: 10,
	})
	return nethttp.New(l)(http.HandlerFunc(picture))
}

func picture(w http.ResponseWriter, _ *http.Request) {
	time.Sleep(time.Second)
	io.WriteString(w, time.Now().Format("15:04:05.000\n"))
}
