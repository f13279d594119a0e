// This file has the table of all settings, which are flags and names in the file.

package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/net/http/httpguts"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/engine"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/jsonapi"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/requestlog"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/upstream"
	"github.com/headgate/headgate/internal/redisurl"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/internal/upgrades"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy"
)

// DefaultApp is the application of a gateway that names none.
const DefaultApp = "default"

// setting is one name and what it sets. It is a flag, and unless it is flagOnly a name in the file.
type setting struct {
	name     string
	usage    string
	standard string // the default; "" leaves the zero value
	isBool   bool
	isList   bool // may be repeated
	flagOnly bool // is not in the file
	command  bool // is neither in the file nor in the environment
	live     live // when a change is in force

	// set checks a text and keeps its value. Its error shows no secret.
	set func(text string) error

	// setList, unless nil, takes the place of set for a setting that is a list of objects. A flag
	// and a variable have its text in YAML.
	setList func(l list) error
	list    *list // from the file

	given []string
	from  string // where the last of them comes from; "" for the command line
}

// settings returns all settings, in the order of the usage.
func (g *given) settings() []setting {
	return slices.Concat(g.commandSettings(), g.portSettings(), g.policySettings(), g.countSettings(),
		g.programSettings(), g.headerSettings(), g.tlsSettings(), g.boundSettings(), g.logSettings())
}

// commandSettings has what the program is told on its command line alone.
func (g *given) commandSettings() []setting {
	c := &g.Config
	return []setting{
		{name: "config", flagOnly: true, set: keep(&g.file),
			usage: "YAML `file` with settings by these names"},
		{name: "watch", standard: "2s", live: atOnce, set: look(&c.Watch),
			usage: "`time` between two looks for changed files of settings; 0 is never"},
		{name: "check", command: true, flagOnly: true, isBool: true, set: isTrue(&c.Check),
			usage: "check the configuration and the policies, and exit"},
		{name: "version", command: true, flagOnly: true, isBool: true, set: isTrue(&c.Version),
			usage: "print the version, and exit"},
		{name: "settings", command: true, flagOnly: true, isBool: true, set: isTrue(&c.Settings),
			usage: "print the table of all settings in Markdown, and exit"},
	}
}

// portSettings has the addresses, each of which is a port with one face.
func (g *given) portSettings() []setting {
	c := &g.Config
	return []setting{
		{name: "listen", standard: "127.0.0.1:8089", set: address(&c.Listen),
			usage: "`address` of forward-auth (/auth) and JSON (/v1/), or of the proxy with -upstream; one that " +
				"others can reach needs TLS, or -insecure-http"},

		// The servers behind the proxy, one or several.
		{name: "upstream", live: withProxy, set: server(&c.Upstream),
			usage: "`URL` of the server behind the proxy: http://host:port, https:// or h2c://"},
		{name: "upstream-host", live: withProxy, set: keep(&c.UpstreamHost),
			usage: "`host` that the upstream is asked for, instead of the client's"},
		{name: "upstream-connect-timeout", live: withProxy, standard: "5s",
			set:   span(&c.UpstreamConnect, time.Millisecond, 10*time.Minute),
			usage: "longest `time` for a connection to the upstream"},
		{name: "upstream-timeout", live: withProxy, standard: "60s",
			set:   span(&c.UpstreamTimeout, time.Millisecond, 24*time.Hour),
			usage: "longest `time` until the upstream begins its answer"},
		{name: "upstreams", live: withProxy, setList: g.setUpstreams,
			usage: "`list` of upstreams, instead of -upstream, in YAML; see docs/gateway/proxy.md"},
		{name: "refusals", live: atOnce, setList: g.setRefusals,
			usage: "`list` of answers to refused requests, in YAML; see docs/gateway.md"},
		{name: "upgrade", live: atOnce, isList: true, set: protocol(&c.Upgrades),
			usage: "`protocol` to which clients may switch a connection, which is then one request whatever is sent; " +
				"repeatable (default websocket)"},

		// The faces of other programs.
		{name: "api-listen", usage: "`address` of forward-auth and JSON beside a proxy", set: address(&c.APIListen)},
		{name: "envoy-listen", set: address(&c.EnvoyListen),
			usage: "`address` of Envoy's rate limit service, over gRPC"},
		{name: "envoy-limits", set: keep(&c.EnvoyLimits),
			usage: "`folder` of limits in the format of envoyproxy/ratelimit, which is followed"},
		{name: "envoy-debit", isList: true, set: more(&c.EnvoyDebit),
			usage: "`domain` in which hits_addend of a descriptor comes after the answer, and is charged beyond the " +
				"limit; repeatable"},
		{name: "envoy-closed-as-error", isBool: true, set: isTrue(&c.EnvoyClosedAsError),
			usage: "answer Envoy UNAVAILABLE, instead of OVER_LIMIT, where a limit fails closed"},
		{name: "spoe-listen", usage: "`address` of HAProxy's SPOE", set: address(&c.SPOEListen)},

		// The port of those who look after the gateway.
		{name: "admin-listen", set: address(&c.AdminListen),
			usage: "`address` of /healthz, /readyz, /metrics and /debug/limits, such as 127.0.0.1:8090"},
		{name: "top-keys", standard: "20", set: number(&c.TopKeys, 0, topkeys.MaxTop),
			usage: "`number` of callers under each policy that /debug/limits shows; 0 is none"},
	}
}

