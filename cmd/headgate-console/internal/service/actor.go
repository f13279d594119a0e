package service

import (
	"strings"

	"github.com/headgate/headgate/internal/textform"
)

// Meta describes a request to the console, for the audit log. Texts that are too
// long are cut.
type Meta struct {
	Address   string // of the client, "ip" or "ip:port"; limits of log-ins count it
	Agent     string // the User-Agent of the client
	RequestID string
	Device    string // the secret of [Session.Device] that the client has, or ""
	Session   string // of a log-in: the secret of the session that the client has had until now, or ""

	// Poll reports that a page has sent the request by itself, and no person: it does not count as
	// a use of the session.
	Poll bool
}

const (
	maxAddress   = 128
	maxAgent     = 256
	maxRequestID = 128
)

func (m Meta) sanitized() Meta {
	return Meta{
		Address: sanitize(m.Address, maxAddress), Agent: sanitize(m.Agent, maxAgent),
		RequestID: sanitize(m.RequestID, maxRequestID), Device: m.Device, Session: m.Session, Poll: m.Poll,
	}
}

// Actor identifies the user or the token that makes a request.
// [Service.Authenticate], [Service.AuthenticateToken] and
// [Service.AuthenticateByProxy] return it, for one request. It holds no
// permissions: each transaction looks them up. The zero value may do nothing.
type Actor struct {
	user    string
	via     string      // how it was authenticated
	pause   bool        // it ends a pause
	session string      // the hash of its session, or ""
	token   *tokenScope // the scope of its token, or nil
	meta    Meta
	comment string // on the changes of policies that it makes
}

// Saying returns the actor with a comment on the changes of policies that it makes, of at most
// MaxComment bytes. The history keeps it.
func (a Actor) Saying(comment string) Actor {
	a.comment = strings.TrimSpace(comment)
	return a
}

// checkComment returns the mistake in a comment.
func checkComment(comment string) error {
	var f faults
	f.add("comment", textform.Check(comment, MaxComment))
	return f.err()
}

// User returns the name of the user.
func (a Actor) User() string { return a.user }

// RequestID returns the id of the request.
func (a Actor) RequestID() string { return a.meta.RequestID }

// These are the ways to authenticate an actor. The id of a token follows viaToken.
const (
	viaSession = "session"
	viaToken   = "token:"
	viaProxy   = "proxy"   // a trusted proxy named the user
	viaOIDC    = "oidc"    // a provider of OpenID Connect authenticated the user, who has a session
	viaConsole = "console" // the program itself
)

// viaPause stands in the audit log of the end of a pause for the way in which the user was
// authenticated who began it.
const viaPause = "pause"

// itself returns the actor that stands for the program in the audit log.
func itself() Actor { return Actor{via: viaConsole} }
