// Package config reads the command line and the environment of the console. [Parse] returns a
// [Config].
package config

import (
	"cmp"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/headgate-console/internal/oidc"
	"github.com/headgate/headgate/cmd/headgate-console/internal/trustedproxy"
	"github.com/headgate/headgate/cmd/headgate-console/internal/webhook"
	"github.com/headgate/headgate/internal/redisurl"
)

// These environment variables hold the values of -db, -redis and -oidc-secret, and the content of
// -key-file, so that a password is not in the list of processes that other users of the machine
// see.
const (
	EnvKey   = "HEADGATE_CONSOLE_KEY"
	EnvDB    = "HEADGATE_CONSOLE_DB"
	EnvRedis = "HEADGATE_CONSOLE_REDIS"
	EnvOIDC  = "HEADGATE_CONSOLE_OIDC_SECRET" // of -oidc-secret
)

// databaseFile is the name of the embedded database in the data directory.
const databaseFile = "console.db"

// Config is the configuration of the console. Parse returns only valid ones.
type Config struct {
	Listen      string                  // host:port
	TLS         *tls.Config             // nil for plain HTTP
	DB          string                  // the URL of the database
	Keys        [][]byte                // that encrypt secrets in the database, as store.Options.Keys
	Redis       *redis.UniversalOptions // nil for no Redis
	RedisPrefix string                  // as redissource.Options.Prefix
	Proxies     *trustedproxy.Proxies   // the proxies that are trusted; nil for none
	Provider    *oidc.Provider          // at which people may log in; nil for none
	PublicURL   string                  // of the console as browsers see it; "" if it is not known
	Webhooks    *webhook.Networks       // the internal networks to which alerts may be sent; nil for none
	Secure      bool                    // browsers send the cookies over TLS only
	Recover     string                  // the user to make an administrator with a new password; "" to serve
}

// given holds the values of the command line.
type given struct {
	listen, data, db, redis, prefix, cert, key, recover string
	keyFile                                             string
	identity                                            string
	proxies, webhooks                                   []string
	oidc                                                oidc.Options
	insecure, secureCookies                             bool
}

// AppendTo returns the function of a flag that may be repeated.
func AppendTo(list *[]string) func(string) error {
	return func(s string) error {
		*list = append(*list, s)
		return nil
	}
}

// Parse reads a command line without the program's name, and the environment
// through env. If the flags ask for help, Parse writes it to usage and returns
// flag.ErrHelp. Any other error names every mistake, and no password.
func Parse(args []string, env func(string) string, usage io.Writer) (Config, error) {
	var g given
	flags := g.flags(usage)
	if err := flags.Parse(args); err != nil {
		return Config{}, err
	}

	// A flag comes before its variable.
	g.db = cmp.Or(g.db, env(EnvDB))
	g.redis = cmp.Or(g.redis, env(EnvRedis))
	g.oidc.Secret = cmp.Or(g.oidc.Secret, env(EnvOIDC))

	// Every mistake is kept, and the next value is read nevertheless.
	var bad [10]error
	if flags.NArg() > 0 {
		bad[0] = fmt.Errorf("the argument %q is not a flag", flags.Arg(0))
	}

	c := Config{Listen: g.listen, RedisPrefix: g.prefix, Recover: g.recover, PublicURL: g.oidc.PublicURL}
	c.DB, bad[1] = Database(g.db, g.data)
	c.Keys, bad[2] = g.secretKeys(env)
	c.Redis, bad[3] = g.redisOptions()
	c.TLS, bad[4] = g.tls()
	c.Provider, bad[5] = g.provider()
	c.Proxies, bad[6] = g.trustedProxies()
	c.Webhooks, bad[7] = g.webhookNetworks()
	bad[8], bad[9] = g.checkListen(), g.checkPrefix()

	c.Secure = c.TLS != nil || g.secureCookies
	return c, errors.Join(bad[:]...)
}

