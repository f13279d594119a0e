package web

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"
)

// banner says why the newest policies may not be in force.
type banner struct {
	Failing bool
	Away    bool      // Redis does not answer
	Since   time.Time // of the failure
	Pending bool      // changes are not published yet
	For     string    // how long it has failed
	Reason  string    // what is wrong and what to do, unless Redis does not answer
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
	if !b.Failing {
		return b, nil
	}
	b.For = roughly(r.Clock().Sub(status.Since))
	if b.Away = noAnswer(status.Err); !b.Away {
		b.Reason = refusal(status.Err)
	}
	return b, nil
}

// noAnswer reports whether an error means that a server does not answer.
func noAnswer(err error) bool {
	var n net.Error
	return errors.As(err, &n) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) ||
		redis.HasErrorPrefix(err, "LOADING")
}

// refusal says in plain words why Redis does not take the policies, and what to do. The error
// itself is in the log: it may name hosts.
func refusal(err error) string {
	for prefix, words := range vocabulary.Redis {
		if redis.HasErrorPrefix(err, prefix) {
			return words
		}
	}
	return "The log of the console has the reason."
}

// roughly returns a time in its largest unit.
func roughly(d time.Duration) string {
	for _, u := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}} {
		if d >= u.size {
			return digits(int64(d/u.size)) + " " + u.name
		}
	}
	return digits(int64(max(0, d)/time.Second)) + " s"
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
