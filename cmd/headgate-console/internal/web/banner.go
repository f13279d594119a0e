package web

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// banner says why the newest policies may not be in force.
type banner struct {
	Failing bool
	Away    bool      // Redis does not answer
	Since   time.Time // of the failure
	Pending bool      // changes are not published yet
	Reason  string    // may name hosts, so only managers see it
	Foreign string    // why the published policies are not those of this database, or ""
	Manager bool      // may take over
	Asking  bool      // the page is about that
}

// bannerOf returns the state of publishing, or nil if all is well. It asks the database, and not
// Redis, whose state the publisher knows.
func (r *request) bannerOf() (*banner, error) {
	if r.Publishing == nil {
		return nil, nil
	}
	work, err := r.Service.Publishing(r.req.Context(), r.actor)
	if err != nil {
		return nil, err
	}

	status := r.Publishing()
	b := &banner{Failing: status.Err != nil, Since: status.Since}
	b.Pending = work.Published < work.Version || work.Overrides
	if !b.Failing && !b.Pending {
		return nil, nil
	}

	b.Manager, b.Asking = r.access.CanManage(), r.req.URL.Path == "/takeover"
	if e := status.Foreign(); e != nil {
		b.Foreign = e.Reason()
		return b, nil
	}
	b.Away = noAnswer(status.Err)
	if b.Failing && b.Manager {
		b.Reason = status.Err.Error()
	}
	return b, nil
}

// noAnswer reports whether an error means that a server does not answer.
func noAnswer(err error) bool {
	var n net.Error
	return errors.As(err, &n) || errors.Is(err, context.DeadlineExceeded)
}

// addBanner adds the banner to a frame. A page whose answer is an error of the console has none,
// because the database that would be asked is often the reason.
func (r *request) addBanner(f *frame, status int) {
	if !f.Ready || status >= http.StatusInternalServerError {
		return
	}
	var err error
	if f.Banner, err = r.bannerOf(); err != nil {
		r.Logger.WarnContext(r.req.Context(), "the state of publishing cannot be read", "error", err)
	}
}

// liveBanner answers with the banner, which the script asks for until there is none.
func liveBanner(r *request) error {
	b, err := r.bannerOf()
	if err != nil {
		return err
	}
	return r.fragment("list", "banner", b)
}
