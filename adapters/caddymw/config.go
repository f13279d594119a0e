package caddymw

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisurl"
	"github.com/headgate/headgate/internal/upgrades"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/filesource"
	"github.com/headgate/headgate/store/failover"
	"github.com/headgate/headgate/store/redisstore"
)

// Config is the configuration of a [Handler]. App must be set, and Policies or Redis.
type Config struct {
	// App is the application whose policies apply.
	App string `json:"app,omitempty"`

	// Policies is the path of a file of policies, which ends with .json, .yaml or .yml.
	// "" means the policies that are published in Redis.
	Policies string `json:"policies,omitempty"`

	// Redis is the URL of the Redis in which all instances count: redis://, rediss://,
	// unix://, redis+sentinel:// or redis+cluster://. "" means that this process counts
	// in its memory. Placeholders such as {env.REDIS_URL} and {file./run/redis} keep a
	// password out of the configuration.
	Redis string `json:"redis,omitempty"`

	// Prefix begins the keys in Redis; "" means "hg:".
	Prefix string `json:"prefix,omitempty"`

	// Timeout bounds each call of Redis; 0 means 50 ms. While Redis is away, each
	// instance admits its part of every limit, unless a policy says otherwise.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// Expected is the number of instances until Redis has answered. With 0, an instance
	// that starts while Redis is away admits one unit of a key.
	Expected int `json:"expected,omitempty"`

	// OnStoreError is "open", "closed" or "local", for policies that do not say; "" means
	// "local" with Redis, and "open" without.
	OnStoreError string `json:"on_store_error,omitempty"`

	// Headers names the headers of every answer: "x-ratelimit", "x-ratelimit-delta",
	// "ratelimit", or "none" alone. Nothing means "x-ratelimit" and "ratelimit".
	Headers []string `json:"headers,omitempty"`

	// Poll is the longest time between two looks at the source of policies; 0 means
	// 500 ms.
	Poll caddy.Duration `json:"poll,omitempty"`

	// LastGood is the path of a file that keeps the policies in force, for a start while
	// their source is away; "" means none.
	LastGood string `json:"last_good,omitempty"`

	// Plans are placeholders that hold the plan of a caller, such as
	// {http.auth.user.plan}, by the name that policies call them by in plan_by.
	Plans map[string]string `json:"plans,omitempty"`

	// Upgrades names the protocols to which a client may switch a connection, which is then
	// one request whatever is sent. The wish for another one is removed. Nothing means
	// websocket.
	Upgrades []string `json:"upgrades,omitempty"`

	// HandleErrors passes refusals to the error routes of the site, as errors with a
	// status, instead of answering them with a problem in JSON.
	HandleErrors bool `json:"handle_errors,omitempty"`
}

// replaced returns the configuration with the values of its placeholders.
func (c Config) replaced(r *caddy.Replacer) (Config, error) {
	var errs []error
	for _, field := range []struct {
		name string
		text *string
	}{
		{"app", &c.App}, {"policies", &c.Policies}, {"redis", &c.Redis}, {"prefix", &c.Prefix},
		{"last_good", &c.LastGood},
	} {
		value, err := r.ReplaceOrErr(*field.text, true, true)
		if err != nil {
			errs = append(errs, fmt.Errorf("headgate: %s: a placeholder is unknown or empty", field.name))
		}
		*field.text = strings.TrimSpace(value)
	}
	return c, errors.Join(errs...)
}

