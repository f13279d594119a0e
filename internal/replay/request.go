package replay

import (
	"context"
	"net/url"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/accesslog"
	"github.com/headgate/headgate/keyfuncs"
)

// request is the view that rules have of an entry of a log.
type request struct {
	entry *accesslog.Entry
	path  string // decoded
	raw   string // as it was sent, "" if it has no escapes
	query string // as it was sent
	one   [1]string

	key   string // of its caller by "ip"
	hash  uint64 // of key
	keyed bool   // key is known
}

var _ core.Request = (*request)(nil)

// set makes the request that of the entry.
func (r *request) set(e *accesslog.Entry) {
	target, _, _ := strings.Cut(e.Target, "#")
	path, query, _ := strings.Cut(target, "?")

	r.entry, r.path, r.raw, r.query, r.keyed = e, path, "", query, false

	// A path that cannot be decoded is taken as it came: servers refuse it, and it counts as one.
	if strings.IndexByte(path, '%') >= 0 {
		r.raw = path
		if decoded, err := url.PathUnescape(path); err == nil {
			r.path = decoded
		}
	}
}

func (r *request) Context() context.Context { return context.Background() }
func (r *request) Method() string           { return r.entry.Method }
func (r *request) Path() string             { return r.path }
func (r *request) RawPath() string          { return r.raw }
func (r *request) RawQuery() string         { return r.query }
func (r *request) Route() string            { return "" }
func (r *request) RemoteAddr() string       { return r.entry.Address }

// Header returns the headers that logs have. The slice is valid until the next call.
func (r *request) Header(name string) []string {
	text := ""
	switch name {
	case "Host":
		text = r.entry.Host
	case "X-Forwarded-For":
		text = r.entry.Forwarded
	case "User-Agent":
		text = r.entry.Agent
	case "Referer":
		text = r.entry.Referer
	}
	if text == "" {
		return nil
	}
	r.one[0] = text
	return r.one[:]
}

// How many bits of an address of IPv6 the key "ip" has, and all of them.
const (
	defaultBits = 64
	allBits     = 128
)

// maxName is how many bytes of the name of a user or a host are a key as they are.
const maxName = 64

// digestPrefix begins the key of a longer name.
const digestPrefix = "sha256:"

// userKey is the key of the user that the log names.
func userKey(r core.Request) (key string, ok bool) {
	if r, is := r.(*request); is {
		key = nameKey(r.entry.User)
	}
	return key, true
}

// hostKey returns the key of addresses for logs that may have the names of hosts in their place, as
// Apache writes them with HostnameLookups. Each is a caller of its own.
func hostKey(address core.KeyFunc) core.KeyFunc {
	return func(r core.Request) (string, bool) {
		key, ok := address(r)
		if l, is := r.(*request); is && key == "" {
			key = nameKey(strings.ToLower(l.entry.Address))
		}
		return key, ok
	}
}

// nameKey returns the key of a name. A client may choose it, so a long one is replaced by its
// digest, and so is one that looks like a digest.
func nameKey(name string) string {
	if len(name) > maxName || strings.HasPrefix(name, digestPrefix) {
		return digestPrefix + keyfuncs.Digest(name)
	}
	return name
}