func (g *given) flags(usage io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet("headgate-console", flag.ContinueOnError)
	f.SetOutput(usage)
	f.Usage = func() {
		fmt.Fprintf(usage, "Usage: headgate-console [flags]\n"+
			"       headgate-console apply -h\n       headgate-console diff -h\n"+
			"       headgate-console backup -h\n       headgate-console restore -h\n"+
			"       headgate-console health -h\n\n")
		f.PrintDefaults()
	}

	// Where to serve, and from which database.
	f.StringVar(&g.listen, "listen", "127.0.0.1:8080",
		"`address` to serve on; one that others can reach needs TLS, or -insecure-http")
	DatabaseFlags(f, &g.db, &g.data)
	f.StringVar(&g.keyFile, "key-file", "",
		"`file` with the key that encrypts secrets in the database, 32 bytes in base64, "+
			"such as openssl rand -base64 32 prints, and below it former keys; also in "+EnvKey)

	// The Redis of the instances, which a console for policies alone goes without.
	f.StringVar(&g.redis, "redis", "",
		"`URL` of the Redis that the instances follow: redis://host:6379, "+
			"redis+sentinel://host:26379,host/master or redis+cluster://host,host, "+
			"with rediss for TLS; also in "+EnvRedis)
	f.StringVar(&g.prefix, "redis-prefix", "",
		"`prefix` of the keys in Redis, if the instances use another than hg:")

	f.StringVar(&g.cert, "tls-cert", "", "`file` with the certificate, in PEM")
	f.StringVar(&g.key, "tls-key", "", "`file` with its key, in PEM")
	f.BoolVar(&g.insecure, "insecure-http", false,
		"serve plain HTTP to others, say to a proxy that adds TLS")
	f.BoolVar(&g.secureCookies, "secure-cookies", false,
		"send cookies by TLS alone, if a proxy adds TLS; not needed with -tls-cert")

	// Who names the user, other than the console's own log-in.
	f.Func("trusted-proxy", "`address or CIDR` of a proxy whose X-Forwarded-For is believed; may be repeated",
		AppendTo(&g.proxies))
	f.StringVar(&g.identity, "identity-header", "",
		"`name` of the header in which the trusted proxies name the user, who needs no password; "+
			"they must remove it from requests of clients")
	g.oidcFlags(f)

	f.Func("webhook-allow",
		"internal `address or CIDR` to which webhooks may send alerts, such as 10.0.0.0/8; may be repeated",
		AppendTo(&g.webhooks))

	f.StringVar(&g.recover, "recover", "",
		"make this `user` an administrator with a new password, print the password, and exit")
	return f
}

// DatabaseFlags adds the flags -db and -data, which name the database.
func DatabaseFlags(f *flag.FlagSet, db, data *string) {
	f.StringVar(data, "data", "headgate-data",
		"`directory` of the embedded database; it is created for its owner alone")
	f.StringVar(db, "db", "",
		"`URL` of a MySQL or MariaDB to use instead: mysql://user:password@host/database; also in "+EnvDB)
}

// Database returns the URL of the database that the flags -db and -data name, without a trace of a
// password in the error.
func Database(db, data string) (string, error) {
	if db != "" {
		if strings.HasPrefix(db, "mysql://") || strings.HasPrefix(db, "mariadb://") {
			return db, nil
		}
		return "", errors.New("-db: it does not begin with mysql://")
	}

	if data == "" {
		return "", errors.New("-data: it is empty")
	}

	path, err := filepath.Abs(filepath.Join(data, databaseFile))
	if err != nil {
		return "", fmt.Errorf("-data: %w", err)
	}
	return "sqlite://" + path, nil
}

func (g *given) redisOptions() (*redis.UniversalOptions, error) {
	if g.redis == "" {
		return nil, nil
	}
	o, err := redisurl.Parse(g.redis)
	if err != nil {
		return nil, fmt.Errorf("-redis: %w", err)
	}
	return o, nil
}

func (g *given) tls() (*tls.Config, error) {
	switch {
	case g.cert == "" && g.key == "":
		return nil, nil
	case g.cert == "" || g.key == "":
		return nil, errors.New("-tls-cert and -tls-key: one is missing")
	}

	pair, err := tls.LoadX509KeyPair(g.cert, g.key)
	if err != nil {
		return nil, fmt.Errorf("-tls-cert and -tls-key: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

// checkListen refuses to send passwords in the clear over a network.
func (g *given) checkListen() error {
	host, _, err := net.SplitHostPort(g.listen)
	if err != nil {
		return fmt.Errorf("-listen: %q is not host:port", g.listen)
	}
	if g.insecure || g.cert != "" || IsLoopback(host) {
		return nil
	}
	return fmt.Errorf("-listen: others can reach %q, and passwords would travel in the clear: "+
		"give -tls-cert and -tls-key, or -insecure-http if a proxy adds TLS", g.listen)
}

// IsLoopback reports whether a host is this machine.
func IsLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

func (g *given) checkPrefix() error {
	if strings.ContainsAny(g.prefix, "{}") {
		return errors.New("-redis-prefix: it holds a brace")
	}
	return nil
}
