package service

// Meta is what is known of a request to the console, for the audit log. Longer
// texts are cut.
type Meta struct {
	Address   string // of who asks, "ip" or "ip:port"; log-ins are limited by it
	Agent     string // what the client calls itself
	RequestID string
}

const (
	maxAddress   = 128
	maxAgent     = 256
	maxRequestID = 128
)

func (m Meta) tamed() Meta {
	return Meta{tame(m.Address, maxAddress), tame(m.Agent, maxAgent), tame(m.RequestID, maxRequestID)}
}

// Actor is who asks for something: somebody who is logged in, or a program with a
// token. It comes from [Service.Login], [Service.Authenticate],
// [Service.AuthenticateToken] or [Service.AuthenticateByProxy], belongs to one request, and says who somebody is,
// not what he may do: that is looked up in each transaction. The zero value may do
// nothing.
type Actor struct {
	user    string
	via     string      // what it came from, for the audit log
	session string      // its hash, if it came from one
	token   *tokenScope // if it came from one
	meta    Meta
}

// User is the name of the user.
func (a Actor) User() string { return a.user }

// RequestID is the one that the request came with.
func (a Actor) RequestID() string { return a.meta.RequestID }

// What an actor comes from. A token is followed by its id.
const (
	viaSession = "session"
	viaToken   = "token:"
	viaProxy   = "proxy"   // which named the user
	viaConsole = "console" // the program itself
)

// itself is the program, in the audit log.
func itself() Actor { return Actor{via: viaConsole} }
