package server

import (
	"net/http"

	"github.com/klauspost/compress/gzhttp"
)

// minCompressed is the least number of bytes of an answer that is compressed.
const minCompressed = 1024

// Compress compresses the answers to GET that are text. All other answers are as they were: the
// length of a compressed answer reveals what a secret in it has in common with what the request
// made the page repeat. The pages and the API show one-time passwords, tokens, recovery codes and
// secrets of webhooks in answers to POST alone. The URLs of webhooks, which may be secret, are in
// answers to GET that repeat nothing of the request.
func Compress(next http.Handler) (http.Handler, error) {
	wrap, err := gzhttp.NewWrapper(gzhttp.MinSize(minCompressed),
		gzhttp.ContentTypes([]string{
			"text/html", "text/css", "text/javascript", "text/csv", "image/svg+xml",
			"application/json", "application/yaml",
		}))
	if err != nil {
		return nil, err
	}

	compressed := wrap(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			compressed.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	}), nil
}