// policySettings has the policies, which apply to all faces.
func (g *given) policySettings() []setting {
	c := &g.Config
	return []setting{
		{name: "app", isList: true, set: app(&c.Apps),
			usage: "`name` of an application whose policies apply; repeatable; the first is the default " +
				"(default " + DefaultApp + ")"},
		{name: "policies", set: policies(&c.Policies),
			usage: "`file` of policies, in YAML or JSON; without it they are published in Redis"},
		{name: "last-good", set: keep(&c.LastGood),
			usage: "`folder` for the last good policies, for a start while their source is away; each gateway " +
				"needs its own"},
	}
}

// countSettings has where the counts are: in Redis, or in the memory of this process.
func (g *given) countSettings() []setting {
	c := &g.Config
	return []setting{
		{name: "redis", set: redisURL(&c.Redis),
			usage: "`URL` of the Redis that keeps the counts of all gateways: redis://host:6379, " +
				"redis+sentinel://host,host/master or redis+cluster://host,host, and rediss with TLS; without it " +
				"each keeps its own in memory"},
		{name: "redis-prefix", usage: "`prefix` of the keys in Redis (default hg:)", set: prefix(&c.RedisPrefix)},

		// What a request waits for while Redis is slow.
		{name: "redis-timeout", standard: "50ms", set: span(&c.RedisTimeout, time.Millisecond, 10*time.Second),
			usage: "longest `time` of a call; requests wait for it while Redis hangs, until the gateway bypasses it"},
		{name: "instances", set: number(&c.Instances, 0, 1<<20),
			usage: "`number` of gateways to assume until Redis has answered"},
		{name: "cache-refusals", set: number(&c.CacheRefusals, 0, 1<<24),
			usage: "`number` of refused keys to remember, whose requests are refused without Redis"},

		// What the memory of this process holds.
		{name: "max-keys", set: number(&c.MaxKeys, 0, 1<<30),
			usage: "largest `number` of keys in memory (default 1048576)"},
	}
}

// programSettings has the programs that ask in JSON.
func (g *given) programSettings() []setting {
	c := &g.Config
	return []setting{
		{name: "json-client", live: atOnce, isList: true, set: client(&c.JSONClients),
			usage: "`name:digest` of a program that may ask in JSON, by the SHA-256 of its bearer token in " +
				"hexadecimal; repeatable; without any, programs on this machine and those with a certificate may"},
		{name: "json-secret", live: atOnce, set: secret(&c.JSONSecret),
			usage: "`text` of at least 32 bytes that authenticates the tokens of takes, the same for all gateways; " +
				"without it tokens are good at one gateway until its end"},
		{name: "json-keep", live: atOnce, standard: "24h", set: span(&c.JSONKeep, jsonapi.MinKeep, jsonapi.MaxKeep),
			usage: "`time` for which the tokens of takes are good"},
	}
}

