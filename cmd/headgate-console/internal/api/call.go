package api

import (
	"context"
	"net/http"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// call is one request. A method that serves a route writes the answer or returns an
// error; fail answers with the error.
type call struct {
	*API
	w     http.ResponseWriter
	r     *http.Request
	actor service.Actor // the zero value if the route is open to all
	query query
}

func (c *call) ctx() context.Context { return c.r.Context() }

// id returns the id of the request in the answer, the log and the audit log.
func (c *call) id() string { return c.w.Header().Get("X-Request-Id") }

// path returns the value of a wildcard of the route's pattern.
func (c *call) path(name string) string { return c.r.PathValue(name) }

func (c *call) serve(route route) error {
	if !route.open {
		var err error
		if c.actor, err = c.authenticate(); err != nil {
			return err
		}
	}
	if err := c.readQuery(route.params); err != nil {
		return err
	}
	return route.serve(c)
}

// access returns the actor's permissions, for data outside of the service. The
// error is ErrPasswordChange or ErrSecondFactor if the actor must do that first.
func (c *call) access() (service.Access, error) {
	access, err := c.o.Service.Access(c.ctx(), c.actor)
	if err == nil && access.MustChangePassword {
		err = service.ErrPasswordChange
	}
	if err == nil && access.MustSetUpSecondFactor {
		err = service.ErrSecondFactor
	}
	if err == nil && access.Backups {
		err = c.o.Service.Refuse(c.ctx(), c.actor, "api.access", "api", "the token is for backups alone")
	}
	return access, err
}

// maxRequestID is the largest number of bytes of a client's X-Request-Id.
const maxRequestID = 64

// requestID returns the X-Request-Id of the client if it is valid, or a new id.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	if id == "" || len(id) > maxRequestID {
		return auth.NewID()
	}

	// The id goes to the log, so it has no character that could mean something there.
	for i := range len(id) {
		b := id[i]
		if !('a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' || b == '-' || b == '_' || b == '.') {
			return auth.NewID()
		}
	}
	return id
}
