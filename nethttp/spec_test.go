package nethttp_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/test/adapterspec"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

func TestSpecification(t *testing.T) {
	broken := adapterspec.Text(500, "Internal Server Error")
	adapterspec.RunHTTP(t, adapterspec.HTTPFramework{
		Package:   "nethttp",
		Serve:     serve,
		Route:     "POST /login",
		NoRequest: nethttp.Request(nil),
		User: nethttp.Key(func(r *http.Request) (string, bool) {
			return r.Header.Get("X-User"), r.Header.Get("X-Exempt") == ""
		}),
		// A ServeMux matches what the path means, however it is escaped.
		SameRoute: []string{"/%6cogin", "/%6Cogin", "/%6C%6F%67%69%6E", "/login?a=b"},
		SamePath:  []string{"/%6cogin", "/%6Cogin", "/%6C%6F%67%69%6E", "/login?a=b"},
		Fails:     func(status int) adapterspec.Answer { return adapterspec.Text(status, http.StatusText(status)) },
		Errs:      broken,
		Panics:    broken,
	})
}

// serve serves a ServeMux with the middleware around it or inside it.
func serve(t testing.TB, a adapterspec.HTTPApp) string {
	limit := nethttp.New(a.Limiter, configs(a)...)
	mux := http.NewServeMux()

	switch a.Paths {
	case adapterspec.Routed:
		// Inside the mux the limiter knows the route.
		mux.Handle("POST /login", limit(handle(a.Handler)))
		return adapterspec.Listen(t, recovered(mux, a.Recovered))
	case adapterspec.Login:
		mux.Handle("/login", handle(a.Handler))
	default:
		mux.Handle("/", handle(a.Handler))
	}

	// The first of the limiters around it is the outermost.
	h := limit(mux)
	for _, o := range slices.Backward(a.Around) {
		h = nethttp.New(o.Limiter, configs(o)...)(h)
	}

	return adapterspec.Listen(t, recovered(h, a.Recovered))
}

// configs returns what New is given for the app.
func configs(a adapterspec.HTTPApp) []nethttp.Config {
	var c nethttp.Config
	if a.Skip {
		c.Skip = func(r *http.Request) bool { return adapterspec.Skips(r.Header.Get("X-Skip")) }
	}
	if a.Refused != nil {
		c.Refused = answer(a.Refused)
	}
	if a.Failed != nil {
		c.Failed = answer(a.Failed)
	}
	if a.Degraded != nil {
		c.Degraded = handle(a.Degraded)
	}
	// A second Config is a mistake, and must not take effect.
	if a.SecondConfig {
		return []nethttp.Config{c, {Skip: func(*http.Request) bool { return true }}}
	}
	return []nethttp.Config{c}
}

func answer(f func(adapterspec.Exchange, *limiter.Admission) error) func(
	http.ResponseWriter, *http.Request, *limiter.Admission,
) {
	return func(w http.ResponseWriter, r *http.Request, a *limiter.Admission) {
		report(w, r, f(adapterspec.Std{W: w, R: r}, a))
	}
}

func handle(h adapterspec.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		report(w, r, h(adapterspec.Std{W: w, R: r}))
	})
}

// report answers an error as most programs do.
func report(w http.ResponseWriter, r *http.Request, err error) {
	if err != nil {
		_ = adapterspec.Std{W: w, R: r}.Fail(http.StatusInternalServerError)
	}
}

// recovered recovers from panics of next, and calls seen with their values.
func recovered(next http.Handler, seen func(any)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if v := recover(); v != nil {
				if seen != nil {
					seen(v)
				}
				_ = adapterspec.Std{W: w, R: r}.Fail(http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}
