package readme

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// The servers for which these configurations are do not run in the tests, so the fields that
// a wrong answer would come of are checked one by one, and unknown ones are mistakes.

func parse(t *testing.T, name string, into any) {
	t.Helper()
	if err := yaml.UnmarshalWithOptions([]byte(read(t, "examples/gateway/"+name)), into, yaml.Strict()); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// checkBelieved checks the client's own headers that are passed on to the gateway. None of
// them may say what was asked for, or by whom.
func checkBelieved(t *testing.T, headers []string) {
	t.Helper()
	if len(headers) == 0 {
		t.Error("no list, so all headers of the client reach the gateway")
	}
	for _, name := range headers {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "x-forwarded") ||
			strings.HasPrefix(lower, "x-original") ||
			strings.HasPrefix(lower, "headgate") || lower == "forwarded" {
			t.Errorf("the client's own %s reaches the gateway", name)
		}
	}
}

const gatewayAuth = "http://127.0.0.1:8089/auth"

func TestTraefikConfiguration(t *testing.T) {
	// Only the fields that a limit depends on are read.
	var static struct {
		EntryPoints map[string]struct {
			Address          string
			ForwardedHeaders struct {
				TrustedIPs []string `yaml:"trustedIPs"`
				Insecure   bool
			} `yaml:"forwardedHeaders"`
		} `yaml:"entryPoints"`
		Providers struct {
			File struct {
				Filename string
				Watch    bool
			}
		}
	}
	parse(t, "traefik.yml", &static)

	// Traefik must not believe what a client says about its address, or the client would choose its
	// key.
	web, ok := static.EntryPoints["web"]
	if !ok || web.ForwardedHeaders.Insecure || len(web.ForwardedHeaders.TrustedIPs) != 0 ||
		static.Providers.File.Filename != "traefik-dynamic.yml" {
		t.Errorf("%+v", static)
	}

	var dynamic struct {
		HTTP struct {
			Routers map[string]struct {
				Rule, Service string
				EntryPoints   []string `yaml:"entryPoints"`
				Middlewares   []string
			}
			Middlewares map[string]struct {
				ForwardAuth struct {
					Address             string
					TrustForwardHeader  bool     `yaml:"trustForwardHeader"`
					AuthRequestHeaders  []string `yaml:"authRequestHeaders"`
					AuthResponseHeaders []string `yaml:"authResponseHeaders"`
					MaxResponseBodySize int      `yaml:"maxResponseBodySize"`
				} `yaml:"forwardAuth"`
			}
			Services map[string]struct {
				LoadBalancer struct{ Servers []struct{ URL string } } `yaml:"loadBalancer"`
			}
		}
	}
	parse(t, "traefik-dynamic.yml", &dynamic)

	// The router uses the middleware; without it no request would be counted.
	router, auth := dynamic.HTTP.Routers["service"], dynamic.HTTP.Middlewares["headgate"].ForwardAuth
	if !slices.Equal(router.Middlewares, []string{"headgate"}) || !slices.Equal(router.EntryPoints, []string{"web"}) ||
		dynamic.HTTP.Services[router.Service].LoadBalancer.Servers[0].URL == "" {
		t.Errorf("%+v", router)
	}

	// The forwarded headers are Traefik's own by then, and 4096 bytes have room for the body of a
	// refusal.
	if auth.Address != gatewayAuth || !auth.TrustForwardHeader || auth.MaxResponseBodySize < 4096 ||
		!slices.Equal(auth.AuthResponseHeaders, []string{"Headgate-Degraded"}) {
		t.Errorf("%+v", auth)
	}
	checkBelieved(t, auth.AuthRequestHeaders)
}

func TestAPISIXConfiguration(t *testing.T) {
	if !strings.HasSuffix(read(t, "examples/gateway/apisix.yaml"), "\n#END\n") {
		t.Error("the last line is not #END, so APISIX ignores the file")
	}

	var c struct {
		Routes []struct {
			ID, URI string
			Plugins struct {
				ProxyRewrite struct {
					Headers struct{ Remove []string }
				} `yaml:"proxy-rewrite"`
				ForwardAuth struct {
					URI              string
					RequestMethod    string   `yaml:"request_method"`
					RequestHeaders   []string `yaml:"request_headers"`
					UpstreamHeaders  []string `yaml:"upstream_headers"`
					ClientHeaders    []string `yaml:"client_headers"`
					StatusOnError    int      `yaml:"status_on_error"`
					AllowDegradation bool     `yaml:"allow_degradation"`
					Timeout          int
					Keepalive        bool
				} `yaml:"forward-auth"`
			}
			Upstream struct {
				Type  string
				Nodes map[string]int
			}
		}
	}
	parse(t, "apisix.yaml", &c)
	if len(c.Routes) != 1 {
		t.Fatalf("%+v", c)
	}

	// The gateway is asked with a GET whatever the request is. Where it does not answer, nothing
	// passes.
	route := c.Routes[0]
	auth := route.Plugins.ForwardAuth
	if auth.URI != gatewayAuth || auth.RequestMethod != "GET" || auth.Timeout != 3000 ||
		auth.StatusOnError != 503 || auth.AllowDegradation || route.URI != "/*" {
		t.Errorf("%+v", auth)
	}

	// A client learns of the limit also from a refusal, whose headers are named one by one.
	for _, name := range []string{"Retry-After", "RateLimit", "RateLimit-Policy", "X-RateLimit-Limit",
		"X-RateLimit-Remaining", "X-RateLimit-Reset", "Content-Type", "Cache-Control"} {
		if !slices.Contains(auth.ClientHeaders, name) {
			t.Errorf("the client does not see %s", name)
		}
	}

	// What the gateway adds, a client must not have sent: the header is removed first.
	if !slices.Equal(auth.UpstreamHeaders, route.Plugins.ProxyRewrite.Headers.Remove) ||
		!slices.Equal(auth.UpstreamHeaders, []string{"Headgate-Degraded"}) {
		t.Error("a client may send a header of the gateway")
	}
	checkBelieved(t, auth.RequestHeaders)
	if !maps.Equal(route.Upstream.Nodes, map[string]int{"127.0.0.1:3000": 1}) {
		t.Errorf("%+v", route.Upstream)
	}
}
