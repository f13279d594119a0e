package faults

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/limiter"
)

// hit is one request and its outcome.
type hit struct {
	rule, key string
	trace     *trace

	from     time.Time
	answered time.Time // when the handler was entered, or the request turned away
	to       time.Time // when all was done

	decided  bool // by Redis
	admitted bool
	err      error  // why Redis could not decide
	wrong    string // what is wrong with the answer
}

// read records the answer and checks it against the mode.
func (h *hit) read(tr *trace, answer *http.Response, m *mode) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	h.decided, h.err = tr.decided, tr.err
	h.admitted = !tr.entered.IsZero()
	if !h.fits(answer, m) {
		h.wrong = fmt.Sprintf("rule %s, decided %t (%v), admitted %t: status %d, Retry-After %q",
			h.rule, h.decided, h.err, h.admitted, answer.StatusCode, answer.Header.Get("Retry-After"))
	}
}

// fits reports whether the answer is one that the mode allows.
func (h *hit) fits(answer *http.Response, m *mode) bool {
	status, limited := answer.StatusCode, answer.Header.Get("X-RateLimit-Limit") != ""
	after, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
	switch {
	case h.decided || m.over != nil:
		refused := h.rule == "shared" && status == 429 && after > 0
		return limited && (h.admitted && status == 200 || !h.admitted && refused)
	case m.failure == limiter.FailOpen:
		return h.admitted && status == 200 && !limited
	default:
		return !h.admitted && status == 503 && after > 0
	}
}

// acknowledged reports whether Redis is known to have charged the request.
func (h *hit) acknowledged() bool { return h.decided && h.admitted }
