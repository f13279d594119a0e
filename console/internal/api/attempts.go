package api

import (
	"context"
	"net/http"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/store/memstore"
)

// Wrong tokens that an address may send, and how many addresses are remembered. A
// token cannot be guessed: this keeps those who try from keeping the database
// busy.
const (
	wrongTokens  = 60
	wrongPer     = time.Minute
	attemptsKeys = 1 << 16
)

// attempts counts the wrong tokens of addresses. It is the program's own: no
// managed policy changes it.
type attempts struct{ limiter *core.Limiter }

func newAttempts(clock func() time.Time) (*attempts, error) {
	o := memstore.Options{MaxKeys: attemptsKeys}
	if clock != nil {
		o.Clock = func() int64 { return clock().UnixMicro() }
	}
	store, err := memstore.New(o)
	if err != nil {
		return nil, err
	}
	rule := core.Rule{Name: "wrong-tokens", Limit: core.Limit{Quota: wrongTokens, Period: wrongPer}, Key: keyfuncs.RemoteIP}
	limiter, err := core.New(core.Config{Store: store, Rules: []core.Rule{rule}})
	return &attempts{limiter}, err
}

// blocked returns how long the address has to wait, or 0.
func (a *attempts) blocked(r *http.Request) time.Duration {
	decisions, err := a.limiter.Peek(r.Context(), address(r))
	if err != nil || len(decisions) == 0 || decisions[0].Decision.Allowed {
		return 0
	}
	return decisions[0].Decision.RetryAfter
}

// failed counts a wrong token.
func (a *attempts) failed(r *http.Request) {
	a.limiter.Take(r.Context(), address(r), 1) // memory never fails to decide
}

// address is what attempts are counted by: an IPv6 network is one.
func address(r *http.Request) string {
	key, _ := keyfuncs.RemoteIP(peer{r})
	return key
}

// peer is what keyfuncs.RemoteIP asks.
type peer struct{ r *http.Request }

func (p peer) Context() context.Context { return p.r.Context() }
func (p peer) Method() string           { return p.r.Method }
func (p peer) Path() string             { return p.r.URL.Path }
func (p peer) Route() string            { return "" }
func (p peer) RemoteAddr() string       { return p.r.RemoteAddr }
func (p peer) Header(string) []string   { return nil }
