package web

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
)

// send answers with a page. An answer to a GET has a tag, with which a script asks for the
// next one.
func (r *request) send(status int, page []byte) {
	h := r.w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")

	if r.req.Method == http.MethodGet && status == http.StatusOK {
		sum := sha256.Sum256(page)
		tag := `"` + hex.EncodeToString(sum[:12]) + `"`
		h.Set("ETag", tag)

		// A page that reloads itself often gets what it has already, and need not be sent again.
		if r.req.Header.Get("If-None-Match") == tag {
			h.Del("Content-Type")
			r.w.WriteHeader(http.StatusNotModified)
			return
		}
	}

	// The client may receive the page slowly.
	if r.done != nil {
		r.done()
	}
	r.w.WriteHeader(status)
	_, _ = r.w.Write(page) // the client may have gone
}
