// Package redisurl reads the URL of a Redis, wherever headgate takes one in a flag, a
// file or an environment variable. [Parse] returns the options of a client.
package redisurl

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// form is a way to reach Redis.
type form struct {
	shape string // of the URL, for errors
	path  string // the shortest
	port  string // of a host that names none
	many  bool   // the URL may name several hosts
	parse func(*url.URL) (*redis.UniversalOptions, error)
}

var forms = map[string]form{
	"redis": {"redis://user:password@host:6379/0", "", "6379", false, parseServer},
	"unix":  {"unix://user:password@/path/of/socket", "/socket", "", false, parseServer},
	"redis+sentinel": {
		"redis+sentinel://user:password@host:26379,host:26379/master/0", "/master", "26379", true, parseSentinel,
	},
	"redis+cluster": {"redis+cluster://user:password@host:6379,host:6379", "", "6379", true, parseCluster},
}

// replicas are the parameters that let replicas answer.
var replicas = []string{"read_only", "replica_only", "route_by_latency", "route_randomly", "use_disconnected_replicas"}

// Parse returns the options of the client, for [redis.NewUniversalClient], that the URL
// describes. ContextTimeoutEnabled is set, without which the client ignores deadlines. The
// error names every mistake and shows neither a user nor a password.
//
//	redis://user:password@host:6379/0                         one server
//	unix://user:password@/run/redis.sock?db=0                 one server, by a Unix socket
//	redis+sentinel://user:password@host:26379,host/master/0   the master that Sentinel names
//	redis+cluster://user:password@host:6379,host              a Redis Cluster
//
// With rediss instead of redis the connections use TLS. The parts mean the same in every
// form:
//
//   - The user and the password are those of Redis. Those of Sentinel are the parameters
//     sentinel_username and sentinel_password.
//   - A host has the port 6379, or 26379 for Sentinel, unless it names one. Sentinel and
//     Cluster take any number of hosts, separated by commas or as parameters addr. One that
//     answers is enough, because it names the others.
//   - The database is 0 unless the path, or the parameter db, names another. Redis Cluster
//     has no other.
//   - The other parameters are those of go-redis, such as dial_timeout=2s and pool_size=20;
//     see [redis.ParseURL], [redis.ParseFailoverURL] and [redis.ParseClusterURL]. Those that
//     let replicas answer are refused, because only the master knows a count.
//   - A server that uses TLS has to prove its name. If the URL names one host, all servers
//     prove the name of that host, else each the name that it is reached by. The roots are
//     those of the machine.
//
// A character of a name or password that has a meaning in a URL is percent-encoded.
func Parse(text string) (*redis.UniversalOptions, error) {
	// The scheme says how Redis is reached, and whether by TLS, in every form alike.
	scheme, rest, found := strings.Cut(text, "://")
	plain := scheme
	if s, secure := strings.CutPrefix(scheme, "rediss"); secure {
		plain = "redis" + s
	}
	f, known := forms[plain]
	if !found || !known {
		return nil, errors.New("the URL of Redis begins with none of " +
			"redis://, rediss://, unix://, redis+sentinel://, " +
			"rediss+sentinel://, redis+cluster:// and rediss+cluster://")
	}

	u, hosts, err := split(rest)
	if err != nil {
		return nil, fmt.Errorf("the URL of Redis is not of the form %s: %w", f.shape, err)
	}

	u.Scheme, _, _ = strings.Cut(scheme, "+")
	if err = f.locate(u, hosts); err == nil {
		err = f.check(u)
	}
	if err != nil {
		return nil, fmt.Errorf("the URL of Redis is not of the form %s: %w", f.shape, err)
	}

	// The parameters are right one by one by now.
	o, err := f.parse(u)
	if err != nil { // by parameters that only together are wrong; the text may quote them
		return nil, fmt.Errorf("the URL of Redis is not of the form %s", f.shape)
	}

	// Each of several servers proves its own name; go-redis has put in that of the first.
	if f.many && len(o.Addrs) > 1 && o.TLSConfig != nil {
		o.TLSConfig.ServerName = ""
	}
	o.ContextTimeoutEnabled = true
	return o, nil
}

// split returns what follows the scheme as a URL without a host, and the hosts. Its error
// quotes nothing that may be a part of a password.
func split(rest string) (*url.URL, []string, error) {
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}

	// The last @ ends the password. One in what follows, or a second one, was not encoded.
	authority, tail := rest[:end], rest[end:]
	at := strings.LastIndexByte(authority, '@')
	if strings.ContainsAny(tail, "@#") || strings.Contains(authority[:max(at, 0)], "@") {
		return nil, nil, errors.New("an @, /, ? or # of a user, password or parameter has to be percent-encoded")
	}

	// The hosts are read apart: net/url knows but one.
	u, err := url.Parse("redis://" + authority[:at+1] + "host" + tail)
	if err != nil {
		return nil, nil, errors.New("a percent sign or another character of a user, password, path or parameter " +
			"has to be percent-encoded")
	}
	if _, err = url.ParseQuery(u.RawQuery); err != nil {
		return nil, nil, errors.New("a percent sign or semicolon of a parameter has to be percent-encoded")
	}
	return u, strings.Split(authority[at+1:], ","), nil
}

