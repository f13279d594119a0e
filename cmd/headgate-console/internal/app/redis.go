package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// knockTime is how long Redis may take to answer a start. A console without it serves its pages.
const knockTime = 2 * time.Second

// knock returns an error if Redis refuses what its URL says. A Redis that does not answer yet is
// logged.
func knock(ctx context.Context, o *redis.UniversalOptions, logger *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, knockTime)
	defer cancel()

	// A client that tries once has the cause as its error, and not that time is up.
	once := *o
	once.MaxRetries, once.DialerRetries = -1, 1
	client := redis.NewUniversalClient(&once)
	defer client.Close()

	err := client.Ping(ctx).Err()
	where := strings.Join(o.Addrs, ",")
	switch {
	case err == nil || ctx.Err() == context.Canceled: // who ends the start needs no word of Redis
	case refused(err):
		return fmt.Errorf("redis: %s: %w", where, err)
	default:
		logger.WarnContext(ctx, "Redis does not answer yet: policies are published once it does",
			"server", where, "error", err)
	}
	return nil
}

// refusals begin the answers to a database that does not exist.
var refusals = []string{"ERR DB index", "ERR invalid DB index", "ERR SELECT is not allowed"}

// refused reports whether Redis refuses the user, the password or the database. All other errors,
// those of a Redis that still loads or has no master among them, may end by themselves.
func refused(err error) bool {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return false
	}
	return redis.IsAuthError(err) || slices.ContainsFunc(refusals, func(r string) bool {
		return strings.HasPrefix(answer.Error(), r)
	})
}
