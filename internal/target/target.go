// Package target reads the path that a client asked for, which middleware may have changed since
// in the request. [Path] returns that path.
package target

import (
	"net/http"
	"net/url"
	"strings"
)

// Path returns the decoded path that the client sent if r.URL has another by now, as inside
// http.StripPrefix, and "" otherwise. It is "" too if r has no RequestURI.
func Path(r *http.Request) string {
	sent, path := r.RequestURI, r.URL.Path
	if sent == "" || strings.HasPrefix(sent, path) && (len(sent) == len(path) || sent[len(path)] == '?') {
		return ""
	}
	return OtherThan(path, sent)
}

// OtherThan returns the decoded path of a request target if it is another than path, and ""
// otherwise. It is "" too if the target has no path, as that of CONNECT.
func OtherThan(path, target string) string {
	u, err := url.ParseRequestURI(target)
	if err != nil || u.Path == path || !strings.HasPrefix(u.Path, "/") {
		return ""
	}
	return u.Path
}
