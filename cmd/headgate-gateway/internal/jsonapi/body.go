// This file reads the items of a body.

package jsonapi

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/callers"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/nethttp"
)

// Bounds of a body.
const (
	MaxBody  = 1 << 20 // bytes
	MaxItems = 100

	maxText    = 8192 // bytes of a key, a path or the value of a header
	maxToken   = 512 << 10
	maxID      = 255
	maxMethod  = 32
	maxHeaders = 100
)

// item is one item of a body. Which fields it has depends on the operation.
type item struct {
	at string // its JSON pointer

	id      string
	app     string
	key     *string
	request *http.Request
	cost    int64
	costed  bool // cost was given

	policy string
	until  time.Time

	token token
	used  map[string]int64

	// same is equal for items that ask for the same.
	same string
}

// describedRequest returns the request that a take or peek describes, or nil.
func (i *item) describedRequest(ctx context.Context) core.Request {
	if i.request == nil {
		return nil
	}
	// The user and the plan are in the context of the request.
	return nethttp.Request(i.request.WithContext(joined{ctx, i.request.Context()}))
}

// joined is a context with the values of another.
type joined struct {
	context.Context
	values context.Context
}

// Value returns the value of either.
func (j joined) Value(key any) any {
	if v := j.values.Value(key); v != nil {
		return v
	}
	return j.Context.Value(key)
}

// readAsk reads an item of a take or a peek.
func (h *handler) readAsk(o *object, taking bool) (i item) {
	i.at, i.app = o.at, h.readApp(o)
	if taking {
		i.id = readID(o)
		i.costed, i.cost = o.has("cost"), o.integer("cost", 1)
	}

	// An item with both or none is one mistake; what it has of them is not looked at further.
	switch {
	case o.has("key") == o.has("request"):
		o.f.add(o.at, `it needs either "key" or "request"`)
		o.known = append(o.known, "key", "request")
	case o.has("key"):
		key := o.text("key", maxText)
		i.key = &key
	default:
		v, at, _ := o.get("request")
		i.request = readRequest(readObject(v, at, o.f))
	}

	o.unusedFields()
	return i
}

// readApp reads the application of an item.
func (h *handler) readApp(o *object) string {
	app := o.text("app", maxText)
	if h.limiters[app] == nil {
		o.f.add(o.at+"/app", "it is not an application of the gateway")
	}
	return app
}

// readID reads the id of an item, which may lack one.
func readID(o *object) string {
	id := o.text("id", maxID)
	if v, at, ok := o.get("id"); ok && v == "" {
		o.f.add(at, "it is empty")
	}
	return id
}

// readDebit reads an item of a debit.
func (h *handler) readDebit(o *object) (i item) {
	i.at, i.app, i.id = o.at, h.readApp(o), readID(o)
	key := o.requiredText("key", maxText)
	i.key, i.cost = &key, o.requiredInteger("cost")
	o.unusedFields()
	return i
}

// readCredit reads an item of a grant or a revoke.
func (h *handler) readCredit(o *object, granting bool) (i item) {
	i.at, i.app, i.policy = o.at, h.readApp(o), o.requiredText("policy", maxText)
	key := o.requiredText("key", maxText)
	i.key = &key

	if granting {
		i.id, i.cost = readID(o), o.requiredInteger("units")
		text := o.requiredText("until", maxText)
		var err error
		if i.until, err = time.Parse(time.RFC3339, text); err != nil && text != "" {
			o.f.add(o.at+"/until", "it is not an instant as in 2026-03-01T12:00:00Z")
		}
	}

	o.unusedFields()
	return i
}

// readRequest reads a request that a client describes.
func readRequest(o *object) *http.Request {
	r := &http.Request{Method: o.text("method", maxMethod), Host: o.text("host", maxText)}

	// A mistake in the text itself is listed already, and is not listed twice.
	if !o.has("method") {
		r.Method = http.MethodGet
	} else if !httpguts.ValidHeaderFieldName(r.Method) && !hasFault(o.f, o.at+"/method") {
		o.f.add(o.at+"/method", "it is not the method of a request")
	}

	path := "/"
	if o.has("path") {
		path = o.text("path", maxText)
	}
	var err error
	r.URL, err = url.ParseRequestURI(path)
	if (err != nil || strings.Contains(path, "#")) && !hasFault(o.f, o.at+"/path") {
		o.f.add(o.at+"/path", "it is not the path of a request, as it was sent")
	}

	r.RemoteAddr = readAddress(o)
	r.Header = readHeaders(o)

	// The user, the plan and the claims are not headers, which clients of the program might send.
	ctx := callers.WithUser(context.Background(), o.text("user", maxText))
	ctx = callers.WithPlan(ctx, o.text("plan", maxText))
	ctx = callers.WithClaims(ctx, readClaims(o))
	o.unusedFields()
	return r.WithContext(ctx)
}

