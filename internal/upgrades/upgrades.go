// Package upgrades knows to which protocols a client may switch a connection. A connection that
// has switched is one request to every limit, so only a protocol in which a client has one
// conversation is allowed: in a tunnel such as h2c clients send requests that nothing counts.
// [Protocols] are the allowed ones.
package upgrades

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/textform"
)

// Protocols are the names of the protocols that are allowed. None means websocket alone.
type Protocols []string

// Check returns an error if a name is none of Upgrade, or that of a protocol in which clients
// send requests.
func Check(name string) error {
	lower := strings.ToLower(name)
	protocol, _, _ := strings.Cut(lower, "/")
	other := strings.Trim(strings.Replace(lower, "/", "", 1), "abcdefghijklmnopqrstuvwxyz0123456789-._")
	switch {
	case lower == "" || other != "":
		return fmt.Errorf("%q is not the name of a protocol, such as websocket", textform.Clip(name))
	case slices.Contains([]string{"h2c", "h2", "h3", "http", "tls"}, protocol):
		return errors.New("it carries requests, which would not be counted")
	}
	return nil
}

// Allow reports whether a request with these headers asks for no protocol, or for one that is
// allowed. A server may agree to any element of a list, and to any of several lines.
func (p Protocols) Allow(h http.Header) bool {
	wish := h["Upgrade"]
	return len(wish) == 0 || len(wish) == 1 && p.has(wish[0])
}

// AllowMethod reports whether a request with this method and these headers makes no tunnel:
// CONNECT is allowed only with a protocol that is, as HTTP/2 asks for a WebSocket.
func (p Protocols) AllowMethod(method string, h http.Header) bool {
	return p.Allow(h) && (method != http.MethodConnect || len(h["Upgrade"]) == 1)
}

func (p Protocols) has(name string) bool {
	if len(p) == 0 {
		return strings.EqualFold(name, "websocket")
	}
	return slices.ContainsFunc(p, func(allowed string) bool { return strings.EqualFold(allowed, name) })
}
