package api

import (
	"context"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/memstore"
)

// An address may send this many wrong tokens in this time, and this many addresses are
// remembered. Tokens cannot be guessed: the limit keeps attempts from overloading the
// database.
const (
	wrongTokens  = 60
	wrongPer     = time.Minute
	attemptsKeys = 1 << 16
)

// attempts counts the wrong tokens of addresses. No managed policy changes its
// limit.
type attempts struct{ limiter *limiter.Limiter }

func newAttempts(clock func() time.Time) (*attempts, error) {
	store, err := memstore.New(memstore.Options{
		MaxKeys: attemptsKeys, Clock: func() int64 { return clock().UnixMicro() },
	})
	if err != nil {
		return nil, err
	}
	rule := limiter.Rule{
		Name: "wrong-tokens", Limit: core.Limit{Quota: wrongTokens, Period: wrongPer}, Key: keyfuncs.RemoteIP,
	}
	l, err := limiter.New(limiter.Config{Store: store, Rules: []limiter.Rule{rule}})
	return &attempts{l}, err
}

// blocked returns how long the address has to wait, or 0.
func (a *attempts) blocked(ctx context.Context, address string) time.Duration {
	decisions, err := a.limiter.Peek(ctx, network(address))
	if err != nil || len(decisions) == 0 || decisions[0].Decision.Allowed {
		return 0
	}
	return decisions[0].Decision.RetryAfter
}

// failed counts a wrong token.
func (a *attempts) failed(ctx context.Context, address string) {
	a.limiter.Take(ctx, network(address), 1) // memory never fails to decide
}

// network returns the key that attempts are counted by. All addresses of an IPv6
// network share a key.
func network(address string) string {
	key, _ := keyfuncs.RemoteIP(peer(address))
	return key
}

// peer is a core.Request with an address only, for keyfuncs.RemoteIP.
type peer string

func (p peer) Context() context.Context { return context.Background() }
func (p peer) Method() string           { return "" }
func (p peer) Path() string             { return "" }
func (p peer) Route() string            { return "" }
func (p peer) RemoteAddr() string       { return string(p) }
func (p peer) Header(string) []string   { return nil }
