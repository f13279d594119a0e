package server

import (
	"net/http"
	"sync/atomic"
)

// Health answers the questions of a load balancer: whether the process lives, and whether
// it should get requests.
type Health struct {
	ready    func() error
	reloaded func() string
	state    atomic.Int32
}

// The states of a Health.
const (
	starting int32 = iota
	running
	ending
)

// NewHealth returns a Health of a gateway that is ready while ready returns nil, except
// before all ports listen and from the beginning of the shutdown. The answer of one that is ready
// ends with what reloaded, unless nil, returns: lines about the last reload.
func NewHealth(ready func() error, reloaded func() string) *Health {
	return &Health{ready: ready, reloaded: reloaded}
}

func (h *Health) start() {
	if h != nil {
		h.state.CompareAndSwap(starting, running)
	}
}

func (h *Health) end() {
	if h != nil {
		h.state.Store(ending)
	}
}

// Handler answers GET /healthz with 200, and GET /readyz with 200 or 503. The answer does
// not contain the reason, which is in the log.
func (h *Health) Handler() http.Handler {
	mux := http.NewServeMux()

	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch h.state.Load() {
		case starting:
			answer(w, http.StatusServiceUnavailable, "starting\n")
		case ending:
			answer(w, http.StatusServiceUnavailable, "shutting down\n")
		default:
			if h.ready() != nil {
				answer(w, http.StatusServiceUnavailable, "no policies are in force\n")
				return
			}
			text := "ok\n"
			if h.reloaded != nil {
				text += h.reloaded()
			}
			answer(w, http.StatusOK, text)
		}
	})
	return mux
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	w.Write([]byte(text))
}
