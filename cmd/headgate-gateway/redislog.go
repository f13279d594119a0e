package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/headgate/headgate/internal/quietlog"
)

// redisLog receives what the client of Redis says, such as a line for each connection that
// it cannot make.
type redisLog struct{ events *quietlog.Log }

// Printf implements the logging interface of go-redis.
func (r redisLog) Printf(_ context.Context, format string, v ...any) {
	r.events.Record(slog.LevelWarn, "the Redis client reports a problem",
		slog.String("last", fmt.Sprintf(format, v...)))
}