// readClaims reads the claims of a token, or nil.
func readClaims(o *object) map[string]any {
	v, at, ok := o.get("claims")
	if !ok {
		return nil
	}
	claims, ok := v.(map[string]any)
	if !ok {
		o.f.add(at, "it is not an object")
	}
	return claims
}

// hasFault reports whether a mistake in the field is listed.
func hasFault(f *faults, at string) bool {
	return slices.ContainsFunc(f.list, func(one fault) bool { return one.Pointer == at })
}

// readAddress reads the address of the client, with or without a port.
func readAddress(o *object) string {
	text := o.text("address", maxText)
	if text == "" {
		return ""
	}
	if ip, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(ip, 0).String()
	}
	if _, err := netip.ParseAddrPort(text); err != nil {
		o.f.add(o.at+"/address", "it is not an IP address, with or without a port")
	}
	return text
}

// readHeaders reads headers: each is a text, or a list of its lines.
func readHeaders(o *object) http.Header {
	v, at, ok := o.get("headers")
	if !ok {
		return nil
	}

	list := readObject(v, at, o.f)
	if len(list.fields) > maxHeaders {
		o.f.add(at, fmt.Sprintf("it has more than %d headers", maxHeaders))
		return nil
	}

	// Names are read in order, so that the mistakes are listed in one that does not change.
	h := http.Header{}
	for _, name := range slices.Sorted(maps.Keys(list.fields)) {
		v, at, _ := list.get(name)
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			o.f.add(at, "it is not the name of a header")
		case canonical == "Host":
			o.f.add(at, `the host has a field of its own, "host"`)
		case h[canonical] != nil:
			o.f.add(at, "it is repeated in another case")
		default:
			h[canonical] = readLines(v, at, o.f)
		}
	}
	return h
}

func readLines(v any, at string, f *faults) []string {
	lines, ok := v.([]any)
	if !ok {
		lines = []any{v}
	}
	if ok && (len(lines) == 0 || len(lines) > maxHeaders) {
		f.add(at, fmt.Sprintf("it does not have 1 to %d lines", maxHeaders))
	}

	// A list has a place for each line, a single text has none.
	out := make([]string, 0, len(lines))
	for n, l := range lines {
		where := at
		if ok {
			where = fmt.Sprintf("%s/%d", at, n)
		}
		text := readText(l, where, maxText, f)
		if !httpguts.ValidHeaderFieldValue(text) {
			f.add(where, "it is not the value of a header")
		}
		out = append(out, text)
	}
	return out
}

// readToken reads an item of all other operations.
func (h *handler) readToken(o *object, settling bool) (i item) {
	i.at = o.at
	text := o.text("token", maxToken)
	switch t, err := open(text, h.secret, h.ttl, h.now()); {
	case !o.has("token"):
		o.f.add(o.at+"/token", "it is missing")
	case err != nil && !hasFault(o.f, o.at+"/token"):
		o.f.add(o.at+"/token", err.Error())
	case err == nil && h.limiters[t.app] == nil:
		o.f.add(o.at+"/token", "it is about an application that is not of this gateway")
	case err == nil:
		i.token, i.app = t, t.app
	}

	if settling {
		i.used = readUsed(o)
	}
	o.unusedFields()
	return i
}

// readUsed reads the units used, by policy.
func readUsed(o *object) map[string]int64 {
	v, at, ok := o.get("used")
	if !ok {
		o.f.add(at, "it is missing")
		return nil
	}

	list := readObject(v, at, o.f)
	used := map[string]int64{}
	for _, name := range slices.Sorted(maps.Keys(list.fields)) {
		v, at, _ := list.get(name)
		used[name] = readInteger(v, at, o.f)
	}
	return used
}
