package failover

import (
	"context"
	"testing"

	"github.com/headgate/headgate/internal/test"
	"github.com/redis/go-redis/v9"
)

// quiet drops what the Redis client says about servers that tests take away.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{})
	test.Exit(m.Run())
}
