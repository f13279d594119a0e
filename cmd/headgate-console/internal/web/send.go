package web

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
)

// send answers with a page. An answer to a GET has a tag, with which a script asks for the
// next one.
func (v *request) send(status int, page []byte) {
	h := v.w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")

	if v.r.Method == http.MethodGet && status == http.StatusOK {
		sum := sha256.Sum256(page)
		tag := `"` + hex.EncodeToString(sum[:12]) + `"`
		h.Set("ETag", tag)

		// A page that reloads itself often gets what it has already, and need not be sent again.
		if v.r.Header.Get("If-None-Match") == tag {
			h.Del("Content-Type")
			v.w.WriteHeader(http.StatusNotModified)
			return
		}
	}

	v.w.WriteHeader(status)
	_, _ = v.w.Write(page) // the client may have gone
}
