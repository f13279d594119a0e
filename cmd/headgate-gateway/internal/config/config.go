// Package config reads the command line, the environment and the file of the gateway. [Parse]
// returns a [Config].
package config

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/callers"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/refusal"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/upstream"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/watch"
	"github.com/headgate/headgate/internal/upgrades"
)

// Config is the configuration of the gateway. Parse returns only valid ones.
type Config struct {
	// Live can change while the gateway runs, and all other fields cannot.
	Live

	// The addresses of the ports are host:port, and "" for none.
	Listen      string // of the proxy, or else of forward-auth and JSON
	APIListen   string // of forward-auth and JSON beside a proxy
	AdminListen string
	TopKeys     int
	EnvoyListen string
	SPOEListen  string

	Apps     []string // the first is the default
	Policies string   // the path of a file; "" means in Redis, or else the example
	LastGood string   // a folder, or ""

	Redis         *redis.UniversalOptions // nil for none
	RedisPrefix   string
	RedisTimeout  time.Duration
	CacheRefusals int
	Instances     int // as failover.InstancesOptions.Expected
	MaxKeys       int

	// These are as rls.Options.Config, Debit and ClosedAsError.
	EnvoyLimits        string
	EnvoyDebit         []string
	EnvoyClosedAsError bool

	MaxHeaderBytes int
	MaxConnections int
	HeaderTimeout  time.Duration
	PieceTimeout   time.Duration
	IdleTimeout    time.Duration

	LogJSON bool

	Check    bool // check and exit
	Version  bool // print the version and exit
	Settings bool // print the table of settings and exit

	Origin Origin
}

// Live is the part of a configuration that can change while the gateway runs.
type Live struct {
	Proxied

	// TLS has the certificate of the ports, and nil stands for plain HTTP. A change between both
	// needs a restart.
	TLS *tls.Config

	Refusals *refusal.Book // the answers to refused requests; nil for those of the limiter
	Upgrades upgrades.Protocols
	Callers  callers.Options

	// These are as jsonapi.Options.Secret, Clients and Keep.
	JSONSecret  []byte
	JSONClients map[[sha256.Size]byte]string
	JSONKeep    time.Duration

	ShutdownDelay   time.Duration
	ShutdownTimeout time.Duration
	LogLevel        slog.Level

	// Watch is the time between two looks at the files of the configuration; 0 is never.
	Watch time.Duration
}

// Proxied is what a proxy alone has. A proxy that begins or ends needs a restart.
type Proxied struct {
	Upstreams []upstream.Options // empty for no proxy

	Upstream        *url.URL // the only one of Upstreams, or nil
	UpstreamHost    string
	UpstreamConnect time.Duration
	UpstreamTimeout time.Duration
	MaxBodyBytes    int64

	// These are as of requestlog.Options. AccessLog is "" for none.
	AccessLog         string
	AccessLogCombined bool
	AccessLogQuery    bool
	AccessLogHeaders  []string
}

// Origin says where a configuration comes from.
type Origin struct {
	// Files are the files that were read, but for policies, by their paths.
	Files map[string]watch.Sum

	// Warnings are about variables of the environment that are no setting, and about a certificate
	// that is not valid now.
	Warnings []string

	values map[string]watch.Sum // what each setting says, and the files that it names
}

// Parse reads a command line without the program's name, the environment in the form of
// os.Environ, and the file that -config names. A flag takes precedence over the environment, and
// that over the file. If the flags ask for help, Parse writes it to usage and returns
// flag.ErrHelp. Any other error names every mistake, and no password; the Origin of the Config has
// the files that were read even so.
func Parse(args, environ []string, usage io.Writer) (Config, error) {
	g := &given{}
	flags := flag.NewFlagSet("headgate-gateway", flag.ContinueOnError)
	flags.SetOutput(usage)
	settings := g.settings()
	for i := range settings {
		settings[i].define(flags)
	}
	if err := flags.Parse(args); err != nil {
		return Config{}, err
	}

	var errs []error
	if flags.NArg() > 0 {
		errs = append(errs, fmt.Errorf("the argument %q is not a flag", clip(flags.Arg(0))))
	}

	// The environment comes before the file, which gives values to those that have none yet.
	byName := map[string]*setting{}
	for i := range settings {
		byName[settings[i].name] = &settings[i]
	}
	g.Origin.Warnings = readEnvironment(environ, settings)

	if file := byName["config"]; len(file.given) > 0 {
		errs = append(errs, g.readFile(file.given[len(file.given)-1], byName))
	}
	for i := range settings {
		errs = append(errs, settings[i].apply())
	}

	// The version and the table are printed even if the other settings are wrong.
	if g.Version || g.Settings {
		return Config{Version: g.Version, Settings: g.Settings}, nil
	}
	err := errors.Join(append(errs, g.finish()...)...)
	if err == nil {
		g.Origin.values = g.values(settings)
	}
	return g.Config, err
}

