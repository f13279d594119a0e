// This file connects commands to the Redis of a running system.

package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediscall"
	"github.com/headgate/headgate/internal/redisurl"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/store/redisstore"
)

// envRedis is the environment variable from which the gateway takes the URL too, so that a
// password need not stand among the arguments of a process.
const envRedis = "HEADGATE_GATEWAY_REDIS"

const (
	dialTime = 3 * time.Second // for a connection, unless the URL says otherwise
	callTime = 5 * time.Second // for an answer
)

// redisFlags are the flags of the commands over Redis.
type redisFlags struct {
	url, prefix string
	json        bool
}

func (r *redisFlags) define(f *flag.FlagSet) {
	f.StringVar(&r.url, "redis", "", "the `URL` of the Redis: redis://host:6379, "+
		"redis+sentinel://host,host/master or redis+cluster://host,host, and rediss with TLS; "+
		"without it that of $"+envRedis)
	f.StringVar(&r.prefix, "prefix", redisstore.DefaultPrefix, "the `prefix` of the keys of the services")
	f.BoolVar(&r.json, "json", false, "print JSON")
}

// options reads the URL. Its error shows no password.
func (r *redisFlags) options() (*redis.UniversalOptions, error) {
	text := cmp.Or(r.url, os.Getenv(envRedis))
	switch {
	case text == "":
		return nil, fmt.Errorf("no Redis is named: give -redis or set %s", envRedis)
	case r.prefix == "" || strings.ContainsAny(r.prefix, "{}"):
		return nil, fmt.Errorf("-prefix: %q is empty or holds a brace", textform.Clip(r.prefix))
	}

	o, err := redisurl.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("-redis: %w", err)
	}

	// A command tries once and says what is wrong.
	o.DialTimeout, o.DialerRetries, o.MaxRetries = cmp.Or(o.DialTimeout, dialTime), 1, -1
	o.DisableIdentity = true
	return o, nil
}

// silent takes the lines that the client would write to the standard error beside the error that
// a command prints.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// connect returns a client that has had an answer of the Redis. The caller closes it.
func (r *redisFlags) connect(ctx context.Context) (redis.UniversalClient, error) {
	o, err := r.options()
	if err != nil {
		return nil, err
	}

	redis.SetLogger(silent{})
	client := redis.NewUniversalClient(o)
	if err := reach(ctx, client); err != nil {
		client.Close()
		return nil, fmt.Errorf("the Redis at %s: %w", strings.Join(o.Addrs, ", "), explained(err))
	}
	return client, nil
}

// reach asks for an answer. One that denies a permission is an answer.
func reach(ctx context.Context, client redis.UniversalClient) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil && !rediscall.Forbids(err) {
		return err
	}
	return nil
}

// explained returns an error of Redis with what to do, where the text alone does not say it.
func explained(err error) error {
	var dial *net.OpError
	text := err.Error()

	// The texts are those of servers, and the types those of the client.
	switch {
	case redis.IsAuthError(err):
		return fmt.Errorf("the user or the password is wrong, or missing in the URL: %s", text)
	case strings.Contains(text, "MOVED ") || strings.Contains(text, "CROSSSLOT"):
		return errors.New("the server is one of a Cluster: write redis+cluster:// instead of redis://")
	case strings.Contains(text, "cluster support disabled"):
		return errors.New("the server is none of a Cluster: write redis:// instead of redis+cluster://")
	case rediscall.Forbids(err):
		return fmt.Errorf("the user lacks a permission, which headgate doctor names: %s", text)
	case errors.As(err, &dial):
		return fmt.Errorf("it cannot be reached: %s", text)
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("no answer in time")
	}
	return err
}

// context returns a context that ends with an interrupt, so that a command can tidy up.
func (e *env) context() (context.Context, context.CancelFunc) {
	ctx := e.ctx
	if ctx == nil {
		ctx = context.Background()
	}
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}

// failed reports that a command could not be carried out, in one line.
func (e *env) failed(command string, err error) int {
	return e.fail("%s: %s", command, safe(textform.Line(err)))
}

// among lists names for an error, at most twenty.
func among(names []string) string {
	const most = 20
	if len(names) == 0 {
		return "none"
	}
	text := strings.Join(names[:min(most, len(names))], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
