// This file has the form of errors.
//
// Every error is a problem of RFC 9457. Its member "code" identifies the kind, and
// "errors" lists all mistakes by field, if there are any. A body is one JSON value
// of bounded length, without unknown or repeated fields.

package api

import (
	"encoding/json"
	"net/http"
)

// problem is an error in the form of RFC 9457.
type problem struct {
	Type      string  `json:"type"`
	Title     string  `json:"title"`
	Status    int     `json:"status"`
	Code      string  `json:"code"`
	Detail    string  `json:"detail"`
	RequestID string  `json:"request_id"`
	Errors    []fault `json:"errors,omitempty"`
	Conflict  *clash  `json:"conflict,omitempty"`
	allow     string  // the permitted methods, for a 405
	retry     int64   // seconds; 0 omits Retry-After
}

// fault is one mistake in a request.
type fault struct {
	Policy  string `json:"policy,omitempty"` // in an import
	Field   string `json:"field"`            // "" for the whole
	Message string `json:"message"`
}

// newProblem returns a problem that has no more to say than a sentence.
func newProblem(status int, code, detail string) *problem {
	return &problem{Status: status, Code: code, Detail: detail}
}

func (p *problem) Error() string { return p.Detail }

// write answers with the problem.
func (p *problem) write(w http.ResponseWriter, requestID string) {
	answer := *p
	answer.Type, answer.Title, answer.RequestID = "about:blank", http.StatusText(p.Status), requestID

	// The tag is that of an answer which is not given.
	h := w.Header()
	h.Del("ETag")
	h.Set("Content-Type", "application/problem+json")
	if p.allow != "" {
		h.Set("Allow", p.allow)
	}
	if p.retry > 0 {
		h.Set("Retry-After", seconds(p.retry))
	}

	if p.Status == http.StatusUnauthorized {
		challenge := `Bearer realm="headgate console"`
		if p.Code == "token-expired" {
			challenge += `, error="invalid_token", error_description="the token has expired"`
		}
		h.Set("WWW-Authenticate", challenge)
	}

	// Texts and numbers can always be written, so this cannot fail.
	b, err := json.Marshal(answer)
	if err != nil {
		b = []byte("{}")
	}
	w.WriteHeader(p.Status)
	w.Write(append(b, '\n'))
}
