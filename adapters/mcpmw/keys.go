package mcpmw

import (
	"crypto/rand"
	"runtime"
	"strings"
	"sync"
	"weak"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
)

// CodeNoCaller is the code of the finding that a rule counts by [User] or [Session], and a call
// over HTTP has no verified user, or is to a server without sessions.
const CodeNoCaller = "HG022"

// User is a key function that counts by the user of the verified token, which the SDK's
// auth.RequireBearerToken has put around the handler: by TokenInfo.UserID. Calls over HTTP
// without one share the key "", and the limiter logs that once, with [CodeNoCaller]. Over stdio
// and in memory there are no tokens, and the session stands for the user, as under [Session].
func User(r core.Request) (key string, ok bool) {
	c, isCall := r.(*request)
	if !isCall {
		return "", true
	}

	if token := c.call.token(); token != nil && token.UserID != "" {
		return bounded(token.UserID), true
	}

	// The client of stdio has started the server, and is its only user.
	if c.call.overHTTP() {
		c.limiter.Warn(core.Finding{Code: CodeNoCaller, Text: "a rule counts by the user of the token, and a call " +
			"came without one: all such callers share its limit; put auth.RequireBearerToken around the handler, " +
			"with a verifier that sets UserID"})
		return "", true
	}
	return Session(r)
}

// Session is a key function that counts by the session. A client may open any number of them, so
// a rule with it limits no client that does not keep to one: put a rule by [User] beside it. The
// session of HTTP has the digest of its ID as key, because the ID is a secret. A session over stdio
// or in memory has a random key of its own. A server over HTTP without sessions
// (StreamableHTTPOptions.Stateless) has one count, with the key "", for all calls, and the limiter
// logs that once, with [CodeNoCaller].
func Session(r core.Request) (key string, ok bool) {
	c, isCall := r.(*request)
	if !isCall {
		return "", true
	}

	s, ok := c.call.Request.GetSession().(*mcp.ServerSession)
	if !ok || s == nil {
		return "", true
	}
	if id := s.ID(); id != "" {
		return keyfuncs.Digest(id), true
	}

	if c.call.overHTTP() {
		c.limiter.Warn(core.Finding{Code: CodeNoCaller, Text: "a rule counts by the session, and a call came to a " +
			"server without sessions: all callers share its limit; count by mcpmw.User"})
		return "", true
	}
	return nameless.keyOf(s), true
}

// Tool is a key function that counts by the name of the tool. A rule with it applies to calls
// of tools alone. Names longer than 128 bytes are replaced by a digest. See Config.Known for
// names that the server does not have.
func Tool(r core.Request) (key string, ok bool) { return named(r, toolsCall) }

// Resource is like [Tool] for the URIs of resources that are read.
func Resource(r core.Request) (key string, ok bool) { return named(r, resourcesRead) }

// Prompt is like [Tool] for the names of prompts.
func Prompt(r core.Request) (key string, ok bool) { return named(r, promptsGet) }

// named returns the name that a call of the method has.
func named(r core.Request, method string) (string, bool) {
	c, ok := r.(*request)
	if !ok || c.call.Method != method {
		return "", false
	}

	if c.known != nil && !c.limiter.Try("Config.Known", func() bool { return c.known(&c.call) }) {
		return "", true
	}
	return bounded(c.call.Name()), true
}

// bounded bounds the length of a key as package keyfuncs does.
func bounded(s string) string {
	const longest, prefix = 128, "sha256:"
	if len(s) <= longest && !strings.HasPrefix(s, prefix) {
		return s
	}
	return prefix + keyfuncs.Digest(s)
}

// nameless has the keys of the sessions that have no ID.
var nameless sessionKeys

// sessionKeys has a random key for each session, for as long as the program holds the session.
type sessionKeys struct{ keys sync.Map } // of weak.Pointer[mcp.ServerSession]

func (s *sessionKeys) keyOf(session *mcp.ServerSession) string {
	p := weak.Make(session)
	if key, ok := s.keys.Load(p); ok {
		return key.(string)
	}

	key, loaded := s.keys.LoadOrStore(p, rand.Text())
	if !loaded {
		runtime.AddCleanup(session, func(p weak.Pointer[mcp.ServerSession]) { s.keys.Delete(p) }, p)
	}
	return key.(string)
}
