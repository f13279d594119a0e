package failover

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test"
)

// quiet drops the Redis client's log lines about servers that tests stop.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{})
	test.Exit(m.Run())
}