// check returns an error that names every mistake.
func (c *Config) check() error {
	var errs []error
	mistake := func(name string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("headgate: %s: %w", name, err))
		}
	}

	mistake("app", policy.CheckApp(c.App))
	if c.Policies == "" && c.Redis == "" {
		mistake("policies", errors.New("neither a file nor a redis is named, so there are none"))
	}
	if c.Policies != "" {
		_, err := filesource.New(c.Policies)
		mistake("policies", err)
	}
	c.checkRedis(mistake)

	if _, ok := failureModes[c.OnStoreError]; !ok {
		mistake("on_store_error", fmt.Errorf("%q is none of open, closed and local", c.OnStoreError))
	}
	_, err := c.style()
	mistake("headers", err)

	for _, name := range c.Upgrades {
		mistake("upgrades", upgrades.Check(name))
	}

	// A plan is what a placeholder holds: a plain text would give all callers one plan.
	for _, name := range slices.Sorted(maps.Keys(c.Plans)) {
		if !isPlaceholder(c.Plans[name]) {
			mistake("plan "+name, fmt.Errorf("%q is not a placeholder, such as {http.auth.user.plan}", c.Plans[name]))
		}
	}

	follow := policy.Options{Poll: time.Duration(c.Poll)}
	mistake("poll", follow.Validate())
	return errors.Join(errs...)
}

// checkRedis reports the mistakes in what is about Redis.
func (c *Config) checkRedis(mistake func(name string, err error)) {
	if c.Redis == "" {
		without := errors.New("it is for a redis, which is not named")
		if c.Prefix != "" {
			mistake("prefix", without)
		}
		if c.Timeout != 0 {
			mistake("timeout", without)
		}
		if c.Expected != 0 {
			mistake("expected", without)
		}
		if c.OnStoreError == "local" {
			mistake("on_store_error local", without)
		}
		return
	}

	// The other options are checked as well if the URL is wrong, so that one error names all.
	o, err := redisurl.Parse(c.Redis)
	mistake("redis", err)
	if err != nil {
		o = &redis.UniversalOptions{}
	}

	client := redis.NewUniversalClient(o) // which connects when it is used
	defer client.Close()
	_, err = redisstore.New(client, c.storeOptions())
	mistake("prefix or timeout", err)

	if c.Expected < 0 || c.Expected > failover.UnknownInstances {
		mistake("expected", fmt.Errorf("%d is not within 0 to %d", c.Expected, failover.UnknownInstances))
	}
}

func (c *Config) storeOptions() redisstore.Options {
	return redisstore.Options{Prefix: cmp.Or(c.Prefix, redisstore.DefaultPrefix), Timeout: time.Duration(c.Timeout)}
}

var failureModes = map[string]limiter.FailureMode{
	"": limiter.FailDefault, "open": limiter.FailOpen, "closed": limiter.FailClosed, "local": limiter.FailLocal,
}

var styles = map[string]limiter.HeaderStyle{
	"x-ratelimit": limiter.XRateLimit, "x-ratelimit-delta": limiter.XRateLimitDelta,
	"ratelimit": limiter.Draft8, "none": limiter.NoHeaders,
}

// style returns the headers as the limiter has them.
func (c *Config) style() (s limiter.HeaderStyle, err error) {
	var errs []error
	for _, name := range c.Headers {
		one, ok := styles[name]
		if !ok {
			errs = append(errs, fmt.Errorf("%q is none of x-ratelimit, x-ratelimit-delta, ratelimit and none", name))
		}
		s |= one
	}

	if s&limiter.NoHeaders != 0 && s != limiter.NoHeaders {
		errs = append(errs, errors.New("none combines with nothing"))
	}
	if s&limiter.XRateLimit != 0 && s&limiter.XRateLimitDelta != 0 {
		errs = append(errs, errors.New("x-ratelimit and x-ratelimit-delta give one header two meanings"))
	}
	return s, errors.Join(errs...)
}

// isPlaceholder reports whether the text holds a placeholder.
func isPlaceholder(text string) bool {
	_, after, ok := strings.Cut(text, "{")
	return ok && strings.Contains(after, "}")
}

// key identifies what handlers of the same configuration share.
func (c Config) key() string {
	c.HandleErrors, c.Upgrades = false, nil // of the handler alone
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // a struct of strings and numbers has a JSON form
	}
	return string(text)
}
