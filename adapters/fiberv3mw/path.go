package fiberv3mw

import (
	"strings"

	"github.com/headgate/headgate/internal/target"
)

// Path returns the path that Fiber routes by, so that all spellings that reach one
// handler are one path.
func (r *request) Path() string {
	path := r.c.Path()
	config := r.c.App().Config()
	if !config.StrictRouting && len(path) > 1 {
		path = strings.TrimRight(path, "/")
	}
	if config.CaseSensitive {
		return strings.Clone(path)
	}
	return lower(path)
}

// lower returns a copy with the letters A to Z in lower case. Fiber folds no other
// letters.
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// SentPath returns the path that the client sent if a handler has set another since, for
// package policy.
func (r *request) SentPath() string {
	sent, path := r.c.Request().Header.RequestURI(), r.c.Path()
	if len(sent) >= len(path) && string(sent[:len(path)]) == path && (len(sent) == len(path) || sent[len(path)] == '?') {
		return ""
	}
	return target.OtherThan(path, string(sent))
}
