// Package forwardauth lets a gateway that asks about each request before it passes it on ask
// headgate: nginx by auth_request, Caddy by forward_auth, Traefik by ForwardAuth, APISIX by
// forward-auth, and what speaks as one of them. [New] returns the handler, and [Options] configure
// it.
package forwardauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/callers"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/engine"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/refusal"
	"github.com/headgate/headgate/internal/quietlog"
	"github.com/headgate/headgate/internal/upgrades"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/policy"
)

// The headers that this face adds to those of the limiter.
const (
	// StatusHeader is the status that the client should see, on every answer that lets no
	// request pass.
	StatusHeader = "Headgate-Status"

	// DegradedHeader is 1 on an answer that lets a request pass although it is over the
	// limit of a policy which degrades. The gateway passes it on to the service, and
	// removes it from the requests of clients.
	DegradedHeader = "Headgate-Degraded"
)

// Path is where the handler is served.
const Path = "/auth"

// DefaultMaxWait is below the shortest time after which a gateway gives up by default, the
// three seconds of APISIX.
const DefaultMaxWait = 2 * time.Second

// maxMaxWait is half of the time after which nginx gives up by default.
const maxMaxWait = 30 * time.Second

// Options configure the handler. Callers and Log must be set.
type Options struct {
	// Callers knows the trusted proxies. All other peers get 403.
	Callers *callers.Callers

	// Log receives what is wrong with requests.
	Log *quietlog.Log

	// Upgrades are the protocols to which a client may switch by Upgrade. A request for
	// another one is refused with 400, because this face cannot remove the wish.
	Upgrades upgrades.Protocols

	// Refusals, unless nil, are the answers to requests that are refused.
	Refusals *refusal.Book

	// MaxWait is the longest time that a request waits for its turn, whatever its policies
	// allow: at most 30 s, and 0 means DefaultMaxWait. A request whose turn comes later is
	// refused at once. It has to be below the time after which the gateway gives up.
	MaxWait time.Duration
}

// Face returns the face for the engine.
func Face() engine.Face {
	return engine.Face{
		Name: "forward-auth",
		CannotKeep: func(p policy.Policy) string {
			if p.Limit.Leased() {
				return "a gateway that asks before a request does not say when it ends, so no lease would be released"
			}
			return ""
		},
		SeesNoAnswers:  true,
		AnswersClients: true,
	}
}

// New returns the handler. The error names every mistake.
func New(e *engine.Engine, o Options) (http.Handler, error) {
	h := &handler{options: o, limiters: map[string]*limiter.Limiter{}}
	var errs []error
	if o.Callers == nil || o.Log == nil {
		errs = append(errs, errors.New("forwardauth: Callers and Log must be set"))
	}
	if o.MaxWait < 0 || o.MaxWait > maxMaxWait {
		errs = append(errs, fmt.Errorf("forwardauth: MaxWait: %s is not within 0 to %s", o.MaxWait, maxMaxWait))
	}
	if o.MaxWait == 0 {
		h.options.MaxWait = DefaultMaxWait
	}

	for i, app := range e.Apps() {
		l, err := e.Limiter(app, Face())
		errs = append(errs, err)
		h.limiters[app] = l
		if i == 0 {
			h.limiters[""] = l
		}
	}

	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return h, nil
}

// handler answers the questions of gateways.
//
// An answer of 200 lets the request pass and has the rate limit headers. An answer to a
// request that must not pass has the headers and the body of a refusal, and in
// Headgate-Status the status that the client should see, because nginx passes on none but
// 401 and 403. The query of the URL has two parameters: "app" names the application,
// and "deny_status" the status of all answers to requests that must not pass.
type handler struct {
	options  Options
	limiters map[string]*limiter.Limiter // by application; that of "" is the default
}