// headerSettings has the headers about callers that are believed.
func (g *given) headerSettings() []setting {
	c := &g.Config
	return []setting{
		{name: "trusted-proxy", live: atOnce, isList: true, set: more(&c.Callers.Trusted),
			usage: "`address or CIDR` of a proxy whose headers about the caller are believed; repeatable"},
		{name: "address-header", live: atOnce, set: keep(&c.Callers.AddressHeader),
			usage: "`name` of the header in which the trusted proxies name the caller's address (default " +
				"X-Forwarded-For)"},

		// Who the caller is, as the trusted proxies say.
		{name: "user-header", live: atOnce, set: keep(&c.Callers.UserHeader),
			usage: "`name` of the header in which the trusted proxies name the user; they must remove a " +
				"client's own"},
		{name: "plan-header", live: atOnce, set: keep(&c.Callers.PlanHeader),
			usage: "`name` of the header in which they name the plan, for policies with plan_by: " + `header`},
		{name: "claims-header", live: atOnce, set: keep(&c.Callers.ClaimsHeader),
			usage: "`name` of the header in which they write the claims of a token that they have verified, as JSON " +
				"or in base64url"},
		{name: "api-key-header", live: atOnce, set: keep(&c.Callers.APIKeyHeader),
			usage: "`name` of the header that the key api-key reads (default X-Api-Key)"},
	}
}

// tlsSettings has TLS, which all ports but those of HAProxy and the administrator have.
func (g *given) tlsSettings() []setting {
	return []setting{
		{name: "tls-cert", live: withTLS, usage: "`file` with the certificate, in PEM", set: keep(&g.cert)},
		{name: "tls-key", live: withTLS, usage: "`file` with its key, in PEM", set: keep(&g.key)},
		{name: "tls-client-ca", live: withTLS, set: keep(&g.clientCA),
			usage: "`file` with the authorities of clients, in PEM; every client then needs a certificate"},
		{name: "insecure-http", isBool: true, set: isTrue(&g.insecure),
			usage: "serve without TLS to others, say to a proxy that adds it"},
	}
}

// boundSettings has what a client can take, and how long the end may take.
func (g *given) boundSettings() []setting {
	c := &g.Config
	return []setting{
		{name: "max-header-bytes", standard: "32768", set: number(&c.MaxHeaderBytes, 1024, 1<<20),
			usage: "largest header of a request, in `bytes`"},
		{name: "max-body-bytes", live: withProxy, standard: "0", set: number(&c.MaxBodyBytes, 0, 1<<50),
			usage: "largest body of a request to the upstream, in `bytes`; 0 is any"},
		{name: "max-connections", standard: "10000", set: number(&c.MaxConnections, 0, 1<<20),
			usage: "largest `number` of open connections of each port; others wait; 0 is any"},

		// How long a client may take.
		{name: "header-timeout", standard: "10s", set: span(&c.HeaderTimeout, time.Millisecond, time.Hour),
			usage: "longest `time` for the header of a request"},
		{name: "piece-timeout", standard: "30s", set: span(&c.PieceTimeout, time.Millisecond, 24*time.Hour),
			usage: "longest `time` in which a client sends the next piece of a body, or accepts the next of an answer"},
		{name: "idle-timeout", standard: "2m", set: span(&c.IdleTimeout, time.Millisecond, 24*time.Hour),
			usage: "longest `time` of a connection without a request"},

		// The end of the process.
		{name: "shutdown-delay", live: atOnce, standard: "0s", set: span(&c.ShutdownDelay, 0, time.Hour),
			usage: "`time` between /readyz answering 503 and the end of the ports"},
		{name: "shutdown-timeout", live: atOnce, standard: "30s",
			set:   span(&c.ShutdownTimeout, 100*time.Millisecond, 24*time.Hour),
			usage: "longest `time` of the shutdown"},
	}
}

