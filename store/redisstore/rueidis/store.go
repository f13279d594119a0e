package rueidisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/store/redisstore"
)

// New returns a store that uses the client, which the caller closes. It does not connect. The
// error names every mistake in the options.
func New(client rueidis.Client, o redisstore.Options) (*redisstore.Store, error) {
	if client == nil {
		return redisstore.NewWithClient(nil, o)
	}
	return redisstore.NewWithClient(newClient(client), o)
}

// MustNew is [New] for arguments that are known to be valid. It panics on an error.
func MustNew(client rueidis.Client, o redisstore.Options) *redisstore.Store {
	s, err := New(client, o)
	if err != nil {
		panic(err)
	}
	return s
}

const (
	// bufferSize holds the call of a full batch, which takes some 10 KiB.
	bufferSize = 1 << 14

	// ringScale is the binary logarithm of how many commands may wait for a place in a pipeline.
	ringScale = 5
)

// NewClient returns a client for stores: that of rueidis.NewClient with the options, without the
// cache of rueidis, with small buffers unless the options have sizes, and with connections
// that read a reply which has arrived although this process notices its deadline late. [New] takes
// other clients too. It connects, and the error is that of rueidis.
func NewClient(o rueidis.ClientOption) (rueidis.Client, error) {
	//lint:ignore SA1019 rueidis still calls it
	dial, own := o.DialCtxFn, o.DialFn
	switch {
	case dial == nil && own != nil:
		dial = func(_ context.Context, addr string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
			return own(addr, d, config)
		}
	case dial == nil:
		dial = dialDefault
	}

	// A connection of rueidis takes a megabyte and thousands of allocations for pipelines, and
	// those of a store carry one call at a time.
	o.ReadBufferEachConn = cmp.Or(o.ReadBufferEachConn, bufferSize)
	o.WriteBufferEachConn = cmp.Or(o.WriteBufferEachConn, bufferSize)
	o.RingScaleEachConn = cmp.Or(o.RingScaleEachConn, ringScale)

	o.DisableCache = true
	o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
		conn, err := dial(ctx, addr, d, config)
		if err != nil {
			return nil, err
		}
		return redisstore.WithPatience(conn, redisstore.DefaultTimeout), nil
	}
	return rueidis.NewClient(o)
}

// dialDefault dials as rueidis does without a DialCtxFn.
func dialDefault(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
	if config == nil {
		return d.DialContext(ctx, "tcp", addr)
	}
	over := tls.Dialer{NetDialer: d, Config: config}
	return over.DialContext(ctx, "tcp", addr)
}
