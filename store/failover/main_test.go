package failover

import (
	"context"
	"testing"

	"github.com/headgate/headgate/internal/test"
	"github.com/redis/go-redis/v9"
)

// quiet drops the Redis client's log lines about servers that tests stop.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{})
	test.Exit(m.Run())
}
