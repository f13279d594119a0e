package engine

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/filesource"
	"github.com/headgate/headgate/store/redisstore"
)

// MaxApps is the maximum number of applications of a gateway. Each sends its own
// heartbeats to Redis.
const MaxApps = 64

const (
	minTimeout = time.Millisecond
	maxTimeout = 10 * time.Second
)

// Options configure an engine. Apps must be set, and one of Source, Policies and Redis.
type Options struct {
	// Apps are the applications whose policies the gateway carries out. The first is the
	// default.
	Apps []string

	// Policies is the path of a file of policies, which ends with .json, .yaml or .yml.
	// "" means the policies that are published in Redis, as the management page does.
	Policies string

	// Source, unless nil, has the policies instead.
	Source policy.Source

	// LastGood, unless "", is a folder in which the engine keeps the last good policies
	// of each application and face, and from which it starts if their source is away.
	// Every process needs its own.
	LastGood string

	// Redis says where Redis is: a server, Sentinels or a Cluster. nil means that the
	// counts are kept in memory, and are those of this process.
	Redis *redis.UniversalOptions

	// RedisPrefix begins all keys; "" means redisstore.DefaultPrefix. Services with one
	// prefix share the counts of policies that have the same name.
	RedisPrefix string

	// Timeout bounds each call of the store, from 1 ms to 10 s; 0 means
	// redisstore.DefaultTimeout. While Redis hangs, each request waits for that long, until
	// the failover notices.
	Timeout time.Duration

	// CacheRefusals is as redisstore.Options.CacheRefusals.
	CacheRefusals int

	// Expected is the number of instances until Redis has answered, as of
	// failover.InstancesOptions.
	Expected int

	// MaxKeys and MaxBytes bound the memory for counts; see memstore.Options.
	MaxKeys  int
	MaxBytes int64

	// Top is as limiter.Config.Top.
	Top int

	// Metrics, unless nil, is called with the configuration of each limiter before it is made,
	// to install what counts. It may join an Observer and Hooks to those that are there.
	Metrics func(*limiter.Config)

	// Bindings hold what policies cannot say, such as the user of a request.
	Bindings policy.Bindings

	// Poll and LoadTimeout are as policy.Options.Poll and Timeout.
	Poll, LoadTimeout time.Duration

	// Instance names this process; "" means the host's name and some random digits.
	Instance string

	// Check is for an engine that is opened to check policies, and decides about nothing:
	// it keeps no counts in Redis and writes nothing anywhere, and Limiter fails if the
	// policies cannot be loaded, wherever they are.
	Check bool

	// Logger is that of all parts. nil means slog.Default().
	Logger *slog.Logger
}

// faults returns an error that names every mistake in the options which no other
// constructor finds.
func (o *Options) faults() error {
	var errs []error
	if len(o.Apps) == 0 || len(o.Apps) > MaxApps {
		errs = append(errs, fmt.Errorf("engine: %d applications are not within 1 to %d", len(o.Apps), MaxApps))
	}

	for i, app := range o.Apps {
		if err := policy.CheckApp(app); err != nil {
			errs = append(errs, fmt.Errorf("engine: application: %w", err))
		}
		if slices.Contains(o.Apps[:i], app) {
			errs = append(errs, fmt.Errorf("engine: the application %q is listed twice", textform.Clip(app)))
		}
	}

	if o.Source == nil && o.Policies == "" && o.Redis == nil {
		errs = append(errs, errors.New("engine: there are no policies: neither a file nor a Redis is named"))
	}
	if o.Policies != "" {
		if _, err := filesource.New(o.Policies); err != nil {
			errs = append(errs, fmt.Errorf("engine: %w", err))
		}
	}
	if o.Timeout != 0 && (o.Timeout < minTimeout || o.Timeout > maxTimeout) {
		errs = append(errs,
			fmt.Errorf("engine: the timeout %s is not within %s to %s", o.Timeout, minTimeout, maxTimeout))
	}

	// What remains is checked by the packages that it is for.
	follow := policy.Options{Poll: o.Poll, Timeout: o.LoadTimeout, Instance: o.Instance}
	errs = append(errs, o.Bindings.Validate(), follow.Validate())
	return errors.Join(errs...)
}

// withDefaults returns the options with what their zero values stand for.
func (o Options) withDefaults() Options {
	o.Apps = slices.Clone(o.Apps)
	o.Instance = cmp.Or(o.Instance, policy.NewInstance())
	o.RedisPrefix = cmp.Or(o.RedisPrefix, redisstore.DefaultPrefix)
	o.Timeout = cmp.Or(o.Timeout, redisstore.DefaultTimeout)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// checkFace returns an error if a face cannot have the name, which is part of the name of
// a file.
func checkFace(name string) error {
	odd := strings.TrimLeft(name, "abcdefghijklmnopqrstuvwxyz0123456789-")
	if name == "" || odd != "" || name[0] < 'a' || len(name) > 32 {
		return fmt.Errorf("engine: %q is not the name of a face", textform.Clip(name))
	}
	return nil
}

// fileName returns the name of the application in the name of a file: it is unchanged if
// it cannot lead out of the folder, and in hexadecimal otherwise.
func fileName(app string) string {
	if strings.Trim(app, "abcdefghijklmnopqrstuvwxyz0123456789-_") == "" {
		return app
	}
	return "x." + hex.EncodeToString([]byte(app))
}