// ServeHTTP answers the question of a gateway.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// What any other peer says of a request would be the client's own word.
	if !h.options.Callers.Trusts(r.RemoteAddr) {
		h.options.Log.Record(slog.LevelWarn, "forward-auth was asked by a peer that is not a trusted proxy",
			slog.String("peer", r.RemoteAddr))
		deny(w, http.StatusForbidden, 0, untrusted)
		return
	}

	asked := original{bounded: bounded{r.Context(), time.Now().Add(h.options.MaxWait)}}
	about, f := asked.request(r, h.options.Callers)
	if f == "" && !h.options.Upgrades.AllowMethod(about.Method, about.Header) {
		f = tunnel
	}

	// A wrong query is the mistake of the gateway's configuration, and is reported before those of
	// a client. If it is the client's query, it says nothing about the configuration.
	q, err := h.readQuery(r.URL.RawQuery)
	if err != nil && f != passedOn {
		h.options.Log.Record(slog.LevelError, "a gateway asks forward-auth with a wrong query",
			slog.String("peer", r.RemoteAddr), slog.String("mistake", err.Error()))
		deny(w, http.StatusBadRequest, 0, err.Error())
		return
	}

	if f != "" {
		h.options.Log.Record(slog.LevelWarn, "forward-auth was asked about a request that it cannot read",
			slog.String("peer", r.RemoteAddr), slog.String("reason", string(f)))
		deny(w, http.StatusBadRequest, q.deny, string(f))
		return
	}

	h.answer(w, q.limiter.Admit(nethttp.Request(about)), q.deny)
}

const untrusted = "the peer is not a trusted proxy, so what it says about a request is not believed; " +
	"name it by -trusted-proxy"

// original is what the original request is made of, in one allocation.
type original struct {
	claim   claim
	url     url.URL
	bounded bounded
}

// request returns the original request that r asks about. It has the headers and the peer
// of r, so that callers are found as they are by every face.
func (o *original) request(r *http.Request, c *callers.Callers) (*http.Request, fault) {
	if f := o.claim.read(r.Header); f != "" {
		return nil, f
	}
	if len(r.Header[c.AddressHeader()]) == 0 {
		return nil, noCaller
	}

	if !parseTarget(&o.url, o.claim.target) {
		return nil, badTarget
	}
	// With the query of the client, the client would choose the application.
	if q := r.URL.RawQuery; q != "" && q == o.url.RawQuery {
		return nil, passedOn
	}

	var ctx context.Context = &o.bounded
	if plan := c.Plan(nethttp.Request(r)); plan != "" {
		ctx = callers.WithPlan(ctx, plan)
	}

	// The copy keeps the headers and the peer of r, and nothing else of the gateway's own request.
	about := r.WithContext(ctx)
	about.Method, about.URL, about.Host, about.RequestURI = o.claim.method, &o.url, o.claim.host, o.claim.target
	about.Pattern = "" // of this handler, not of the service's router
	about.Body, about.TLS = http.NoBody, nil
	return about, ""
}

// bounded is a context with a deadline by which a limiter refuses what would have to wait
// longer. It needs no timer, because no request waits until then.
type bounded struct {
	context.Context
	deadline time.Time
}

// Deadline returns the earlier of both deadlines.
func (b *bounded) Deadline() (time.Time, bool) {
	if d, ok := b.Context.Deadline(); ok && d.Before(b.deadline) {
		return d, true
	}
	return b.deadline, true
}

// unseen stands for the status of an answer that the gateway does not see.
const unseen = 0

// answer sends what the limiter has decided. status, unless 0, is that of an answer which
// lets no request pass.
func (h *handler) answer(w http.ResponseWriter, a *limiter.Admission, status int) {
	header := w.Header()
	a.SetHeaders(header)

	// The request passes. The service behind the gateway answers it with a status that is not known
	// here.
	if a.Status() == 0 {
		defer a.Done(unseen)
		if a.Degraded() {
			header[DegradedHeader] = degraded
		}
		return // 200; without a call of WriteHeader it costs one deadline less
	}

	defer a.Done(a.Status())
	text, ok := h.options.Refusals.Answer(a)
	if !ok {
		text, _ = a.Answer()
	}
	for _, f := range text.Headers {
		header[f.Name] = []string{f.Value}
	}
	send(w, text.Status, status, text.Body)
}

var degraded = []string{"1"}

// deny answers a request that no limiter has decided about.
func deny(w http.ResponseWriter, meant, status int, detail string) {
	header := w.Header()
	header["Content-Type"] = []string{limiter.ProblemType}
	header["Cache-Control"] = []string{"no-store"}
	body, err := json.Marshal(problem{"about:blank", http.StatusText(meant), meant, detail})
	if err != nil {
		body = nil // a status is answer enough
	}
	send(w, meant, status, body)
}

// problem is a body of RFC 9457.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

// send writes an answer that lets no request pass. The client should see the status meant,
// and the gateway gets status unless it is 0.
func send(w http.ResponseWriter, meant, status int, body []byte) {
	w.Header()[StatusHeader] = []string{strconv.Itoa(meant)}
	if status == 0 {
		status = meant
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // the gateway may have left
}