// given is what the settings say, before it is checked as a whole.
type given struct {
	Config

	file                string
	cert, key, clientCA string
	insecure            bool

	files map[string][]string // that a setting names, by the setting
}

// finish checks what concerns several settings. Every setting by itself was checked
// before.
func (g *given) finish() []error {
	var errs []error
	if len(g.Apps) == 0 {
		g.Apps = []string{DefaultApp}
	}

	var err error
	g.TLS, err = g.tls()
	errs = append(errs, err)
	for _, p := range g.ports() {
		errs = append(errs, g.checkReach(p.name, p.address))
	}
	errs = append(errs, g.oneUpstream(), g.checkLoops())

	errs = append(errs, g.withoutEffect()...)
	if g.ShutdownDelay >= g.ShutdownTimeout {
		errs = append(errs, fmt.Errorf("-shutdown-delay: %s is not below -shutdown-timeout, which is %s",
			g.ShutdownDelay, g.ShutdownTimeout))
	}
	_, err = callers.New(g.Callers)
	errs = append(errs, err)
	return errs
}

// withoutEffect returns the settings that would have no effect.
func (g *given) withoutEffect() (errs []error) {
	// A setting that would have no effect is a mistake: its author believes that it has one.
	if g.APIListen != "" && len(g.Upstreams) == 0 {
		errs = append(errs, errors.New("-api-listen: without -upstream, forward-auth and JSON are at -listen"))
	}
	if g.EnvoyListen == "" && (g.EnvoyLimits != "" || g.EnvoyDebit != nil || g.EnvoyClosedAsError) {
		errs = append(errs,
			errors.New("-envoy-limits, -envoy-debit and -envoy-closed-as-error: there is no -envoy-listen"))
	}
	if g.Upstream == nil && g.UpstreamHost != "" {
		errs = append(errs, errors.New("-upstream-host: there is no -upstream"))
	}
	errs = append(errs, g.logWithoutEffect()...)
	if g.Redis == nil && g.RedisPrefix != "" {
		errs = append(errs, errors.New("-redis-prefix: there is no -redis"))
	}
	return errs
}

// logWithoutEffect returns the settings of an access log that would be empty.
func (g *given) logWithoutEffect() (errs []error) {
	if g.AccessLog == "" && (g.AccessLogCombined || g.AccessLogQuery || g.AccessLogHeaders != nil) {
		errs = append(errs, errors.New("-access-log-format, -access-log-query and -access-log-header: "+
			"there is no -access-log"))
	}
	if g.AccessLog != "" && len(g.Upstreams) == 0 {
		errs = append(errs, errors.New("-access-log: there is no -upstream, and the log is that of the proxy"))
	}
	return errs
}

// port is a setting with an address to listen on.
type port struct{ name, address string }

func (c *Config) ports() []port {
	return []port{
		{"listen", c.Listen}, {"api-listen", c.APIListen}, {"envoy-listen", c.EnvoyListen},
		{"spoe-listen", c.SPOEListen}, {"admin-listen", c.AdminListen},
	}
}

// oneUpstream makes the upstream of the flag the only one.
func (g *given) oneUpstream() error {
	switch {
	case g.Upstream == nil:
		return nil
	case len(g.Upstreams) > 0:
		return errors.New("-upstream and upstreams: one of them names the servers")
	}
	g.Upstreams = []upstream.Options{{
		Name: "upstream", Addresses: []*url.URL{g.Upstream}, Host: g.UpstreamHost,
		ConnectTimeout: g.UpstreamConnect, HeaderTimeout: g.UpstreamTimeout,
	}}
	return nil
}

// checkReach refuses an address that others can reach without TLS, as keys of callers
// would travel in the clear, unless the administrator agrees. HAProxy speaks SPOE in the
// clear, and the admin port shows nothing but the state of the gateway.
func (g *given) checkReach(name, address string) error {
	if address == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil // found before
	}

	overTLS := g.cert != "" && name != "spoe-listen" && name != "admin-listen"
	if g.insecure || overTLS || isLoopback(host) {
		return nil
	}

	if name == "spoe-listen" || name == "admin-listen" {
		return fmt.Errorf("-%s: others can reach %q, and this port has no TLS: "+
			"give -insecure-http if the network is trusted", name, address)
	}
	return fmt.Errorf("-%s: others can reach %q: "+
		"give -tls-cert and -tls-key, or -insecure-http if a proxy adds TLS", name, address)
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}
