package web

import (
	"net/http"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/drawing"
)

// validate answers with the preview of a form that is being filled in, and with its
// mistakes.
func validate(r *request) error {
	d := draftOf(r.req.URL.Query())
	_, m := d.policy()
	view, err := r.preview(d, m)
	if err != nil {
		return err
	}
	return r.fragment("form", "preview", view)
}

// draw serves the drawing of a limit. Browsers may cache it.
func draw(r *request) error {
	l, err := core.ParseLimit(r.query("limit"))
	var svg string
	if err == nil {
		svg, err = drawing.SVG(l)
	}
	if err != nil {
		http.Error(r.w, err.Error(), http.StatusBadRequest)
		return nil
	}
	h := r.w.Header()
	h.Set("Content-Type", "image/svg+xml")
	h.Set("Cache-Control", "private, max-age=3600")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'none'")
	_, _ = r.w.Write([]byte(svg)) // the client may have gone
	return nil
}
