package collect

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/policy/stats"
)

// Redis is a [Source] in Redis.
type Redis struct {
	Client redis.UniversalClient
	Prefix string // as stats.Options.Prefix
}

// Changed implements [Source].
func (r Redis) Changed(ctx context.Context, app string, since time.Time) ([]time.Time, time.Time, error) {
	return stats.Changed(ctx, r.Client, r.Prefix, app, since)
}

// Read implements [Source].
func (r Redis) Read(ctx context.Context, app string, minutes []time.Time) ([]stats.Minute, error) {
	return stats.ReadMinutes(ctx, r.Client, r.Prefix, app, minutes)
}

// Tens sets the ten seconds of minutes that Read has returned.
func (r Redis) Tens(ctx context.Context, app string, minutes []stats.Minute) error {
	return stats.ReadTens(ctx, r.Client, r.Prefix, app, minutes)
}
