package web

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// These are the largest numbers of bytes of a form. An import has at most 4 MiB of policies, which
// are 5.4 MiB when they are packed and cannot be made smaller.
const (
	maxForm   = 128 << 10
	maxImport = 6 << 20
)

// request is one request for a page, and its actor.
type request struct {
	*site
	w      http.ResponseWriter
	req    *http.Request
	actor  service.Actor
	access service.Access // the zero value without a log-in
	apps   []service.App  // those that the actor sees

	done    func() // gives back the place of an admitted request; nil without one
	proxied bool   // the proxy names the user, and there is no session
	poll    bool   // the page has sent it by itself
	reloads bool   // the browser loads the page again and again, without JavaScript
	part    bool   // it asks for a part of a page
}

// handler serves a route.
func (s *site) handler(to route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := &request{site: s, w: w, req: r}
		if err := v.serve(to); err != nil {
			v.fail(err)
		}
	})
}

// serve answers a request.
func (r *request) serve(to route) error {
	// A page without JavaScript loads itself again, as its address says.
	r.poll, r.part = to.poll || r.query("refresh") != "", to.poll
	if to.admit != nil {
		return r.serveAdmitted(to)
	}

	// The form is read before the log-in is looked up: one that is too large costs the database
	// nothing, and the page of a failure keeps what was typed.
	if err := r.read(maxForm); err != nil {
		return err
	}
	if !to.open {
		if err := r.authenticate(); err != nil {
			return err
		}
	}
	return to.answer(r)
}

// serveAdmitted reads the form last, as it takes much memory, and of those alone who may send it.
func (r *request) serveAdmitted(to route) error {
	if err := r.authenticate(); err != nil {
		return err
	}

	var err error
	if r.done, err = to.admit(r); err != nil {
		return err
	}
	defer r.done()

	if err := r.read(to.maxBytes); err != nil {
		return err
	}
	return to.answer(r)
}

// read reads the form, if there is one.
func (r *request) read(maxBytes int64) error {
	if r.req.Method != http.MethodPost {
		return nil
	}

	r.req.Body = http.MaxBytesReader(r.w, r.req.Body, maxBytes)
	err := r.req.ParseForm()
	if err == nil {
		err = r.req.ParseMultipartForm(maxBytes)
	}

	// A form without files is not of the kind that the second call reads.
	if err == nil || errors.Is(err, http.ErrNotMultipart) {
		return nil
	}

	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return large
	}
	return errBadForm
}

// authenticate sets the actor and its permissions. The error is ErrPasswordChange or
// ErrSecondFactor if the user must do that before seeing this page.
func (r *request) authenticate() error {
	var err error
	if r.actor, err = r.identify(); err != nil {
		return err
	}

	if r.access, err = r.Service.Access(r.req.Context(), r.actor); err != nil {
		return err
	}

	// The pages that a user needs for it, and the way out, stay open.
	if r.access.MustChangePassword && !strings.HasPrefix(r.req.URL.Path, "/account") && r.req.URL.Path != "/logout" {
		return service.ErrPasswordChange
	}
	if r.access.MustSetUpSecondFactor && !leadsToFactor(r.req.URL.Path) {
		return service.ErrSecondFactor
	}

	if r.ready() {
		r.apps, err = r.Service.Apps(r.req.Context(), r.actor)
	}
	return err
}

// ready reports whether the user is logged in, and has nothing to do first.
func (r *request) ready() bool {
	return r.access.User != "" && !r.access.MustChangePassword && !r.access.MustSetUpSecondFactor
}

// leadsToFactor reports whether a page is for users who have to set up a second factor.
func leadsToFactor(path string) bool {
	return strings.HasPrefix(path, factorPath) || path == "/account/password" || path == "/logout"
}