// logSettings has the logs.
func (g *given) logSettings() []setting {
	c := &g.Config
	return []setting{
		{name: "access-log", live: withProxy, set: keep(&c.AccessLog),
			usage: "`file` with a line for each request to the proxy, opened anew at SIGHUP; - is the standard output"},
		{name: "access-log-format", live: withProxy, standard: "json", usage: "`json or combined`",
			set: combined(&c.AccessLogCombined)},
		{name: "access-log-query", live: withProxy, isBool: true, set: isTrue(&c.AccessLogQuery),
			usage: "log queries too, which may hold secrets"},
		{name: "access-log-header", live: withProxy, isList: true, set: loggedHeader(&c.AccessLogHeaders),
			usage: "`name` of a header to log, such as User-Agent; repeatable"},

		// What the gateway says of itself.
		{name: "log-format", standard: "text", usage: "`text or json`", set: logFormat(&c.LogJSON)},
		{name: "log-level", live: atOnce, standard: "info", usage: "`debug, info, warn or error`",
			set: logLevel(&c.LogLevel)},
	}
}

// define makes a flag of the setting.
func (s *setting) define(flags *flag.FlagSet) {
	usage := s.usage
	if s.standard != "" {
		usage += " (default " + s.standard + ")"
	}
	flags.Var((*flagValue)(s), s.name, usage)
}

// flagValue is a setting as a flag. It keeps the text, so that all mistakes are found.
type flagValue setting

// String implements flag.Value.
func (f *flagValue) String() string { return "" }

// Set implements flag.Value.
func (f *flagValue) Set(text string) error {
	if !f.isList {
		f.given = nil
	}
	f.given = append(f.given, text)
	return nil
}

// IsBoolFlag makes the flag package accept the flag without a value.
func (f *flagValue) IsBoolFlag() bool { return f.isBool }

// apply sets what was given, or else the default.
func (s *setting) apply() error {
	if s.setList != nil {
		return s.applyList()
	}

	var errs []error
	for _, text := range s.effective() {
		if err := s.set(text); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", cmp.Or(s.from, "-"+s.name), err))
		}
	}
	return errors.Join(errs...)
}

// effective returns the texts that were given, or else the default. A list replaces the default, it
// does not add to it.
func (s *setting) effective() []string {
	if s.given == nil && s.standard != "" {
		return []string{s.standard}
	}
	return s.given
}

// applyList sets the list that was given.
func (s *setting) applyList() error {
	if len(s.given) > 0 {
		l, err := parseList(s.given[len(s.given)-1], cmp.Or(s.from, "-"+s.name), s.name)
		if err != nil {
			return err
		}
		s.list = &l
	}
	if s.list == nil {
		return nil
	}
	return s.setList(*s.list)
}

func clip(text string) string { return textform.Clip(text) }

func keep(to *string) func(string) error {
	return func(text string) error {
		if text == "" {
			return errors.New("it is empty")
		}
		*to = text
		return nil
	}
}

func more(to *[]string) func(string) error {
	return func(text string) error {
		if text == "" {
			return errors.New("it is empty")
		}
		*to = append(*to, text)
		return nil
	}
}

func app(to *[]string) func(string) error {
	return func(text string) error {
		if err := policy.CheckApp(text); err != nil {
			return err
		}
		if slices.Contains(*to, text) {
			return fmt.Errorf("%q is named twice", clip(text))
		}
		if len(*to) == engine.MaxApps {
			return fmt.Errorf("%q is one more than %d", clip(text), engine.MaxApps)
		}
		*to = append(*to, text)
		return nil
	}
}

func protocol(to *upgrades.Protocols) func(string) error {
	return func(text string) error {
		if err := upgrades.Check(text); err != nil {
			return err
		}
		*to = append(*to, text)
		return nil
	}
}

func isTrue(to *bool) func(string) error {
	return func(text string) (err error) {
		if *to, err = strconv.ParseBool(text); err != nil {
			return fmt.Errorf("%q is not true or false", clip(text))
		}
		return nil
	}
}

func number[T int | int64](to *T, from, last int64) func(string) error {
	return func(text string) error {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < from || n > last {
			return fmt.Errorf("%q is not a number from %d to %d", clip(text), from, last)
		}
		*to = T(n)
		return nil
	}
}

func span(to *time.Duration, from, last time.Duration) func(string) error {
	return func(text string) error {
		d, err := time.ParseDuration(text)
		if err != nil || d < from || d > last {
			return fmt.Errorf("%q is not a duration from %s to %s, such as 500ms or 2m",
				clip(text), textform.Duration(from), textform.Duration(last))
		}
		*to = d
		return nil
	}
}

