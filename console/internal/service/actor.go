package service

// Meta describes a request to the console, for the audit log. Texts that are too
// long are cut.
type Meta struct {
	Address   string // of the client, "ip" or "ip:port"; limits of log-ins count it
	Agent     string // the User-Agent of the client
	RequestID string
}

const (
	maxAddress   = 128
	maxAgent     = 256
	maxRequestID = 128
)

func (m Meta) sanitized() Meta {
	return Meta{sanitize(m.Address, maxAddress), sanitize(m.Agent, maxAgent), sanitize(m.RequestID, maxRequestID)}
}

// Actor identifies the user or the token that makes a request.
// [Service.Authenticate], [Service.AuthenticateToken] and
// [Service.AuthenticateByProxy] return it, for one request. It holds no
// permissions: each transaction looks them up. The zero value may do nothing.
type Actor struct {
	user    string
	via     string      // how it was authenticated, for the audit log
	session string      // the hash of its session, or ""
	token   *tokenScope // the scope of its token, or nil
	meta    Meta
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
	viaConsole = "console" // the program itself
)

// itself returns the actor that stands for the program in the audit log.
func itself() Actor { return Actor{via: viaConsole} }
