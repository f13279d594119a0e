package api

import (
	"net/http"
	"path"
)

// unrouted returns the error of a request without a route. A path that
// http.ServeMux would redirect to another spelling has no route.
func (a *API) unrouted(r *http.Request) error {
	escaped := r.URL.EscapedPath()
	if path.Clean(escaped) != escaped {
		return newProblem(http.StatusNotFound, "not-found", "there is no such route")
	}

	h, pattern := a.mux.Handler(r)
	if pattern != "" {
		return nil
	}

	// http.ServeMux knows which methods a path has, and says so only in its own answer.
	var probe probe
	h.ServeHTTP(&probe, r)
	if probe.status == http.StatusMethodNotAllowed {
		return &problem{
			Status: probe.status, Code: "method-not-allowed", Detail: "the route has no such method",
			allow: probe.header.Get("Allow"),
		}
	}
	return newProblem(http.StatusNotFound, "not-found", "there is no such route")
}

// probe records the answer that http.ServeMux gives by itself.
type probe struct {
	header http.Header
	status int
}

func (p *probe) Header() http.Header {
	if p.header == nil {
		p.header = http.Header{}
	}
	return p.header
}

func (p *probe) WriteHeader(status int)      { p.status = status }
func (p *probe) Write(b []byte) (int, error) { return len(b), nil }