// locate puts the hosts into the URL as go-redis expects them: the first as the host, the
// others as parameters. Its error quotes no host, which is a password if an @ is missing.
func (f form) locate(u *url.URL, hosts []string) error {
	// A socket is found by its path.
	if f.port == "" {
		u.Host = ""
		if hosts[0] != "" || len(hosts) > 1 || u.Path == "" || u.Path == "/" {
			return errors.New("it has no path, or it names a host")
		}
		return nil
	}

	query := u.Query()
	if f.many {
		hosts = append(hosts, query["addr"]...)
		query.Del("addr")
	} else if len(hosts) > 1 {
		return errors.New("it names several hosts")
	}

	var errs []error
	for i, text := range hosts {
		addr, ok := f.address(text)
		if !ok {
			errs = append(errs, fmt.Errorf("host %d is not a host or host:port", i+1))
		}
		if i == 0 {
			u.Host = addr
		} else {
			query.Add("addr", addr)
		}
	}

	u.RawQuery = query.Encode()
	return errors.Join(errs...)
}

// address returns a host with its port. It reports whether the text is one.
func (f form) address(text string) (string, bool) {
	u, err := url.Parse("redis://" + text)
	bare := text[strings.LastIndexByte(text, ']')+1:] // without an IPv6 address
	if err != nil || u.Host != text || u.Hostname() == "" {
		return "", false
	}
	if strings.HasSuffix(text, ":") || strings.Count(bare, ":") > 1 {
		return "", false
	}

	port := cmp.Or(u.Port(), f.port)
	n, err := strconv.ParseUint(port, 10, 16)
	return net.JoinHostPort(u.Hostname(), port), err == nil && n > 0
}

// check returns every mistake in the path and the parameters: it has the URL parsed with
// one of them at a time.
func (f form) check(u *url.URL) error {
	var errs []error

	// The path is parsed alone, and is replaced by a valid one if it is not, so that parameters are
	// judged by themselves.
	bare := *u
	bare.RawQuery = ""
	if o, err := f.parse(&bare); err != nil || o.DB < 0 {
		errs = append(errs, errors.New("its path is another"))
		bare.Path, bare.RawPath = f.path, ""
	}

	query := u.Query()
	secret := query.Has("sentinel_password") // its parts may look like names
	for _, name := range slices.Sorted(maps.Keys(query)) {
		one := bare
		one.RawQuery = url.Values{name: query[name]}.Encode()
		o, err := f.parse(&one)
		switch {
		case slices.Contains(replicas, name):
			errs = append(errs, fmt.Errorf("the parameter %s would let replicas answer", name))
		case err == nil && o.DB >= 0: // it is valid
		case err == nil || !strings.Contains(err.Error(), "unexpected option"):
			errs = append(errs, fmt.Errorf("the parameter %s has no valid value", name))
		case secret:
			errs = append(errs, errors.New("it has a parameter of unknown name, "+
				"perhaps because an & of the password is not percent-encoded"))
		default:
			errs = append(errs, fmt.Errorf("there is no parameter %q", name))
		}
	}
	return errors.Join(errs...)
}

func parseServer(u *url.URL) (*redis.UniversalOptions, error) {
	o, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, err
	}
	return universal(o, o.Addr), nil
}

// parseSentinel moves the parts to where [redis.ParseFailoverURL] has them: it takes the
// user of the URL for that of Sentinel, and the rest from parameters.
func parseSentinel(u *url.URL) (*redis.UniversalOptions, error) {
	master, database, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	query := u.Query()
	for _, name := range []string{"master_name", "username", "password"} {
		if query.Has(name) {
			return nil, fmt.Errorf("unexpected option: %s", name)
		}
	}

	if master == "" {
		return nil, errors.New("no master")
	}

	password, _ := u.User.Password()
	moved := *u
	moved.User = url.UserPassword(query.Get("sentinel_username"), query.Get("sentinel_password"))
	query.Del("sentinel_username")
	query.Del("sentinel_password")

	query.Set("master_name", master)
	query.Set("username", u.User.Username())
	query.Set("password", password)
	moved.Path, moved.RawPath, moved.RawQuery = "/"+database, "", query.Encode()
	o, err := redis.ParseFailoverURL(moved.String())
	if err != nil {
		return nil, err
	}
	return universal(o, o.SentinelAddrs...), nil
}

func parseCluster(u *url.URL) (*redis.UniversalOptions, error) {
	if u.Path != "" && u.Path != "/" {
		return nil, errors.New("a path")
	}
	o, err := redis.ParseClusterURL(u.String())
	if err != nil {
		return nil, err
	}
	options := universal(o, o.Addrs...)
	options.IsClusterMode = true
	return options, nil
}

// universal returns the options with the fields that bear the same name and type in
// those of one kind of client.
func universal(from any, addrs ...string) *redis.UniversalOptions {
	o := &redis.UniversalOptions{}
	source, target := reflect.ValueOf(from).Elem(), reflect.ValueOf(o).Elem()
	for _, field := range reflect.VisibleFields(target.Type()) {
		if v := source.FieldByName(field.Name); v.IsValid() && v.Type() == field.Type {
			target.FieldByIndex(field.Index).Set(v)
		}
	}
	o.Addrs = addrs
	return o
}
