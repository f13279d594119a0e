package httpexchange

import "net/http"

// Header returns the lines of a header of r, as the views that rules have of requests do:
// "Host" is the host asked for.
func Header(r *http.Request, name string) []string {
	if name == "Host" {
		return []string{r.Host}
	}
	return r.Header[name]
}