// minLook is the shortest time between two looks at files.
const minLook = 100 * time.Millisecond

func look(to *time.Duration) func(string) error {
	return func(text string) error {
		if text == "0" || text == "0s" {
			*to = 0
			return nil
		}
		return span(to, minLook, time.Hour)(text)
	}
}

func address(to *string) func(string) error {
	return func(text string) error {
		_, port, err := net.SplitHostPort(text)
		if err == nil {
			_, err = strconv.ParseUint(port, 10, 16)
		}
		if err != nil {
			return fmt.Errorf("%q is not host:port", clip(text))
		}
		*to = text
		return nil
	}
}

func server(to **url.URL) func(string) error {
	return func(text string) error {
		u, err := url.Parse(text)
		if err != nil { // its text may show a password
			return errors.New("it is not a URL such as http://127.0.0.1:3000")
		}
		if err := upstream.CheckAddress(u); err != nil {
			return err
		}
		*to = u
		return nil
	}
}

func redisURL(to **redis.UniversalOptions) func(string) error {
	return func(text string) (err error) {
		*to, err = redisurl.Parse(text)
		return err
	}
}

func client(to *map[[sha256.Size]byte]string) func(string) error {
	return func(text string) error {
		name, hexed, _ := strings.Cut(text, ":")
		digest, err := hex.DecodeString(hexed)
		switch {
		case name == "" || err != nil || len(digest) != sha256.Size:
			// The text may be the token itself.
			return fmt.Errorf("it is not a name, a colon and the %d hexadecimal digits of a SHA-256", 2*sha256.Size)
		case (*to)[[sha256.Size]byte(digest)] != "":
			return fmt.Errorf("%q has the token of %q", clip(name), clip((*to)[[sha256.Size]byte(digest)]))
		case *to == nil:
			*to = map[[sha256.Size]byte]string{}
		}

		(*to)[[sha256.Size]byte(digest)] = name
		return nil
	}
}

func secret(to *[]byte) func(string) error {
	return func(text string) error {
		if len(text) < jsonapi.MinSecret {
			return fmt.Errorf("it has fewer than %d bytes", jsonapi.MinSecret)
		}
		*to = []byte(text)
		return nil
	}
}

func policies(to *string) func(string) error {
	return func(text string) error {
		for _, end := range []string{".yaml", ".yml", ".json"} {
			if strings.HasSuffix(strings.ToLower(text), end) {
				*to = text
				return nil
			}
		}
		return fmt.Errorf("%q does not end with .yaml, .yml or .json", clip(text))
	}
}

func prefix(to *string) func(string) error {
	return func(text string) error {
		if strings.ContainsAny(text, "{}") {
			return errors.New("it holds a brace")
		}
		return keep(to)(text)
	}
}

func combined(is *bool) func(string) error {
	return func(text string) error {
		if text != "json" && text != "combined" {
			return fmt.Errorf("%q is not json or combined", clip(text))
		}
		*is = text == "combined"
		return nil
	}
}

func loggedHeader(to *[]string) func(string) error {
	return func(text string) error {
		name := http.CanonicalHeaderKey(text)
		switch {
		case !httpguts.ValidHeaderFieldName(text):
			return fmt.Errorf("%q is not the name of a header", clip(text))
		case slices.Contains(*to, name):
			return fmt.Errorf("%q is named twice", clip(text))
		case len(*to) == requestlog.MaxHeaders:
			return fmt.Errorf("%q is one more than %d", clip(text), requestlog.MaxHeaders)
		}
		*to = append(*to, name)
		return nil
	}
}

func logFormat(isJSON *bool) func(string) error {
	return func(text string) error {
		if text != "text" && text != "json" {
			return fmt.Errorf("%q is not text or json", clip(text))
		}
		*isJSON = text == "json"
		return nil
	}
}

func logLevel(to *slog.Level) func(string) error {
	return func(text string) error {
		if !slices.Contains([]string{"debug", "info", "warn", "error"}, text) {
			return fmt.Errorf("%q is not debug, info, warn or error", clip(text))
		}
		return to.UnmarshalText([]byte(text))
	}
}
