// Package jsonapi answers programs in any language that ask, in JSON over HTTP, whether something
// may be done and at what cost. openapi.yaml, which it serves, describes it. [New] returns the
// handler. A caller is trusted: it says who its own callers are. So it has a bearer token, or a
// certificate, or is on this machine.
package jsonapi

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/callers"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/engine"
	"github.com/headgate/headgate/internal/quietlog"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/debug"
)

// Prefix is the path below which the handler serves.
const Prefix = "/v1/"

// Bounds and defaults of the Options.
const (
	// DefaultKeep is for how long tokens, and answers to takes with an id, are kept.
	DefaultKeep = 24 * time.Hour

	MinKeep, MaxKeep = time.Minute, 31 * 24 * time.Hour

	defaultTimeout = 50 * time.Millisecond

	// claimFor is how long a take with an id may be under way. If its gateway dies
	// meanwhile, a repetition is a new take after that time.
	claimFor = 30 * time.Second

	// maxMemory bounds the records of a gateway without Redis, in bytes.
	maxMemory = 64 << 20
)

//go:embed openapi.yaml
var description []byte

// Options configure the handler. Log must be set.
type Options struct {
	// Log receives what is wrong with requests, and failures of Redis.
	Log *quietlog.Log

	// Secret authenticates the tokens, which are good at all gateways with the same one. It
	// has at least MinSecret bytes; nil means a random one, so that tokens are good at this
	// gateway only, until it ends.
	Secret []byte

	// Clients are those who may call, by the SHA-256 digests of their bearer tokens. If
	// there are none, only peers with a certificate that the server has verified may call,
	// and those that [debug.Local] accepts.
	Clients map[[sha256.Size]byte]string

	// Redis keeps what must not happen twice; nil means in memory. Prefix begins the keys.
	Redis   redis.UniversalClient
	Prefix  string
	Timeout time.Duration // of a call; 0 means 50 ms

	// Keep is for how long tokens are good and answers to takes with an id are kept: from
	// MinKeep to MaxKeep, and 0 means DefaultKeep.
	Keep time.Duration
}

// Face returns the face for the engine.
func Face() engine.Face {
	return engine.Face{Name: "json", SeesNoAnswers: true, Bind: callers.Described}
}

// New returns the handler, which serves what is below Prefix. The error names every
// mistake.
func New(e *engine.Engine, o Options) (*Handler, error) {
	h, err := newHandler(e, o)
	if err != nil {
		return nil, err
	}
	return &Handler{h.routes(), h}, nil
}

// Handler answers programs. It does not change: With makes another one.
type Handler struct {
	http.Handler
	handler *handler
}

// With returns a handler with the Secret, Clients and Keep of o, which must be valid. All else
// stays, such as what must not happen twice.
func (h *Handler) With(o Options) *Handler {
	next := *h.handler
	next.accept(o)
	return &Handler{next.routes(), &next}
}