// identify returns the user whom the proxy names, or else the user of the session.
func (r *request) identify() (service.Actor, error) {
	// The proxy is trusted more than a cookie, which may be of the user before.
	var name string
	if name, r.proxied = r.Proxies.User(r.req); r.proxied {
		a, err := r.Service.AuthenticateByProxy(r.req.Context(), name, r.meta())
		if errors.Is(err, service.ErrNotLoggedIn) {
			err = errStranger
		}
		return a, err
	}

	token := r.sessionToken()
	if token == "" {
		return service.Actor{}, service.ErrNotLoggedIn
	}
	return r.Service.Authenticate(r.req.Context(), token, r.meta())
}

// meta returns the description of the request for the audit log.
func (r *request) meta() service.Meta {
	return service.Meta{
		Address: r.Proxies.Address(r.req), Agent: r.req.UserAgent(), RequestID: r.requestID(),
		Device: r.cookie(r.deviceCookie()), Poll: r.poll,
	}
}

// logInMeta is meta for a log-in, which ends the session that the browser has had.
func (r *request) logInMeta() service.Meta {
	m := r.meta()
	m.Session = r.sessionToken()
	return m
}

func (r *request) requestID() string { return r.w.Header().Get(requestHeader) }

// field returns a field of the form. It ignores the parameters of the URL.
func (r *request) field(name string) string { return r.req.PostForm.Get(name) }

// query returns a parameter of the URL.
func (r *request) query(name string) string { return r.req.URL.Query().Get(name) }

// after answers after a change: with the form again if it has mistakes, with any other error as
// such, and else with what then answers. again is nil if there is no form.
func after(err error, again func(mistakes) error, then func() error) error {
	if m := mistakesOf(err); m != nil && again != nil {
		return again(m)
	}
	if err != nil {
		return err
	}
	return then()
}

// statusOf returns the status of a page with the mistakes of a form.
func statusOf(m mistakes) int {
	if len(m) > 0 {
		return http.StatusUnprocessableEntity
	}
	return http.StatusOK
}

// to returns what answers with seeOther.
func (r *request) to(path, done string) func() error {
	return func() error { return r.seeOther(path, done) }
}

// given returns the parameters of an address that are not empty.
func given(params map[string]string) url.Values {
	q := url.Values{}
	for name, value := range params {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// seeOther redirects the browser to a page. done names the message to show there, or
// is "". It returns nil, so that a handler can return its result.
func (r *request) seeOther(path, done string) error {
	if done != "" {
		sep := "?"
		if strings.Contains(path, "?") {
			sep = "&"
		}
		if strings.HasSuffix(path, "?") {
			sep = ""
		}
		path += sep + "done=" + done
	}

	http.Redirect(r.w, r.req, path, http.StatusSeeOther)
	return nil
}

// Cookie returns the name of the session's cookie. With TLS it has the prefix that
// keeps other hosts of the domain, and plain HTTP, from setting it.
func (o Options) Cookie() string {
	if o.Secure {
		return "__Host-headgate"
	}
	return "headgate"
}

// cookie returns the value of a cookie that came with a request, or "".
func (r *request) cookie(name string) string {
	c, err := r.req.Cookie(name)
	if err != nil {
		return ""
	}
	return c.Value
}

func (r *request) dropCookie(name string) { r.setCookie(&http.Cookie{Name: name, MaxAge: -1}) }

// sessionToken returns the token that came with a request, or "".
func (r *request) sessionToken() string { return r.cookie(r.Cookie()) }
func (r *request) setSession(s service.Session) {
	r.setCookie(&http.Cookie{Name: r.Cookie(), Value: s.Token, Expires: s.Expires})
	if s.Device != "" {
		r.setCookie(&http.Cookie{Name: r.deviceCookie(), Value: s.Device, Expires: r.Clock().Add(service.DeviceLife)})
	}
}

// deviceCookie returns the name of the cookie of [service.Session.Device].
func (r *request) deviceCookie() string { return r.Cookie() + "-device" }

func (r *request) setCookie(c *http.Cookie) {
	c.Path, c.HttpOnly, c.SameSite = "/", true, http.SameSiteLaxMode
	c.Secure = r.Secure
	http.SetCookie(r.w, c)
}
