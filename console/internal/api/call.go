package api

import (
	"context"
	"net/http"

	"github.com/headgate/headgate/console/internal/auth"
	"github.com/headgate/headgate/console/internal/service"
)

// call is one request while it is answered. Its methods that answer a route write
// the answer, or return an error that becomes one.
type call struct {
	*API
	w     http.ResponseWriter
	r     *http.Request
	actor service.Actor // nobody, where the route is open to all
	query query
}

func (c *call) ctx() context.Context { return c.r.Context() }

// id names the request, in the answer, the log and the audit log.
func (c *call) id() string { return c.w.Header().Get("X-Request-Id") }

// path is what stands in the path for a name of the route's pattern.
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

// access is what the actor may do, for what the service knows nothing of. The
// error is ErrPasswordChange before the password was changed.
func (c *call) access() (service.Access, error) {
	access, err := c.o.Service.Access(c.ctx(), c.actor)
	if err == nil && access.MustChangePassword {
		err = service.ErrPasswordChange
	}
	return access, err
}

// maxRequestID is the most bytes of a name that a client gives its request.
const maxRequestID = 64

// requestID names the request as its client does, or anew.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	if id == "" || len(id) > maxRequestID {
		return auth.NewID()
	}
	for i := range len(id) {
		b := id[i]
		if !('a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' || b == '-' || b == '_' || b == '.') {
			return auth.NewID()
		}
	}
	return id
}