func newHandler(e *engine.Engine, o Options) (*handler, error) {
	h := &handler{
		log: o.Log, ttl: cmp.Or(o.Keep, DefaultKeep), logger: e.Logger(),
		limiters: map[string]*limiter.Limiter{}, now: time.Now, patience: cmp.Or(o.Timeout, defaultTimeout) * 3 / 10,
	}

	var errs []error
	if o.Log == nil {
		errs = append(errs, errors.New("jsonapi: Log must be set"))
	}
	if o.Secret != nil && len(o.Secret) < MinSecret {
		errs = append(errs, fmt.Errorf("jsonapi: Secret: it has fewer than %d bytes", MinSecret))
	}
	if h.ttl < MinKeep || h.ttl > MaxKeep {
		errs = append(errs, fmt.Errorf("jsonapi: Keep: %s is not within %s to %s", h.ttl, MinKeep, MaxKeep))
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

	h.accept(o)
	h.records = &memoryRecords{max: maxMemory}
	if o.Redis != nil {
		h.records = &redisRecords{
			client: o.Redis, prefix: o.Prefix + "json:", timeout: cmp.Or(o.Timeout, defaultTimeout),
		}
	}
	return h, nil
}

// accept takes over what With may change.
func (h *handler) accept(o Options) {
	h.secret, h.clients, h.ttl = o.Secret, o.Clients, cmp.Or(o.Keep, DefaultKeep)

	// A secret of this process is enough for one gateway, and is no mistake.
	if h.secret == nil && h.own == nil {
		h.own = make([]byte, MinSecret)
		_, _ = rand.Read(h.own) // never fails, as its contract says
		h.logger.Warn("tokens of the JSON face are good at this gateway only, until it ends; " +
			"-json-secret is one for all gateways")
	}
	if h.secret == nil {
		h.secret = h.own
	}
}

type handler struct {
	log      *quietlog.Log
	logger   *slog.Logger
	own      []byte // the secret of this process, unless there was always another
	secret   []byte
	clients  map[[sha256.Size]byte]string
	ttl      time.Duration
	limiters map[string]*limiter.Limiter // by application; that of "" is the default
	records  records
	now      func() time.Time

	// patience bounds the call of Redis before a take with an id, which has to wait for the
	// store as well.
	patience time.Duration
}

// operation is what a path does with each item.
type operation struct {
	name string
	read func(*object) item
	do   func(context.Context, *item) answer
}

func (h *handler) routes() http.Handler {
	mux := http.NewServeMux()
	for _, op := range []operation{
		{"take", func(o *object) item { return h.readAsk(o, true) }, h.once(h.take)},
		{"peek", func(o *object) item { return h.readAsk(o, false) }, h.peek},
		{"refund", func(o *object) item { return h.readToken(o, false) }, h.refund},
		{"settle", func(o *object) item { return h.readToken(o, true) }, h.settle},
		{"release", func(o *object) item { return h.readToken(o, false) }, h.release},
		{"renew", func(o *object) item { return h.readToken(o, false) }, h.renew},
		{"debit", h.readDebit, h.once(h.debit)},
		{"grant", func(o *object) item { return h.readCredit(o, true) }, h.once(h.grant)},
		{"revoke", func(o *object) item { return h.readCredit(o, false) }, h.revoke},
	} {
		mux.Handle(Prefix+op.name, h.operation(op))
	}

	mux.HandleFunc("GET "+Prefix+"openapi.yaml", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(description)
	})

	mux.HandleFunc(Prefix, func(w http.ResponseWriter, _ *http.Request) {
		fail(w, &problem{
			Status: http.StatusNotFound,
			Detail: "there is nothing at this path; " + Prefix + "openapi.yaml describes what there is",
		})
	})
	return mux
}

// problem is a body of RFC 9457.
type problem struct {
	Type   string  `json:"type"`
	Title  string  `json:"title"`
	Status int     `json:"status"`
	Detail string  `json:"detail"`
	Errors []fault `json:"errors,omitempty"`

	retryAfter int // seconds, or 0
}

// complete fills in what follows from the status.
func (p *problem) complete() *problem {
	p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	return p
}

func fail(w http.ResponseWriter, p *problem) {
	if p.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.retryAfter))
	}
	write(w, limiter.ProblemType, p.Status, p.complete())
}

func write(w http.ResponseWriter, kind string, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil { // which no value of this package's does
		status, b = http.StatusInternalServerError, nil
	}

	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // the client may have left
}

// operation returns the handler of an operation.
func (h *handler) operation(op operation) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Nothing of the body is read before the client is known.
		client, p := h.authenticate(r)
		if p == nil {
			p = checkForm(r)
		}
		if p != nil {
			if p.Status == http.StatusMethodNotAllowed {
				w.Header().Set("Allow", http.MethodPost)
			}
			if p.Status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", `Bearer realm="headgate"`)
			}
			fail(w, p)
			return
		}

		items, batch, p := readBody(w, r, op.read)
		if p != nil {
			fail(w, p)
			return
		}
		h.carryOut(w, r, op, client, items, batch)
	})
}

// carryOut answers the items in their order.
func (h *handler) carryOut(
	w http.ResponseWriter, r *http.Request, op operation, client string, items []item, batch bool,
) {
	answers := make([]answer, len(items))

	// An id is the client's own, and of one operation: two clients may use the same one.
	for i := range items {
		if items[i].id != "" {
			items[i].id = hashed(op.name, client, items[i].id)
		}
		answers[i] = op.do(r.Context(), &items[i])
	}

	// The answer to a list is in the body alone; that to one item is the status and the headers as
	// well.
	if batch {
		write(w, "application/json", http.StatusOK, map[string][]answer{"items": answers})
		return
	}
	if p := answers[0].Problem; p != nil {
		fail(w, p)
		return
	}

	if s := answers[0].RetryAfter; s != nil {
		w.Header().Set("Retry-After", strconv.FormatInt(s.roundedUp(), 10))
	}
	if answers[0].replayed {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	write(w, "application/json", http.StatusOK, answers[0])
}

// authenticate returns the name of the client, for records, or why it may not call.
func (h *handler) authenticate(r *http.Request) (client string, p *problem) {
	if len(h.clients) > 0 {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		// Digests are compared by a map, so that the time says nothing about a token.
		name, ok := h.clients[sha256.Sum256([]byte(strings.TrimSpace(token)))]
		if !ok || !strings.EqualFold(scheme, "Bearer") {
			h.log.Record(slog.LevelWarn, "the JSON face was called without a valid bearer token",
				slog.String("peer", r.RemoteAddr))
			return "", &problem{
				Status: http.StatusUnauthorized, Detail: "the call needs a bearer token that this gateway knows",
			}
		}
		return name, nil
	}

	// Without tokens a verified certificate is enough, or that the program is on this machine.
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return r.TLS.PeerCertificates[0].Subject.String(), nil
	}
	if debug.Local(r) {
		return "", nil
	}

	h.log.Record(slog.LevelWarn,
		"the JSON face was called from another machine, or for another host, and has no bearer tokens",
		slog.String("peer", r.RemoteAddr))
	return "", &problem{
		Status: http.StatusForbidden,
		Detail: "a call that is not from this machine to localhost or a loopback address, " +
			"without a proxy between, needs a bearer token, see -json-client, or a certificate, see -tls-client-ca",
	}
}

