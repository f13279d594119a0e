package debug_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"log/slog"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/events"
)

var discard = slog.New(slog.DiscardHandler)

func sha256Of(s string) string {
	sum := sha256.Sum256([]byte(s))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// Apply fails.
func (s *telling) Apply(context.Context, []core.Op, []core.Decision) error {
	s.Hooks().StoreCall(events.StoreCall{Store: "telling", Err: s.err, Type: events.Other})
	s.Hooks().Breaker(events.Breaker{Shard: s.err.Error(), Open: true, Cause: s.err})
	return s.err
}
