package pathspec_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate/internal/test/pathspec"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

func TestServeMux(t *testing.T) {
	pathspec.Run(t, pathspec.Router{Name: "net/http",
		Make: func(l *limiter.Limiter, at pathspec.Place, routes []pathspec.Route) func(string) string {
			served, limit, mux := "", nethttp.New(l), http.NewServeMux()
			for _, r := range routes {
				// Inside, the limiter is called with the pattern that the mux chose, and around
				// before it chooses.
				var h http.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = r.Name })
				if at == pathspec.Inside {
					h = limit(h)
				}
				mux.Handle(r.Pattern, h)
			}

			var server http.Handler = mux
			if at == pathspec.Around {
				server = limit(mux)
			}

			// Served is the route that the mux itself chose, or none.
			return func(target string) string {
				served = ""
				server.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", target, nil))
				return served
			}
		}})
}