// checkForm returns what is wrong with the call before its body. A browser asks for leave
// before it sends JSON to another site, and gets none.
func checkForm(r *http.Request) *problem {
	if r.Method != http.MethodPost {
		return &problem{Status: http.StatusMethodNotAllowed, Detail: "the method is not POST"}
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return &problem{Status: http.StatusUnsupportedMediaType, Detail: "the Content-Type is not application/json"}
	}
	if enc := r.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return &problem{Status: http.StatusUnsupportedMediaType, Detail: "the Content-Encoding is not identity"}
	}
	return nil
}

// readBody reads one item, or a list of them.
func readBody(w http.ResponseWriter, r *http.Request, read func(*object) item) (items []item, batch bool, p *problem) {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if err != nil {
		if errors.As(err, new(*http.MaxBytesError)) {
			return nil, false, &problem{
				Status: http.StatusRequestEntityTooLarge,
				Detail: fmt.Sprintf("the body is larger than %d bytes", MaxBody),
			}
		}
		return nil, false, &problem{Status: http.StatusBadRequest, Detail: "the body cannot be read"}
	}

	f := &faults{}
	v, err := parse(b, f)
	if err != nil {
		return nil, false, &problem{Status: http.StatusBadRequest, Detail: err.Error(), Errors: f.list}
	}

	o := readObject(v, "", f)
	if batch = o.has("items"); batch {
		items = readItems(o, f, read)
	} else {
		items = []item{read(o)}
		items[0].same = sameness(o)
	}

	// All mistakes of the body are answered at once, and nothing of it is carried out if there is
	// any.
	readIdempotencyKey(r, items, batch, f)
	if len(f.list) > 0 {
		detail := "the body has mistakes"
		if f.more {
			detail = fmt.Sprintf("the body has more than %d mistakes, of which these are the first", maxFaults)
		}
		return nil, batch, &problem{Status: http.StatusBadRequest, Detail: detail, Errors: f.list}
	}

	return items, batch, nil
}

// readItems reads the list of items.
func readItems(o *object, f *faults, read func(*object) item) (items []item) {
	v, at, _ := o.get("items")
	list, ok := v.([]any)
	if !ok || len(list) == 0 || len(list) > MaxItems {
		f.add(at, fmt.Sprintf("it is not a list of 1 to %d items", MaxItems))
		return nil
	}

	first := map[string]int{}
	for n, one := range list {
		where := at + "/" + strconv.Itoa(n)
		inner := readObject(one, where, f)
		i := read(inner)
		i.same = sameness(inner)
		// Two items with one id would be one take, and the second would get the answer to the
		// first.
		if i.id != "" {
			if m, taken := first[i.id]; taken {
				f.add(where+"/id", fmt.Sprintf("item %d has the same id", m))
			}
			first[i.id] = n
		}

		items = append(items, i)
	}

	o.unusedFields()
	return items
}

// sameness returns a text that is equal for items that ask for the same, whatever their ids.
func sameness(o *object) string {
	fields := maps.Clone(o.fields)
	delete(fields, "id")
	text, err := json.Marshal(fields) // in the order of their names
	if err != nil {                   // which no value that was parsed leads to
		o.f.add(o.at, "it cannot be read")
	}
	return string(text)
}

// readIdempotencyKey makes the header Idempotency-Key the id of a single item.
func readIdempotencyKey(r *http.Request, items []item, batch bool, f *faults) {
	lines := r.Header.Values("Idempotency-Key")
	if len(lines) == 0 {
		return
	}

	switch {
	case batch:
		f.add("", `the header Idempotency-Key is for a single item; each item of a list has an "id"`)
	case len(lines) > 1 || lines[0] == "" || len(lines[0]) > maxID:
		f.add("", fmt.Sprintf("the header Idempotency-Key does not have 1 to %d bytes in one line", maxID))
	case items[0].id != "":
		f.add("/id", "the header Idempotency-Key says it too")
	default:
		items[0].id = lines[0]
	}
}
